//! What the tests of the lock in `tests/it` need, on a consensus store: a fresh prefix, and the clients that meet there.

#[path = "../../../../tests/support/lab.rs"]
mod shared;

use crate::consensus::ConsensusStore;
use crate::fresh::Fresh;
use crate::support::time::Time;
use redis_dlock::DLockConfig;
pub(crate) use shared::*;
use std::time::Duration;

/// The shortest lease that both stores keep here, and so the unit of the tests' times.
const SHORTEST: u64 = 2000;

/// The longest lease that both stores keep: Consul's sessions last a day at most.
const LONGEST: u64 = 19 * 3_600_000;

pub(crate) fn on_a_fresh<V: ConsensusStore>() -> Lab {
    Lab::on(Fresh::<V>::start(), Time::default())
}

/// Settings of a lock of these tests, with a lease that both stores keep.
pub(crate) fn config(target: &str, lease_ms: u64) -> DLockConfig {
    DLockConfig::new("TEST", target).with_lease(Duration::from_millis(lease_ms.clamp(SHORTEST, LONGEST)))
}

/// Makes a test on a store of a function of a test of the lock; none of those that ask what these stores do not have.
macro_rules! on {
    // These stores do not tell how long a lease lasts.
    ($store:ident, one_question_tells_the_holder_and_how_many_wait) => {};
    ($store:ident, a_hold_has_the_lease_of_the_handle_that_asked) => {};
    ($store:ident, a_holder_is_named_with_its_process_and_lease) => {};
    ($store:ident, a_stale_unlock_leaves_the_others_key_alone) => {};
    // An extension brings one number, and not millions.
    ($store:ident, a_thread_that_comes_back_again_and_again_asks_the_store_once) => {};
    // What may have been executed is ended by the end of its session, in one request, and not released again and again.
    ($store:ident, what_could_not_be_released_is_tried_on_a_fresh_connection_at_the_end) => {};
    ($store:ident, closing_gives_it_back_later_if_the_store_fails_now) => {};
    ($store:ident, who_lost_it_meanwhile_asks_anew) => {};
    ($store:ident, a_release_without_an_answer_is_repeated) => {};
    ($store:ident, a_grant_that_crosses_with_giving_up_is_passed_on) => {};
    // A place in the queue is its session's, which the release ends: no version leaves it there, and nobody confirms an offer to it.
    ($store:ident, a_grant_for_a_locker_that_is_being_released_repeats_the_release) => {};
    ($store:ident, tasks_that_end_together_give_back_in_one_batch) => {};
    // Who waits and dies is passed over when its session has ended, and not at once.
    ($store:ident, the_dead_are_passed_over) => {};
    // The same with the place that a client has left to its twin: the lock stays there for as long as the session.
    ($store:ident, a_thread_that_waits_goes_on_under_another_name) => {};
    // A lease is extended earlier here, since a leader may be missing for a while, and each by a request of its own.
    ($store:ident, it_extends_at_three_quarters_and_probes_in_between) => {};
    ($store:ident, it_keeps_all_that_is_due_in_one_round_trip) => {};
    // Their leases are to be exactly as long as they say, and these stores keep longer ones.
    ($store:ident, a_handle_knows_its_names_and_settings) => {};
    ($store:ident, everything_can_be_printed_at_any_time) => {};
    ($store:ident, a_store_that_fails_costs_the_lease_at_its_deadline) => {};
    ($store:ident, a_store_that_is_silent_costs_the_lease_at_its_deadline) => {};
    ($store:ident, an_extension_whose_answer_is_late_is_a_loss_even_if_nobody_looked) => {};
    ($store:ident, it_asks_first_after_a_tenth_and_then_every_sixth_of_the_lease) => {};
    ($store:ident, it_asks_when_the_holders_lease_ends) => {};
    // Their limits are shorter than a busy consensus store needs for an answer.
    ($store:ident, a_wait_ends_by_its_limit_or_by_its_token) => {};
    ($store:ident, every_way_to_lock_has_one) => {};
    ($store:ident, $name:ident) => {
        #[test]
        fn $name() {
            crate::support::stalls::on_a_running_machine(crate::support::lab::STALL, || {
                super::$name(&crate::support::lab::on_a_fresh::<crate::consensus::$store>());
            });
        }
    };
}

/// Makes of each function of a test of the lock one on etcd and one on Consul. One that fails while the machine stands still is played again.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod etcd {
            $(crate::support::lab::on!(Etcd, $name);)+
        }
        mod consul {
            $(crate::support::lab::on!(Consul, $name);)+
        }
    };
}

pub(crate) use {on, on_both_stores};
