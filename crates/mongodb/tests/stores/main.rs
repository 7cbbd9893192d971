//! The store on MongoDB, on a server of its protocol.

#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(feature = "command")]
mod command;
mod faults;
mod fresh;
mod page;
mod proxy;
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

/// The tests of the lock in `tests/it`, as far as they wait for no clock that is moved by hand.
#[allow(dead_code, reason = "some ask what this store does not have: lab.rs names them")]
#[path = "../../../../tests/it/lock"]
mod all {
    mod asking;
    mod awaiting;
    mod cancelling;
    mod closing;
    mod delayed;
    mod giving_up;
    mod granted;
    mod handles;
    mod holds;
    mod leading;
    mod lingering;
    mod looking;
    mod loss;
    mod loss_causes;
    mod loss_hook;
    mod max_hold;
    mod order;
    mod orphans;
    mod outages;
    mod owned;
    mod ownership;
    mod passing;
    mod races;
    mod reentry;
    mod renewing;
    mod retrying;
    mod several;
    mod slow_wait;
    mod trying;
    mod twins;
}

/// The same of the tests of forced breaks.
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/it/breaking"]
mod breaking {
    mod holder;
    mod orders;
    mod racing;
    mod waiters;
}

/// And of descriptions.
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/it/describe"]
mod describe {
    mod asking;
    mod clients;
}

use fresh::Fresh;

dlock_conformance::conformance_tests!(mongodb, Fresh::start(), lacks Gaps DeadAtOnce Keeps Denials Posting Settling);
