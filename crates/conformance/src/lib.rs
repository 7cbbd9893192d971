//! What every store of [`redis_dlock`] must do, as a suite of tests that an implementor of [`LockProcessor`] runs.
//!
//! Implement [`Store`] for a fresh store of yours: the processor, and what an administrator may do to the store. Then let
//! [`conformance_tests!`](crate::conformance_tests) make a test of each case:
//!
//! ```
//! use dlock_conformance::Store;
//! use redis_dlock::port::LockProcessor;
//! # use redis_dlock::MemoryLockProcessor;
//! # use std::{sync::Arc, time::Duration};
//!
//! #[derive(Debug)]
//! struct MyStore {
//!     // …
//! #   processor: MemoryLockProcessor,
//! }
//!
//! impl Store for MyStore {
//!     fn processor(&self) -> Arc<dyn LockProcessor> {
//!         // …
//! #       Arc::new(self.processor.clone())
//!     }
//!     // …
//! #   fn delete(&self, _: &str) -> bool { unimplemented!() }
//! #   fn overwrite(&self, _: &str, _: &str, _: Option<Duration>) { unimplemented!() }
//! #   fn flush(&self) { unimplemented!() }
//! #   fn pass_time(&self, _: Duration) { unimplemented!() }
//! #   fn leftovers(&self) -> Vec<String> { Vec::new() }
//! }
//!
//! # let start = || MyStore { processor: MemoryLockProcessor::new() };
//! // In a test: `dlock_conformance::conformance_tests!(my_store, MyStore::start());`
//! // Or one case alone:
//! dlock_conformance::run("required::one_locker_excludes_all_others", start());
//! ```
//!
//! A store need not have everything. What it does not have is listed after the expression, as in
//! `conformance_tests!(my_store, MyStore::start(), lacks Breaking Directory)`, and the cases that need it are *ignored* tests. A further test
//! fails if the list is not what [`lacks`] returns. The words are:
//!
//! | word | what a store with it has |
//! |---|---|
//! | `Queue`, `Directory`, `Posting` | the method of [`LockProcessor`] of that name returns something |
//! | `Numbers`, `Settling`, `Breaking` | [`numbers`](redis_dlock::port::StoreLimits::numbers), [`settles`](redis_dlock::port::StoreLimits::settles), [`breaks`](redis_dlock::port::StoreLimits::breaks) of its limits |
//! | `Delays` | [delayed releases](redis_dlock::port::StoreLimits::longest_release_delay) |
//! | `Gaps` | [gaps for pollers](redis_dlock::port::StoreLimits::poller_gaps) |
//! | `DeadAtOnce` | dead waiters are [dropped at once](redis_dlock::port::StoreLimits::dead_waiters) |
//! | `Keeps` | waiters that nobody hears [keep their places](redis_dlock::port::StoreLimits::keeps_unheard) for a while |
//! | `Denials` | [`Store::deny`] can deny the commands of the Redis scripts |
//!
//! A case waits for the end of leases of 600 ms, or of the shortest that the store allows
//! ([`StoreLimits`](redis_dlock::port::StoreLimits)); no case looks at absolute time otherwise.
//!
//! For cases of your own there are the words in which these are written: a [`Suite`] has [`Client`]s, a client has [`Tenure`]s, a tenure
//! asks, an [`InboxReader`] hears.
//!
//! [`LockProcessor`]: redis_dlock::LockProcessor

#![forbid(unsafe_code)]
#![expect(clippy::must_use_candidate, reason = "a case often wants the check alone")]
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "it consists of tests: whatever is unexpected is a panic"
)]

mod cases;
mod inbox_reader;
mod list;
mod store;
mod suite;
mod tenure;

pub use inbox_reader::InboxReader;
pub use store::Store;
pub use suite::{Client, Suite};
pub use tenure::Tenure;

use store::Need;

/// Runs one case on a store of its own, by its name: `"queue::is_counted"`. Afterwards every locker is released, and the
/// store must then be empty. A case that needs what the store does not have passes, and says so on the standard error stream: [`skipped`] lists these cases.
///
/// # Panics
///
/// If the store does not do what the case demands, or there is no such case.
pub fn run(case: &str, store: impl Store + 'static) {
    let Some(found) = list::CASES.iter().find(|found| found.name == case) else { panic!("there is no case {case:?}") };
    let suite = Suite::on(store);
    match found.lacks(&suite) {
        Some(need) => eprintln!("{case}: the store does not have what this case needs ({need:?})"),
        None => {
            (found.run)(&suite);
            suite.assert_nothing_is_left();
        }
    }
}

/// Returns the names of the cases that need what a store does not have, and therefore check nothing there.
pub fn skipped(store: impl Store + 'static) -> Vec<&'static str> {
    let suite = Suite::on(store);
    list::CASES.iter().filter(|case| case.lacks(&suite).is_some()).map(|case| case.name).collect()
}

/// Returns what a store does not have and cases need, in the words that [`conformance_tests!`](crate::conformance_tests) takes after `lacks`.
///
/// ```
/// # use dlock_conformance::{Store, lacks};
/// # fn show(store: impl Store + 'static) {
/// println!("conformance_tests!(my_store, …, lacks {});", lacks(store).join(" "));
/// # }
/// ```
pub fn lacks(store: impl Store + 'static) -> Vec<&'static str> {
    let suite = Suite::on(store);
    Need::ALL.iter().filter(|(need, _)| !suite.has(*need)).map(|(_, word)| *word).collect()
}

/// Returns the names of all cases.
pub fn cases() -> impl Iterator<Item = &'static str> {
    list::CASES.iter().map(|case| case.name)
}
