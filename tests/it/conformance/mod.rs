//! What every store must do: one list of cases, run unchanged on each.
//!
//! A case is a function over a [`Suite`](suite::Suite); the macro below makes a test of it for each store, so a
//! failure is named by store, topic and case. A case that is missing in the list is an unused function: the compiler says so.
//!
//! No case looks at absolute time. Leases that end do so while the case waits for just that.

mod acquire;
mod batch;
mod denied;
mod gap;
mod hand_over;
mod lease;
mod model;
mod names;
mod numbers;
mod queue;
mod release;
pub(crate) mod suite;
mod threads;

use suite::{MemoryStore, RedisStore};

/// Runs every case on the stores that an expression makes: `conformance!(name, start)`.
macro_rules! conformance {
    ($store:ident, $start:expr) => {
        mod $store {
            conformance! { @cases { use super::super::*; $start }
                acquire {
                    takes_a_free_key
                    finds_a_busy_key_with_its_holder_and_lease
                    stands_in_no_queue_unless_it_waits
                    excludes_two_lockers_of_one_client
                    knows_no_remaining_lease_of_a_key_without_one
                    copes_with_holders_of_any_shape
                }
                batch {
                    answers_all_requests_in_order
                    answers_nothing_to_nothing
                }
                denied {
                    leaves_the_key_with_the_holder
                    leaves_a_waiter_where_it_was
                    leaves_an_asker_nowhere
                    tells_the_winner_when_the_queue_takes_no_more
                    leaves_open_what_it_cannot_undo
                    gives_no_key_to_the_locker_that_is_released
                }
                gap {
                    leaves_the_key_free_for_pollers_alone
                    is_waited_for_by_all_of_ours
                    keeps_the_queue_and_puts_the_next_locker_behind_it
                    ends_with_the_first_acquire_if_nobody_waits
                    is_made_once_in_its_time_for_all_clients
                    is_of_one_key_alone
                    is_made_once_by_a_repeated_release
                    is_not_made_by_a_stranger
                    serves_one_poller_after_another
                    is_over_when_a_poller_holds_the_key_past_it
                    outlives_the_queue
                    can_be_left_by_a_waiter
                    leaves_nothing_behind
                }
                hand_over {
                    grants_in_the_order_of_waiting
                    skips_the_dead
                    skips_a_client_that_hung_up
                    gives_a_waiter_its_own_lease
                    frees_the_key_when_all_waiters_are_dead
                    gives_a_free_key_to_the_head_before_the_asker
                    gives_a_free_key_to_the_head_and_queues_the_asker
                    gives_a_free_key_to_the_asker_when_all_waiters_are_dead
                    gives_a_free_key_to_a_polling_waiter_without_an_inbox
                    answers_a_polling_winner_instead_of_telling_it
                    gives_a_free_key_to_the_live_head_not_to_the_polling_waiter
                    gives_a_free_key_to_the_polling_waiter_past_the_dead
                }
                lease {
                    ends
                    is_prolonged_by_extend
                    is_prolonged_by_poll
                    is_never_shortened_by_others
                    of_a_stranger_is_untouched
                    cannot_be_extended_after_its_end
                    cannot_be_extended_after_deletion
                    cannot_be_extended_after_overwriting
                    extension_tells_how_many_wait
                }
                model {
                    random_requests_are_answered_as_by_the_embedded_store
                }
                names {
                    of_all_kinds_are_kept_apart
                    of_many_keys_leave_nothing_behind
                }
                numbers {
                    rise_over_everything
                    rise_with_every_poll
                    rise_over_a_flush
                    rise_over_lost_leases
                    of_a_fresh_range_are_unissued
                    come_only_when_asked_for
                }
                queue {
                    tells_the_holder_of_its_head
                    tells_the_holder_again_when_its_head_polls
                    tells_a_granted_holder_of_the_new_head
                    knows_nobody_that_was_not_sent
                    knows_nobody_that_gave_up
                    knows_nobody_whose_tenure_ended
                    is_entered_once_by_many_polls
                    ends_when_nobody_asks
                    ends_after_a_hand_over_when_nobody_asks
                    lives_as_long_as_its_longest_lease
                    lives_on_by_polls
                    is_counted
                }
                release {
                    frees_the_key
                    twice_does_no_harm
                    by_a_stranger_changes_nothing
                    takes_a_waiter_out_of_the_queue
                    of_a_lost_tenure_changes_nothing
                    passes_to_the_next_locker_when_nobody_waits
                    passes_to_the_next_locker_past_the_dead
                    passes_with_the_lease_of_the_next_locker
                    queues_the_next_locker_when_somebody_waits
                    repeated_with_the_same_next_locker_changes_nothing
                    by_a_stranger_leaves_its_next_locker_unknown
                }
                threads {
                    exclude_one_another
                }
            }
        }
    };
    (@cases { $import:item $start:expr } $($topic:ident { $($case:ident)* })*) => {
        $(mod $topic {
            $import
            $(#[test]
            fn $case() {
                crate::conformance::suite::run($start, crate::conformance::$topic::$case);
            })*
        })*
    };
}

conformance!(memory, MemoryStore::start());
conformance!(redis, RedisStore::start());
conformance!(redis_proved, RedisStore::start_proved());
