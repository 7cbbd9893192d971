//! What the suite needs of a store beside the [`LockProcessor`] itself.

use redis_dlock::port::LockProcessor;
use std::sync::Arc;
use std::time::Duration;

/// A store under test. Nobody else writes to it; dropping it ends it.
pub trait Store: Send + Sync {
    /// Returns a processor on this store that shares nothing with those before but the store.
    fn processor(&self) -> Arc<dyn LockProcessor>;

    /// Deletes a lock's key, as an administrator does. Returns whether it existed; a key whose lease has ended does not exist.
    fn delete(&self, key: &str) -> bool;

    /// Gives a lock's key to `holder` whoever holds it, as an administrator does. Without a lease, for ever.
    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>);

    /// Deletes everything except open inboxes and what numbers come from.
    fn flush(&self);

    /// Returns when this much time has gone by for the store: a lease of just that length has ended.
    fn pass_time(&self, time: Duration);

    /// Lists what the store keeps, without what may stay for ever (a counter), and what tells of broken holds and ends by itself.
    /// Empty when no lock is held or waited for. Entries whose leases have ended are not in the list, even if the store has not deleted them.
    fn leftovers(&self) -> Vec<String>;

    /// Gives a free key to `holder`, as a polling client would. Returns whether the key was free. Nobody else asks meanwhile. Needed only
    /// by stores with gaps for pollers; the default panics.
    fn take(&self, _key: &str, _holder: &str, _lease: Duration) -> bool {
        unimplemented!("this store was not told how a poller takes a key")
    }

    /// As [`pass_time`](Self::pass_time), but perhaps only for a key's queue, its gaps and the waiters that it
    /// [keeps](redis_dlock::port::StoreLimits::keeps_unheard), and at once.
    fn pass_time_of_gaps(&self, _key: &str, time: Duration) {
        self.pass_time(time);
    }

    /// Denies Redis commands to the processors until it is called again; an empty list allows all. Returns whether the store can do
    /// that, as the default does not. The cases that deny a command in the middle of an operation are for stores with the Redis scripts.
    fn deny(&self, _commands: &[&'static str]) -> bool {
        false
    }

    /// Returns how many keys have ended with their leases until now; 0 where nobody counts.
    fn expirations(&self) -> u64 {
        0
    }

    /// Returns what the store is called in reports.
    fn name(&self) -> &'static str {
        "store"
    }
}

/// What a case needs of a store beyond the required methods. The suite's page says how a test names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A queue with an inbox.
    Queue,
    /// Ranges of numbers.
    Numbers,
    /// Gaps for pollers.
    Gaps,
    /// Dead waiters are passed over at once.
    DeadAtOnce,
    /// Dead waiters keep their places for a while.
    Keeps,
    /// Commands of the Redis scripts can be denied.
    Denials,
    /// Knowledge for people.
    Directory,
    /// Posted releases.
    Posting,
    /// The certain end of a locker.
    Settling,
    /// Forced breaks.
    Breaking,
    /// Delayed releases.
    Delays,
}

impl Need {
    /// All, with their words.
    pub(super) const ALL: [(Self, &'static str); 11] = [
        (Self::Queue, "Queue"),
        (Self::Numbers, "Numbers"),
        (Self::Gaps, "Gaps"),
        (Self::DeadAtOnce, "DeadAtOnce"),
        (Self::Keeps, "Keeps"),
        (Self::Denials, "Denials"),
        (Self::Directory, "Directory"),
        (Self::Posting, "Posting"),
        (Self::Settling, "Settling"),
        (Self::Breaking, "Breaking"),
        (Self::Delays, "Delays"),
    ];
}
