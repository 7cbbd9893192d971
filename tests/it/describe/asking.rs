//! How a lock is described until it is described so.

use crate::support::crew::{answered, eventually};
use redis_dlock::{DLockConfig, DLockGenerator, Description, Party};
use std::time::Duration;

pub(super) const LEASE: Duration = Duration::from_secs(600);

pub(super) fn config(target: &str, reason: &str) -> DLockConfig {
    DLockConfig::new("DESCRIBE", target).with_lease(LEASE).with_reason(reason)
}

/// Describes a lock until its holder is described so.
pub(super) fn holder(asker: &DLockGenerator, target: &str, is_so: impl Fn(&Party) -> bool) -> Party {
    let mut last = None;
    eventually("the holder is described so", || {
        last = answered(|| asker.describe("DESCRIBE", target)).holder;
        last.as_ref().is_some_and(&is_so)
    });
    last.unwrap()
}

/// Describes a lock until it is described so.
pub(super) fn description(asker: &DLockGenerator, target: &str, is_so: impl Fn(&Description) -> bool) -> Description {
    let mut last = None;
    eventually("the lock is described so", || {
        let found = answered(|| asker.describe("DESCRIBE", target));
        let done = is_so(&found);
        last = Some(found);
        done
    });
    last.unwrap()
}
