//! An optional capability of a store: to tell people who holds a lock and who waits, which locks there are, and what clients are.

use super::KeyFilter;
use crate::error::Error;
use std::time::Duration;

/// A store's answers for people and tools: [`LockProcessor::directory`](super::LockProcessor::directory). No lock needs them.
///
/// All methods fail as those of [`LockProcessor`](super::LockProcessor) do, and each blocks for at most its `limit`. The answers may
/// be out of date when they are read.
pub trait Directory: Send + Sync {
    /// Returns who holds a key and who waits for it, the longest wait first. At least the first hundred waiters are returned.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn parties(&self, key: &str, limit: Duration) -> Result<Parties, Error>;

    /// Returns some of the keys that somebody holds or waits for, and where to go on. `from` is the [`next`](ListPage::next) of the page before;
    /// `None` begins. A page may be empty and have a next one. A key that is held or waited for all the time is on at least one page.
    ///
    /// # Errors
    ///
    /// See the trait; [`Error::InvalidConfig`] if no page returned this `from`.
    fn list(&self, keys: &KeyFilter, from: Option<&str>, limit: Duration) -> Result<ListPage, Error>;

    /// Stores a client's record about itself, for `life`.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn put_record(&self, client: &str, text: &str, life: Duration, limit: Duration) -> Result<(), Error>;

    /// Removes a client's record.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn remove_record(&self, client: &str, limit: Duration) -> Result<(), Error>;

    /// Returns the record of each of these clients, if there is one, and if the limit leaves time for it. The text may be written by anybody.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn records(&self, clients: &[&str], limit: Duration) -> Result<Vec<Option<String>>, Error>;

    /// Sends a text about a key to the inbox of a client, which receives it as [`Message::Said`](super::Message::Said). Returns `false` if
    /// it is known that nobody hears it, because that client has no open inbox. The text is one line, and begins with `describe ` or `described `.
    ///
    /// # Errors
    ///
    /// See the trait.
    fn say(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<bool, Error>;
}

/// Who holds a key, and who waits for it: [`Directory::parties`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parties {
    /// The locker that holds the key.
    pub holder: Option<String>,
    /// The time until the holder's lease ends if it is not extended. `None` if it never ends, or if the store does not know.
    pub remaining: Option<Duration>,
    /// The first of the lockers that wait.
    pub waiting: Vec<String>,
    /// How many wait.
    pub queue_length: u64,
}

impl Parties {
    /// Describes a key that this locker holds, or that is free.
    #[must_use]
    pub const fn new(holder: Option<String>, remaining: Option<Duration>) -> Self {
        Self { holder, remaining, waiting: Vec::new(), queue_length: 0 }
    }

    /// Sets the lockers that wait, and how many there are in all.
    #[must_use]
    pub fn with_waiting(mut self, waiting: Vec<String>, queue_length: u64) -> Self {
        (self.waiting, self.queue_length) = (waiting, queue_length);
        self
    }
}

/// Some of the keys of a store: [`Directory::list`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListPage {
    /// Each key, and what the store knows of it.
    pub locks: Vec<(String, super::Inspection)>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<String>,
    /// Which server does not answer, so that its locks are missing here, and why. The text is for people.
    pub missing: Option<String>,
}

impl ListPage {
    /// Makes a page.
    #[must_use]
    pub const fn new(locks: Vec<(String, super::Inspection)>, next: Option<String>) -> Self {
        Self { locks, next, missing: None }
    }

    /// Says that the locks of a server are missing, because it does not answer.
    #[must_use]
    pub fn with_missing(mut self, words: String) -> Self {
        self.missing = Some(words);
        self
    }
}
