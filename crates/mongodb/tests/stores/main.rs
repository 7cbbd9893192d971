//! The store on MongoDB, on a server of its protocol.

#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(feature = "command")]
mod command;
mod faults;
mod fresh;
mod page;
mod proxy;
mod secrets;
mod server;

/// The parts of the kit of all tests that know no Redis.
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "."]
mod support {
    #[path = "../../../../tests/it/support/asking.rs"]
    pub(crate) mod asking;
    #[path = "../../../../tests/support/crew.rs"]
    pub(crate) mod crew;
    #[path = "../../../../tests/it/support/fork.rs"]
    pub(crate) mod fork;
    #[path = "../../../../tests/it/support/journal.rs"]
    pub(crate) mod journal;
    #[path = "lab.rs"]
    pub(crate) mod lab;
    #[path = "../../../../tests/support/ports.rs"]
    pub(crate) mod ports;
    #[path = "../../../../tests/support/process.rs"]
    pub(crate) mod process;
    #[path = "../../../../tests/it/support/stalls.rs"]
    pub(crate) mod stalls;
    #[path = "../../../../tests/support/stores_page.rs"]
    pub(crate) mod stores_page;
    #[path = "../../../../tests/it/support/time.rs"]
    pub(crate) mod time;
    #[path = "../../../../tests/it/support/watched.rs"]
    pub(crate) mod watched;

    pub(crate) use asking::{Asking, claim};
    pub(crate) use crew::is_long;
    pub(crate) use lab::{LONG, cause};
}

// What the tests of the lock, of forced breaks and of descriptions ask of a store.
#[allow(dead_code, reason = "some ask what this store does not have: lab.rs names them")]
#[path = "../../../../tests/it/lock/elsewhere.rs"]
mod all;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/it/breaking/elsewhere.rs"]
mod breaking;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/it/describe/elsewhere.rs"]
mod describe;

use fresh::Fresh;

dlock_conformance::conformance_tests!(mongodb, Fresh::start(), lacks Gaps DeadAtOnce Keeps Denials Posting Settling);
