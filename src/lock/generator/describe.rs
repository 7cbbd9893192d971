//! The list of locks, for people and tools.

use super::glob;
use crate::client::Client;
use crate::config::PREFIX;
use crate::description::{DelayedRelease, ListedLock};
use crate::error::{BackendFailure, Error};
use crate::port::{Inspection, KeyFilter};
use crate::state::locker::lock_delay_left;
use std::collections::VecDeque;
use std::sync::Arc;

/// The locks that somebody holds or waits for: [`DLockGenerator::list`](crate::DLockGenerator::list). [`next`](Iterator::next) blocks while it
/// asks for a page, for at most the limits of two commands. On a server on which few keys belong to locks, it asks for many pages. If a master
/// of a Cluster does not answer, an item is the error that names it, and the locks of the other masters follow. Any other error is the last
/// item.
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
    pub(super) fn new(client: &Arc<Client>, pattern: &str) -> Self {
        let pattern: Vec<char> = pattern.chars().collect();
        let is_like = move |key: &str| key.strip_prefix(PREFIX).is_some_and(|name| glob::matches(&pattern, name));
        Self {
            client: Arc::clone(client),
            keys: KeyFilter::new(is_like),
            found: VecDeque::new(),
            missing: None,
            from: None,
            is_over: false,
        }
    }

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
