//! The list of the cases and their needs. It is written once, as a macro, from which both the table below and the tests of an implementor
//! are generated.

use crate::cases;
use crate::store::Need;
use crate::suite::Suite;

/// One case.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) needs: &'static [Need],
    pub(super) run: fn(&Suite),
}

impl Case {
    /// What this case needs and the store does not have.
    pub(super) fn lacks(&self, suite: &Suite) -> Option<Need> {
        self.needs.iter().copied().find(|need| !suite.has(*need))
    }
}

/// Makes a test of each case of the [suite](crate), in a module of this name: each on a store of its own, made
/// by the expression.
///
/// After `lacks` stands what the store does not have. The cases that need it are ignored tests, which name it: a test cannot be ignored when
/// it runs, so this must be written down. The test `the_store_lacks_what_is_ignored` compares the list with [the
/// store](crate::lacks), and fails if either has something that the other has not.
///
/// ```ignore
/// dlock_conformance::conformance_tests!(my_store, MyStore::start());
/// dlock_conformance::conformance_tests!(my_small_store, MySmallStore::start(), lacks Breaking Directory);
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $store:expr $(, lacks $($lacks:ident)*)?) => {
        $crate::__conformance_cases! { @tests ($) $name, $store, [$($($lacks)*)?]; }
    };
    (@tests ($d:tt) $name:ident, $store:expr, [$($lacks:ident)*];
        $($topic:ident { $($case:ident [$($need:ident)*])* })*) => {
        mod $name {
            // One case: ignored if one of its needs is in the list, which is the first arms.
            macro_rules! dlock_case {
                $(($d topic:ident $d case:ident [$lacks $d($d rest:ident)*] $d store:expr) => {
                    $crate::__conformance_ignored! { $lacks fn $d case() {
                        $crate::run(concat!(stringify!($d topic), "::", stringify!($d case)), $d store);
                    } }
                };)*
                ($d topic:ident $d case:ident [$d other:ident $d($d rest:ident)*] $d store:expr) => {
                    dlock_case! { $d topic $d case [$d($d rest)*] $d store }
                };
                ($d topic:ident $d case:ident [] $d store:expr) => {
                    #[test]
                    fn $d case() {
                        $crate::run(concat!(stringify!($d topic), "::", stringify!($d case)), $d store);
                    }
                };
            }

            #[allow(unused_imports, reason = "the expression may need none")]
            use super::*;

            #[test]
            fn the_store_lacks_what_is_ignored() {
                const IGNORED: &[&str] = &[$(stringify!($lacks)),*];
                let lacks = $crate::lacks($store);
                let lists = lacks.iter().all(|need| IGNORED.contains(need)) && IGNORED.iter().all(|need| lacks.contains(need));
                assert!(lists, "this store lacks something else than {IGNORED:?}: write `lacks {}`", lacks.join(" "));
            }

            $(mod $topic {
                #[allow(unused_imports, reason = "the expression may need none")]
                use super::super::*;
                $(dlock_case! { $topic $case [$($need)*] $store })*
            })*
        }
    };
}

/// A test that is ignored for want of something. The compiler takes only a literal as the reason.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_ignored {
    (Queue $($test:tt)*) => { #[test] #[ignore = "needs Queue"] $($test)* };
    (Numbers $($test:tt)*) => { #[test] #[ignore = "needs Numbers"] $($test)* };
    (Gaps $($test:tt)*) => { #[test] #[ignore = "needs Gaps"] $($test)* };
    (DeadAtOnce $($test:tt)*) => { #[test] #[ignore = "needs DeadAtOnce"] $($test)* };
    (Keeps $($test:tt)*) => { #[test] #[ignore = "needs Keeps"] $($test)* };
    (Denials $($test:tt)*) => { #[test] #[ignore = "needs Denials"] $($test)* };
    (Directory $($test:tt)*) => { #[test] #[ignore = "needs Directory"] $($test)* };
    (Posting $($test:tt)*) => { #[test] #[ignore = "needs Posting"] $($test)* };
    (Settling $($test:tt)*) => { #[test] #[ignore = "needs Settling"] $($test)* };
    (Delays $($test:tt)*) => { #[test] #[ignore = "needs Delays"] $($test)* };
    (Breaking $($test:tt)*) => { #[test] #[ignore = "needs Breaking"] $($test)* };
}

/// Calls a macro with the list of the cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($($arguments:tt)*) => {
        $crate::__conformance_call! { $($arguments)*
            required {
                one_locker_excludes_all_others []
                an_unheld_key_is_free []
                an_unexpiring_key_has_no_remaining_lease []
                a_poll_tells_a_holder_from_a_stranger []
                a_stranger_changes_nothing []
                a_repeated_release_does_no_harm []
                keys_of_any_name_are_kept_apart []
                threads_that_poll_exclude_one_another []
            }
            acquire {
                takes_a_free_key []
                finds_a_busy_key_with_its_holder_and_lease [Queue]
                stands_in_no_queue_unless_it_waits [Queue]
                excludes_two_lockers_of_one_client [Queue]
                knows_no_remaining_lease_of_a_key_without_one [Queue]
                copes_with_holders_of_any_shape [Queue]
            }
            batch {
                answers_all_requests_in_order [Queue Numbers]
                answers_nothing_to_nothing []
            }
            breaking {
                frees_the_key_of_the_locker_that_was_seen [Breaking]
                of_another_locker_changes_nothing [Breaking]
                of_a_waiter_changes_nothing [Breaking Queue]
                twice_does_no_harm [Breaking Queue]
                gives_the_key_to_the_first_waiter_with_a_greater_number [Breaking Queue]
                tells_the_holder [Breaking Queue]
                passes_over_those_who_are_not_heard [Breaking Queue DeadAtOnce]
                of_a_holder_of_any_shape [Breaking Queue]
                is_told_after_the_lease_would_have_ended [Breaking]
                of_a_lease_that_has_ended_changes_nothing [Breaking]
                of_a_poller_leaves_the_gap_as_it_is [Breaking Queue Gaps]
                that_is_refused_leaves_the_key_with_its_holder [Breaking Queue Denials]
            }
            delayed {
                keeps_everybody_out_as_a_holder_does [Delays]
                ends_with_its_time [Delays]
                can_be_repeated [Delays]
                of_a_stranger_changes_nothing [Delays]
                leaves_the_queue_and_gives_the_key_to_its_first_afterwards [Delays Queue]
                can_be_broken [Delays Breaking Queue]
                that_is_refused_leaves_the_key_with_its_holder [Delays Denials]
            }
            denied {
                leaves_the_key_with_the_holder [Queue Denials DeadAtOnce Keeps]
                leaves_those_who_are_passed_over [Queue Denials DeadAtOnce Keeps]
                leaves_a_waiter_where_it_was [Queue Denials]
                leaves_an_asker_nowhere [Queue Denials]
                tells_the_winner_when_the_queue_takes_no_more [Queue Denials]
                leaves_open_what_it_cannot_undo [Queue Denials]
                gives_no_key_to_the_locker_that_is_released [Queue]
            }
            directory {
                names_the_holder_and_who_waits_in_order [Directory Queue]
                lists_each_lock_that_is_held [Directory]
                keeps_a_record_for_its_time [Directory]
                delivers_what_clients_say [Directory Queue]
            }
            gap {
                leaves_the_key_free_for_pollers_alone [Queue Gaps]
                is_waited_for_by_all_of_ours [Queue Gaps]
                keeps_the_queue_and_puts_the_next_locker_behind_it [Queue Gaps DeadAtOnce]
                ends_with_the_first_acquire_if_nobody_waits [Queue Gaps]
                is_made_once_in_its_time_for_all_clients [Queue Gaps]
                is_of_one_key_alone [Queue Gaps]
                is_made_once_by_a_repeated_release [Queue Gaps]
                is_not_made_by_a_stranger [Queue Gaps DeadAtOnce]
                serves_one_poller_after_another [Queue Gaps]
                is_over_when_a_poller_holds_the_key_past_it [Queue Gaps]
                outlives_the_queue [Queue Gaps]
                can_be_left_by_a_waiter [Queue Gaps]
                leaves_nothing_behind [Queue Gaps]
            }
            hand_over {
                grants_in_the_order_of_waiting [Queue]
                skips_the_dead [Queue DeadAtOnce]
                skips_a_client_that_hung_up [Queue DeadAtOnce]
                gives_a_waiter_its_own_lease [Queue]
                frees_the_key_when_all_waiters_are_dead [Queue DeadAtOnce]
                gives_a_free_key_to_the_head_before_the_asker [Queue]
                gives_a_free_key_to_the_head_and_queues_the_asker [Queue DeadAtOnce]
                gives_a_free_key_to_the_asker_when_all_waiters_are_dead [Queue DeadAtOnce]
                gives_a_free_key_to_a_polling_waiter_without_an_inbox [Queue]
                answers_a_polling_winner_instead_of_telling_it [Queue]
                gives_a_free_key_to_the_live_head_not_to_the_polling_waiter [Queue DeadAtOnce]
                gives_a_free_key_to_the_polling_waiter_past_the_dead [Queue DeadAtOnce]
            }
            keep {
                gives_a_waiter_that_is_heard_again_its_old_place [Queue DeadAtOnce Keeps]
                drops_the_unheard_when_their_time_is_over [Queue DeadAtOnce Keeps]
                frees_the_key_while_nobody_is_heard [Queue DeadAtOnce Keeps]
                gives_the_key_to_a_waiter_that_asks_and_keeps_the_order_of_the_others [Queue DeadAtOnce Keeps]
                gives_the_key_to_an_asker_while_nobody_is_heard [Queue DeadAtOnce Keeps]
                passes_the_key_to_the_next_locker_while_nobody_is_heard [Queue DeadAtOnce Keeps]
                counts_the_time_anew_when_nobody_is_unheard_any_more [Queue DeadAtOnce Keeps]
                gives_each_of_the_unheard_a_time_of_its_own [Queue DeadAtOnce Keeps]
                counts_the_time_anew_when_the_first_is_heard_again_and_polls [Queue DeadAtOnce Keeps]
                counts_those_who_are_kept [Queue DeadAtOnce Keeps]
                tells_the_holder_when_the_first_of_them_polls [Queue DeadAtOnce Keeps]
                leaves_nothing_of_those_who_give_up [Queue DeadAtOnce Keeps]
                goes_on_behind_a_gap [Queue Gaps DeadAtOnce Keeps]
            }
            lease {
                ends []
                does_not_end_early []
                is_prolonged_by_extend []
                is_prolonged_by_poll []
                is_never_shortened_by_others [Queue]
                of_a_stranger_is_untouched []
                cannot_be_extended_after_its_end []
                cannot_be_extended_after_deletion []
                cannot_be_extended_after_overwriting []
                extension_tells_how_many_wait [Queue]
            }
            names {
                of_all_kinds_are_kept_apart [Queue]
                of_many_keys_leave_nothing_behind [Queue]
            }
            numbers {
                rise_over_everything [Queue]
                do_not_fall_with_a_poll []
                rise_over_a_flush [Numbers]
                rise_over_lost_leases []
                of_a_fresh_range_are_unissued [Numbers]
                come_only_when_asked_for [Numbers]
            }
            posting {
                frees_the_key_and_tells_how_it_ended [Posting]
                comes_before_what_the_client_asks_next [Posting]
                by_a_stranger_changes_nothing [Posting]
                twice_does_no_harm [Posting]
                hands_the_key_to_who_waits [Posting Queue]
                of_several_tells_each_how_it_ended [Posting]
                of_several_may_go_out_with_the_next_request [Posting]
            }
            queue {
                tells_the_holder_of_its_head [Queue]
                tells_the_holder_again_when_its_head_polls [Queue]
                tells_a_granted_holder_of_the_new_head [Queue]
                knows_nobody_that_was_not_sent [Queue]
                knows_nobody_that_gave_up [Queue DeadAtOnce]
                knows_nobody_whose_tenure_ended []
                is_entered_once_by_many_polls [Queue]
                ends_when_nobody_asks [Queue]
                ends_after_a_hand_over_when_nobody_asks [Queue]
                lives_as_long_as_its_longest_lease [Queue DeadAtOnce]
                lives_on_by_polls [Queue]
                is_counted [Queue]
            }
            release {
                frees_the_key []
                twice_does_no_harm [Queue]
                by_a_stranger_changes_nothing [Queue]
                takes_a_waiter_out_of_the_queue [Queue]
                of_a_lost_tenure_changes_nothing []
                passes_to_the_next_locker_when_nobody_waits [Queue]
                passes_to_the_next_locker_past_the_dead [Queue DeadAtOnce]
                passes_with_a_lease_that_begins_anew [Queue]
                passes_with_the_lease_of_the_next_locker [Queue]
                queues_the_next_locker_when_somebody_waits [Queue DeadAtOnce]
                repeated_with_the_same_next_locker_changes_nothing [Queue]
                by_a_stranger_leaves_its_next_locker_unknown [Queue]
            }
            settling {
                frees_the_key_of_a_holder [Settling]
                of_a_locker_that_was_never_sent_changes_nothing [Settling]
                twice_does_no_harm [Settling]
                takes_a_waiter_out_of_the_queue [Settling Queue]
            }
            threads {
                exclude_one_another [Queue]
            }
        }
    };
}

/// Sends the list to the macro that the first argument means.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_call {
    (@tests $($rest:tt)*) => { $crate::conformance_tests! { @tests $($rest)* } };
    (@table $($rest:tt)*) => { table! { $($rest)* } };
}

macro_rules! table {
    ($($topic:ident { $($case:ident [$($need:ident)*])* })*) => {
        pub(super) const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($topic), "::", stringify!($case)),
            needs: &[$(Need::$need),*],
            run: cases::$topic::$case,
        }),*),*];
    };
}

crate::__conformance_cases! { @table }
