//! Mistakes, each built into the protocol: the checker must find what it breaks.

use crate::checker::{
    BELIEVER_HOLDS, KEPT_FOR_LONGER, NO_THEFT, NOBODY_FALLS_OUT, NOBODY_FORGOTTEN, NOBODY_PASSED, NOTHING_LEFT,
    NUMBERS_FOLLOW, NUMBERS_RISE, ONE_BELIEVER, PLACES_END, PLACES_KEPT, REFUSALS_ARE_TRUE,
};
use crate::rules::{Mutant, Rules};
use crate::{DELETED, FENCE, PAIR};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

/// One fault of any kind is enough for all but the lost fence.
const BASE: Rules = Rules { alike: false, ..PAIR };

/// One release leaves the key free for pollers.
const GAP: Rules = Rules { gaps: 1, ..BASE };

/// Inboxes are closed for a while, and the clock may be stepped back.
const UNHEARD: Rules = Rules {
    lockers: &[2, 1],
    faults: 2,
    crashes: false,
    drops: false,
    next: false,
    extends: false,
    steps_back: true,
    ..BASE
};

/// Expects a counterexample to the property.
fn caught(mutant: Mutant, rules: Rules, property: &'static str) {
    let begin = Instant::now();
    let rules = Rules { mutant, ..rules };
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = rules.checker().threads(1).finish_when(found).timeout(Duration::from_secs(600)).spawn_bfs().join();
    let path = checker.discovery(property).map(|path| path.into_actions());
    println!(
        "{mutant:?} breaks {property:?} by {path:?}: {} states, {:.1?}",
        checker.unique_state_count(),
        begin.elapsed()
    );
    assert!(path.is_some(), "{mutant:?} was not caught");
}

#[test]
fn poll_that_queues_anew() {
    caught(Mutant::PollQueuesAnew, BASE, NOTHING_LEFT);
}

#[test]
fn acquire_that_is_sent_again() {
    caught(Mutant::AcquireResent, BASE, NOTHING_LEFT);
}

#[test]
fn next_locker_that_is_the_same() {
    caught(Mutant::SameLockerNext, Rules { extends: false, ..BASE }, ONE_BELIEVER);
}

#[test]
fn deadline_counted_from_the_hearing() {
    caught(Mutant::CountsFromHearing, Rules { faults: 0, extends: false, ..BASE }, ONE_BELIEVER);
}

#[test]
fn deadline_counted_from_the_reply() {
    caught(Mutant::CountsFromReply, BASE, ONE_BELIEVER);
}

#[test]
fn extend_that_does_not_compare() {
    caught(Mutant::ExtendsAnything, BASE, NO_THEFT);
}

#[test]
fn release_that_does_not_compare() {
    caught(Mutant::ReleasesAnything, BASE, NO_THEFT);
}

#[test]
fn release_that_does_not_compare_lets_two_hold() {
    caught(Mutant::ReleasesAnything, BASE, ONE_BELIEVER);
}

#[test]
fn grant_without_key() {
    caught(Mutant::GrantsWithoutKey, BASE, BELIEVER_HOLDS);
}

#[test]
fn slack_on_a_fresh_connection() {
    caught(Mutant::SlackWhenFresh, FENCE, NUMBERS_RISE);
}

#[test]
fn no_clean_up() {
    caught(Mutant::NoCleanUp, BASE, NOTHING_LEFT);
}

#[test]
fn clean_up_content_with_one_answer() {
    caught(Mutant::CleansUpOnce, BASE, NOTHING_LEFT);
}

#[test]
fn dead_waiter_not_skipped() {
    caught(Mutant::GrantsToTheDead, Rules { lockers: &[1, 1, 1], extends: false, ..BASE }, NOBODY_FORGOTTEN);
}

#[test]
fn grant_of_a_stranger_ignored() {
    caught(Mutant::StrangerIgnored, Rules { lockers: &[1, 2], extends: false, next: false, ..BASE }, NOBODY_FORGOTTEN);
}

#[test]
fn grant_of_a_stranger_left_to_the_clean_up() {
    let rules = Rules { lockers: &[1, 2], crashes: false, deafness: false, extends: false, next: false, ..BASE };
    caught(Mutant::StrangerLeftToCleanUp, rules, NOBODY_FORGOTTEN);
}

#[test]
fn gap_for_ever() {
    caught(Mutant::GapForEver, GAP, NOBODY_FORGOTTEN);
}

#[test]
fn gap_that_keeps_the_key() {
    caught(Mutant::GapKeepsKey, GAP, NOBODY_FORGOTTEN);
}

#[test]
fn gap_that_clears_the_queue() {
    caught(Mutant::GapClearsQueue, GAP, NOBODY_FALLS_OUT);
}

#[test]
fn unheard_waiter_dropped_at_once() {
    caught(Mutant::DropsUnheardAtOnce, UNHEARD, PLACES_KEPT);
}

#[test]
fn unheard_waiter_kept_for_ever() {
    caught(Mutant::KeepsForEver, UNHEARD, PLACES_END);
}

#[test]
fn mark_that_is_left_behind() {
    caught(Mutant::LeavesMark, UNHEARD, PLACES_KEPT);
}

#[test]
fn clock_stepped_back_unnoticed() {
    caught(Mutant::MissesStepBack, UNHEARD, PLACES_END);
}

#[test]
fn mark_that_counts_whoever_is_unheard_later() {
    // Without messages there are fewer states. Of three clients, the last two are alike.
    let rules = Rules {
        lockers: &[2, 1, 1],
        faults: 1,
        alike: true,
        all_deaf: true,
        deafness: false,
        steps_back: false,
        publish: false,
        ..UNHEARD
    };
    caught(Mutant::MarkCountsAll, rules, PLACES_KEPT);
}

#[test]
fn mark_that_outlives_the_return_of_the_first() {
    caught(Mutant::PollLeavesMark, Rules { steps_back: false, ..UNHEARD }, PLACES_KEPT);
}

#[test]
fn publish_before_set() {
    caught(Mutant::PublishesFirst, Rules { publish: false, ..BASE }, NOBODY_FALLS_OUT);
}

/// A call of a script is refused.
const REFUSED: Rules = Rules { refusals: true, crashes: false, drops: false, deafness: false, extends: false, ..BASE };

#[test]
fn hand_over_that_sets_before_it_pops() {
    // The message of the grant that nobody wants is lost.
    caught(Mutant::SetsBeforePop, Rules { deafness: true, faults: 2, lockers: &[1, 1], ..REFUSED }, NOBODY_FORGOTTEN);
}

#[test]
fn grant_of_a_released_locker_that_is_ignored() {
    caught(Mutant::ReleasedGrantIgnored, REFUSED, NOBODY_FORGOTTEN);
}

#[test]
fn hand_over_that_pops_and_forgets() {
    caught(Mutant::PopsAndForgets, REFUSED, NOBODY_FALLS_OUT);
}

#[test]
fn release_that_is_refused_after_its_hand_over() {
    caught(Mutant::RefusedAfterHandOver, REFUSED, REFUSALS_ARE_TRUE);
}

#[test]
fn raised_error_taken_for_a_refusal() {
    caught(Mutant::RaisedTakenForRefused, REFUSED, NOTHING_LEFT);
}

/// First questions are plain commands.
const PLAIN: Rules = Rules { plain: true, ..BASE };

/// The same, and a connection is dropped.
const DROPPED: Rules = Rules { crashes: false, deafness: false, extends: false, ..PLAIN };

#[test]
fn counted_number_that_fell() {
    caught(Mutant::FallenNumberBelieved, Rules { plain: true, ..FENCE }, NUMBERS_RISE);
}

#[test]
fn proof_that_outlives_its_connection() {
    caught(Mutant::ProofOutlivesConnection, Rules { plain: true, ..FENCE }, NUMBERS_RISE);
}

#[test]
fn plain_attempt_that_passes_a_waiter() {
    caught(Mutant::PlainPassesQueue, Rules { faults: 0, extends: false, ..PLAIN }, NOBODY_PASSED);
}

#[test]
fn plain_attempt_that_does_not_look_again() {
    caught(Mutant::PlainWithoutGet, DELETED, NUMBERS_FOLLOW);
}

#[test]
fn plain_attempt_that_is_sent_again() {
    caught(Mutant::PlainResent, DROPPED, NOTHING_LEFT);
}

#[test]
fn plain_attempt_that_is_taken_back_and_polled() {
    caught(Mutant::PlainTakenBackAndPolled, Rules { lockers: &[1, 1], ..DROPPED }, BELIEVER_HOLDS);
}

/// Clients hear nothing at first: an acquire that finds the key busy is sent again when the client hears.
const LATE: Rules = Rules { hears_late: true, crashes: false, extends: false, lockers: &[1, 1], ..BASE };

#[test]
fn first_acquire_that_leaves_its_locker_in_the_queue() {
    caught(Mutant::TryJoins, Rules { drops: false, ..LATE }, NOTHING_LEFT);
}

#[test]
fn second_acquire_though_the_first_had_no_answer() {
    caught(Mutant::SecondAfterNoAnswer, Rules { deafness: false, ..LATE }, NOTHING_LEFT);
}

/// An operator breaks a hold that it has seen.
const BROKEN: Rules = Rules { breaks: 1, faults: 0, extends: false, ..BASE };

#[test]
fn break_that_does_not_compare() {
    caught(Mutant::BreaksAnything, BROKEN, NO_THEFT);
}

#[test]
fn break_that_does_not_compare_lets_two_hold() {
    caught(Mutant::BreaksAnything, BROKEN, ONE_BELIEVER);
}

#[test]
fn break_that_forgets_who_waits() {
    caught(Mutant::BreakForgetsQueue, Rules { lockers: &[1, 1, 1], lease: 1, ..BROKEN }, NOBODY_FALLS_OUT);
}

/// A key is kept for longer than its holder counts on.
const DELAYED: Rules = Rules { delay: 1, faults: 0, extends: false, ..BASE };

#[test]
fn hand_over_that_forgets_the_lock_delay() {
    caught(Mutant::HandOverForgetsDelay, DELAYED, KEPT_FOR_LONGER);
}

#[test]
fn deadline_that_counts_on_the_lock_delay() {
    caught(Mutant::CountsOnDelay, DELAYED, KEPT_FOR_LONGER);
}

/// The inbox is closed when the client has just got ready.
#[test]
fn waiter_that_is_dropped_when_its_subscription_is_lost() {
    caught(Mutant::DropsUnheardAtOnce, Rules { drops: false, ..LATE }, PLACES_KEPT);
}

/// A script raises an error in its middle, and this is the only fault.
const RAISED: Rules = Rules { raises: true, crashes: false, drops: false, deafness: false, extends: false, ..BASE };

/// The error comes after the winner has left the queue and has the key, and before its message is sent.
#[test]
fn waiter_that_relies_on_a_message() {
    caught(Mutant::ReliesOnMessage, RAISED, NOBODY_FORGOTTEN);
}

/// The error comes after the winner has left the queue, and before it has the key.
#[test]
fn raised_error_of_a_release_taken_for_a_success() {
    caught(Mutant::RaisedReleaseBelieved, RAISED, NOTHING_LEFT);
}

#[test]
fn raised_error_of_an_acquire_taken_for_a_refusal() {
    caught(Mutant::RaisedTakenForRefused, RAISED, NOTHING_LEFT);
}
