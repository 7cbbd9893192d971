//! What the tests of the lock in `tests/it` need, on MongoDB: a fresh database, and the clients that meet there.

#[path = "../../../../tests/support/lab.rs"]
mod shared;

use redis_dlock::DLockConfig;
pub(crate) use shared::*;
use std::time::Duration;

/// The shortest lease of these tests: stand-ins of a mongod are slow on a busy machine.
const SHORTEST: u64 = 1000;

/// Settings of a lock of these tests, with a lease that is not lost on a busy machine.
pub(crate) fn config(target: &str, lease_ms: u64) -> DLockConfig {
    DLockConfig::new("TEST", target).with_lease(Duration::from_millis(lease_ms.max(SHORTEST)))
}

/// Makes a test of a function of a test of the lock; none of those that ask what this store does not have.
macro_rules! on {
    // Who waits and dies is passed over when it has missed its polls, and not at once.
    (the_dead_are_passed_over) => {};
    (a_thread_that_waits_goes_on_under_another_name) => {};
    // A lease is extended earlier here, since a primary may be missing for a while.
    (it_extends_at_three_quarters_and_probes_in_between) => {};
    (it_keeps_all_that_is_due_in_one_round_trip) => {};
    // Their leases are to be exactly as long as they say, and these tests have longer ones.
    (a_handle_knows_its_names_and_settings) => {};
    (everything_can_be_printed_at_any_time) => {};
    (a_store_that_fails_costs_the_lease_at_its_deadline) => {};
    (a_store_that_is_silent_costs_the_lease_at_its_deadline) => {};
    (an_extension_whose_answer_is_late_is_a_loss_even_if_nobody_looked) => {};
    // Their limits are shorter than a stand-in of a mongod needs on a busy machine.
    (a_wait_ends_by_its_limit_or_by_its_token) => {};
    (every_way_to_lock_has_one) => {};
    (every_way_to_take_one_ends_with_it_or_by_its_limit) => {};
    (unguarded_attempts_tell_the_same) => {};
    (a_limit_and_a_token_end_the_wait_for_the_last) => {};
    ($name:ident) => {
        #[test]
        fn $name() {
            crate::support::stalls::on_a_running_machine(crate::support::lab::STALL, || {
                super::$name(&crate::support::lab::Lab::on(crate::fresh::Fresh::start(), Default::default()));
            });
        }
    };
}

/// Makes a test of each function of a test of the lock. One that fails while the machine stands still is played again.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod mongodb {
            $(crate::support::lab::on!($name);)+
        }
    };
}

pub(crate) use {on, on_both_stores};
