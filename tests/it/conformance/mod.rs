//! What every store must do: the cases of the crate's conformance suite on each store, and random requests against a model.

pub(crate) mod cluster;
mod memory_store;
pub(crate) mod minimal_store;
mod model;
mod redis_store;
mod sentinels;
mod special_store;

/// The words of the suite, and the stores of these tests.
pub(crate) mod suite {
    pub(crate) use super::memory_store::MemoryStore;
    pub(crate) use super::minimal_store::MinimalStore;
    pub(crate) use super::redis_store::{RedisStore, prove};
    pub(crate) use super::special_store::SpecialStore;
    pub(crate) use dlock_conformance::{Client, InboxReader, Suite, Tenure};
}

use suite::{MemoryStore, MinimalStore, RedisStore, SpecialStore};

dlock_conformance::conformance_tests!(memory, MemoryStore::start(), lacks Posting Settling);
dlock_conformance::conformance_tests!(redis, RedisStore::start(), lacks Settling);
dlock_conformance::conformance_tests!(redis_proved, RedisStore::start_proved(), lacks Settling);
dlock_conformance::conformance_tests!(minimal, MinimalStore::start(), lacks Queue Numbers Gaps Keeps Denials Directory Posting Settling Breaking Delays);
dlock_conformance::conformance_tests!(special, SpecialStore::start(), lacks Denials Directory Breaking);

/// Random requests, answered as by the embedded store, which runs the specification.
mod random {
    use super::model::random_requests_are_answered_as_by_the_embedded_store;
    use super::suite::RedisStore;

    /// Shows: G1, G2, G8, S3, S4, S5.
    #[test]
    fn redis() {
        random_requests_are_answered_as_by_the_embedded_store(RedisStore::start());
    }

    /// Shows: G1, G2, G8, S3, S4, S5.
    #[test]
    fn redis_proved() {
        random_requests_are_answered_as_by_the_embedded_store(RedisStore::start_proved());
    }
}
