//! What the conformance suite needs of a store beside the [`LockProcessor`] itself.

use redis_dlock::LockProcessor;
use std::sync::Arc;
use std::time::Duration;

/// A store under test, all its own: nobody else writes to it. Dropping it ends it.
pub(crate) trait Store: Send + Sync {
    /// A processor on this store that shares nothing with those before but the store.
    fn processor(&self) -> Arc<dyn LockProcessor>;

    /// Deletes a lock's key, as an administrator does; tells whether it existed.
    fn delete(&self, key: &str) -> bool;

    /// Gives a lock's key to `holder`, as somebody else does.
    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>);

    /// Gives a lock's key to `holder` if it is free, as a JVM does; tells whether it was. Nobody else asks meanwhile.
    fn take(&self, key: &str, holder: &str, lease: Duration) -> bool;

    /// Denies commands to the processors, in Redis's names in capital letters, until told otherwise.
    fn deny(&self, commands: &[&'static str]);

    /// Forgets everything that the store keeps.
    fn flush(&self);

    /// Returns when this much time has gone by for the store: a lease of just that length has ended.
    fn pass_time(&self, time: Duration);

    /// As [`pass_time`](Self::pass_time), but perhaps for a key's queue and gaps only, and at once.
    fn pass_time_of_gaps(&self, _key: &str, time: Duration) {
        self.pass_time(time);
    }

    /// Names what the store keeps, the fence excepted: empty when no lock is held or waited for.
    fn leftovers(&self) -> Vec<String>;

    /// How many keys have ended with their leases until now; 0 where nobody counts.
    fn expirations(&self) -> u64 {
        0
    }

    /// What it is called in reports.
    fn name(&self) -> &'static str {
        "store"
    }
}
