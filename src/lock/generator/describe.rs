//! Describes and lists locks, for people and tools.

use crate::client::Client;
use crate::config::{DLockConfig, PREFIX, check_name};
use crate::description::{DelayedRelease, Description, ListedLock};
use crate::error::{BackendFailure, Error};
use crate::glob;
use crate::lock::generator::DLockGenerator;
use crate::port::{Inspection, KeyFilter};
use crate::state::locker::lock_delay_left;
use std::collections::VecDeque;
use std::sync::Arc;

impl DLockGenerator {
    /// Returns who holds a lock and why, and who waits for it in which order. See [Who holds it](crate::manual::who_holds_it).
    ///
    /// The store names the lockers. What is known of each process comes from its [client record](crate::ClientRecord), and from its own
    /// answer to a message. A process can be asked while it listens: from the first time that one of its threads waits, from its first lock
    /// with a [linger](DLockConfig::with_linger), and from a tenth of a second after its first lock with a
    /// [reason](DLockConfig::with_reason). One that cannot be asked is described by its locker and
    /// its record. The lock itself is not affected.
    ///
    /// Blocks for two commands, and then until all who were asked have answered, for at most a second.
    ///
    /// ```
    /// # use redis_dlock::{DLockConfig, DLockGenerator, MemoryLockProcessor};
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate_with(DLockConfig::new("ORDER", "4711").with_reason("nightly export"))?;
    /// let guard = lock.lock()?;
    /// let holder = generator.describe("ORDER", "4711")?.holder.expect("somebody holds it");
    /// assert!(holder.is_local);
    /// assert_eq!(holder.told.and_then(|told| told.reason).as_deref(), Some("nightly export"));
    /// # drop(guard);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type or a key longer than 16 KiB; [`Error::Unsupported`] if the store cannot tell;
    /// [`Error::Backend`], [`Error::Denied`], [`Error::Conflict`], [`Error::ShutDown`]; [`Error::Forked`] in a child process that inherited the
    /// generator.
    pub fn describe(&self, lock_type: impl Into<String>, lock_target: impl AsRef<str>) -> Result<Description, Error> {
        let config = DLockConfig::new(lock_type, lock_target);
        check_name(&config)?;
        self.client.describe(&config.unique_key)
    }

    /// Returns the locks that somebody holds or waits for and whose `{type}_{target}` is like the pattern. In it `*` stands for any text, `?`
    /// for any character, and `\` takes the meaning of the next character away.
    ///
    /// The locks come page by page, as the iterator is used: a server is asked with `SCAN`, about a thousand of its keys at a time, which
    /// holds up no other client. In a Cluster that is done node by node. Locks that come and go meanwhile may or may not be there, and a
    /// lock may be there twice. The order is that of the server. Making the iterator does not ask the store.
    ///
    /// ```
    /// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let lock = generator.generate("ORDER", "4711")?;
    /// let guard = lock.lock()?;
    /// for found in generator.list("ORDER_*") {
    ///     let found = found?;
    ///     println!("{} is held by {:?}, {} wait", found.key, found.locker, found.waiting);
    /// }
    /// # drop(guard);
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    pub fn list(&self, pattern: &str) -> ListedLocks {
        let pattern: Vec<char> = pattern.chars().collect();
        let is_like = move |key: &str| key.strip_prefix(PREFIX).is_some_and(|name| glob::matches(&pattern, name));
        let keys = KeyFilter::new(is_like);
        ListedLocks {
            client: Arc::clone(&self.client),
            keys,
            found: VecDeque::new(),
            missing: None,
            from: None,
            is_over: false,
        }
    }
}

/// The locks that somebody holds or waits for: [`DLockGenerator::list`]. [`next`](Iterator::next) blocks while it asks for a page, each time for
/// at most the limits of two commands; where most keys of a server are not of locks, it asks for many pages. A master of a Cluster that does not answer is an error that names it; the
/// locks of the other masters come nevertheless. After another error there is no more.
#[derive(Debug)]
#[must_use]
pub struct ListedLocks {
    client: Arc<Client>,
    keys: KeyFilter,
    found: VecDeque<(String, Inspection)>,
    /// The server whose locks are missing in the last page.
    missing: Option<String>,
    /// Where the next page begins.
    from: Option<String>,
    is_over: bool,
}

impl ListedLocks {
    fn fetch(&mut self) -> Result<(), Error> {
        self.client.core().process.check()?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        let page = self.client.core().directory()?.list(
            &self.keys,
            self.from.as_deref(),
            2 * self.client.core().limits.command,
        )?;
        self.found = page.locks.into();
        self.missing = page.missing;
        self.is_over = page.next.is_none();
        self.from = page.next;
        Ok(())
    }
}

impl Iterator for ListedLocks {
    type Item = Result<ListedLock, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, Inspection { holder, remaining, waiting })) = self.found.pop_front() {
                let lock_delay = holder.as_deref().and_then(|locker| lock_delay_left(locker, remaining));
                let delayed_release = holder.as_deref().and_then(DelayedRelease::of_locker);
                return Some(Ok(ListedLock { key, locker: holder, remaining, lock_delay, delayed_release, waiting }));
            }
            if let Some(words) = self.missing.take() {
                return Some(Err(Error::backend(BackendFailure::NotExecuted, words)));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
    }
}
