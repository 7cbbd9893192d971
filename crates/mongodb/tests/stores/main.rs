//! The store on MongoDB, on a server of its protocol.

#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(feature = "command")]
mod command;
mod faults;
mod fresh;
#[allow(dead_code, reason = "other tests use more of it")]
mod lab;
mod page;
mod proxy;
mod secrets;
mod server;

#[path = "../../../../tests/support/stores_page.rs"]
mod stores_page;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/without_redis.rs"]
mod support;

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
