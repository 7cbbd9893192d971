//! The parts of the kit of all tests that know no Redis, for the tests of stores in packages of their own. Each of these has its `lab`.

#[path = "../it/support/asking.rs"]
pub(crate) mod asking;
#[path = "crew.rs"]
pub(crate) mod crew;
#[path = "../it/support/fork.rs"]
pub(crate) mod fork;
#[path = "../it/support/journal.rs"]
pub(crate) mod journal;
#[path = "ports.rs"]
pub(crate) mod ports;
#[path = "process.rs"]
pub(crate) mod process;
#[path = "../it/support/stalls.rs"]
pub(crate) mod stalls;
#[path = "../it/support/time.rs"]
pub(crate) mod time;
#[path = "../it/support/watched.rs"]
pub(crate) mod watched;

pub(crate) use crate::lab::{self, LONG, cause};
pub(crate) use asking::{Asking, claim};
pub(crate) use crew::is_long;
