//! Mistakes, each built into the protocol: the checker must find what it breaks.

use crate::checker::{
    BELIEVER_HOLDS, KEPT_FOR_LONGER, KEPT_FROM_ALL, NO_THEFT, NOBODY_FALLS_OUT, NOBODY_FORGOTTEN, NOBODY_PASSED,
    NOTHING_LEFT, NUMBERS_FOLLOW, NUMBERS_RISE, ONE_BELIEVER, PLACES_END, PLACES_KEPT, REFUSALS_ARE_TRUE,
};
use crate::rules::{Mutant, Rules};
use crate::search::Search;
use crate::{DELETED, FENCE, PAIR};
use std::time::Instant;

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
    let (_, holds) = rules.checks().find(|(name, _)| *name == property).expect("a property of this model");
    let Search { states, wrong, .. } = Search::new(&rules, |world| !holds(&rules, world));
    let (path, _) = wrong.unwrap_or_else(|| panic!("{mutant:?} was not caught"));
    println!("{mutant:?} breaks {property:?} by {path:?}: {states} states, {:.1?}", begin.elapsed());
}

/// Makes a test of each mistake: its name, the rules that find it, and the property that it breaks.
macro_rules! caught {
    ($($(#[$comment:meta])* $name:ident: $mutant:ident, $rules:expr, $property:expr;)*) => {
        $(
            $(#[$comment])*
            #[test]
            fn $name() {
                caught(Mutant::$mutant, $rules, $property);
            }
        )*
    };
}

caught! {
    poll_that_queues_anew: PollQueuesAnew, BASE, NOTHING_LEFT;
    acquire_that_is_sent_again: AcquireResent, BASE, NOTHING_LEFT;
    next_locker_that_is_the_same: SameLockerNext, Rules { extends: false, ..BASE }, ONE_BELIEVER;
    deadline_counted_from_the_hearing: CountsFromHearing, Rules { faults: 0, extends: false, ..BASE }, ONE_BELIEVER;
    deadline_counted_from_the_reply: CountsFromReply, BASE, ONE_BELIEVER;
    extend_that_does_not_compare: ExtendsAnything, BASE, NO_THEFT;
    release_that_does_not_compare: ReleasesAnything, BASE, NO_THEFT;
    release_that_does_not_compare_lets_two_hold: ReleasesAnything, BASE, ONE_BELIEVER;
    grant_without_key: GrantsWithoutKey, BASE, BELIEVER_HOLDS;
    slack_on_a_fresh_connection: SlackWhenFresh, FENCE, NUMBERS_RISE;
    no_clean_up: NoCleanUp, BASE, NOTHING_LEFT;
    clean_up_content_with_one_answer: CleansUpOnce, BASE, NOTHING_LEFT;
    dead_waiter_not_skipped: GrantsToTheDead, Rules { lockers: &[1, 1, 1], extends: false, ..BASE }, NOBODY_FORGOTTEN;
    grant_of_a_stranger_ignored:
        StrangerIgnored, Rules { lockers: &[1, 2], extends: false, next: false, ..BASE }, NOBODY_FORGOTTEN;
    grant_of_a_stranger_left_to_the_clean_up:
        StrangerLeftToCleanUp,
        Rules { lockers: &[1, 2], crashes: false, deafness: false, extends: false, next: false, ..BASE },
        NOBODY_FORGOTTEN;
    gap_for_ever: GapForEver, GAP, NOBODY_FORGOTTEN;
    gap_that_keeps_the_key: GapKeepsKey, GAP, NOBODY_FORGOTTEN;
    gap_that_clears_the_queue: GapClearsQueue, GAP, NOBODY_FALLS_OUT;
    unheard_waiter_dropped_at_once: DropsUnheardAtOnce, UNHEARD, PLACES_KEPT;
    unheard_waiter_kept_for_ever: KeepsForEver, UNHEARD, PLACES_END;
    mark_that_is_left_behind: LeavesMark, UNHEARD, PLACES_KEPT;
    clock_stepped_back_unnoticed: MissesStepBack, UNHEARD, PLACES_END;
    // Without messages there are fewer states. Of three clients, the last two are alike.
    mark_that_counts_whoever_is_unheard_later:
        MarkCountsAll,
        Rules {
            lockers: &[2, 1, 1], faults: 1, alike: true, all_deaf: true, deafness: false, steps_back: false, publish: false,
            ..UNHEARD
        },
        PLACES_KEPT;
    mark_that_outlives_the_return_of_the_first: PollLeavesMark, Rules { steps_back: false, ..UNHEARD }, PLACES_KEPT;
    publish_before_set: PublishesFirst, Rules { publish: false, ..BASE }, NOBODY_FALLS_OUT;
}

/// A call of a script is refused.
const REFUSED: Rules = Rules { refusals: true, crashes: false, drops: false, deafness: false, extends: false, ..BASE };

caught! {
    // The message of the grant that nobody wants is lost.
    hand_over_that_sets_before_it_pops:
        SetsBeforePop, Rules { deafness: true, faults: 2, lockers: &[1, 1], ..REFUSED }, NOBODY_FORGOTTEN;
    grant_of_a_released_locker_that_is_ignored: ReleasedGrantIgnored, REFUSED, NOBODY_FORGOTTEN;
    hand_over_that_pops_and_forgets: PopsAndForgets, REFUSED, NOBODY_FALLS_OUT;
    release_that_is_refused_after_its_hand_over: RefusedAfterHandOver, REFUSED, REFUSALS_ARE_TRUE;
    raised_error_taken_for_a_refusal: RaisedTakenForRefused, REFUSED, NOTHING_LEFT;
}

/// First questions are plain commands.
const PLAIN: Rules = Rules { plain: true, ..BASE };

/// The same, and a connection is dropped.
const DROPPED: Rules = Rules { crashes: false, deafness: false, extends: false, ..PLAIN };

caught! {
    counted_number_that_fell: FallenNumberBelieved, Rules { plain: true, ..FENCE }, NUMBERS_RISE;
    proof_that_outlives_its_connection: ProofOutlivesConnection, Rules { plain: true, ..FENCE }, NUMBERS_RISE;
    plain_attempt_that_passes_a_waiter: PlainPassesQueue, Rules { faults: 0, extends: false, ..PLAIN }, NOBODY_PASSED;
    plain_attempt_that_does_not_look_again: PlainWithoutGet, DELETED, NUMBERS_FOLLOW;
    plain_attempt_that_is_sent_again: PlainResent, DROPPED, NOTHING_LEFT;
    plain_attempt_that_is_taken_back_and_polled:
        PlainTakenBackAndPolled, Rules { lockers: &[1, 1], ..DROPPED }, BELIEVER_HOLDS;
}

/// Clients hear nothing at first: an acquire that finds the key busy is sent again when the client hears.
const LATE: Rules = Rules { hears_late: true, crashes: false, extends: false, lockers: &[1, 1], ..BASE };

caught! {
    first_acquire_that_leaves_its_locker_in_the_queue: TryJoins, Rules { drops: false, ..LATE }, NOTHING_LEFT;
    second_acquire_though_the_first_had_no_answer: SecondAfterNoAnswer, Rules { deafness: false, ..LATE }, NOTHING_LEFT;
}

/// An operator breaks a hold that it has seen.
const BROKEN: Rules = Rules { breaks: 1, faults: 0, extends: false, ..BASE };

caught! {
    break_that_does_not_compare: BreaksAnything, BROKEN, NO_THEFT;
    break_that_does_not_compare_lets_two_hold: BreaksAnything, BROKEN, ONE_BELIEVER;
    break_that_forgets_who_waits:
        BreakForgetsQueue, Rules { lockers: &[1, 1, 1], lease: 1, ..BROKEN }, NOBODY_FALLS_OUT;
}

/// A hold that has ended keeps everybody from the key for longer than a lease.
const LATER: Rules = Rules { delayed: 3, crashes: false, deafness: false, extends: false, next: false, ..BASE };

caught! {
    delay_without_an_answer_that_is_followed_by_a_release: DelayThenReleased, LATER, KEPT_FROM_ALL;
    delay_that_is_followed_by_a_release_because_its_grant_was_heard_late: DelayThenGivenUp, LATER, KEPT_FROM_ALL;
    delay_that_ends_with_the_lease: DelayOfALease, Rules { faults: 0, ..LATER }, KEPT_FROM_ALL;
    delay_that_forgets_who_waits: DelayForgetsQueue, Rules { faults: 0, ..LATER }, NOBODY_FALLS_OUT;
}

/// A key is kept for longer than its holder counts on.
const DELAYED: Rules = Rules { delay: 1, faults: 0, extends: false, ..BASE };

caught! {
    hand_over_that_forgets_the_lock_delay: HandOverForgetsDelay, DELAYED, KEPT_FOR_LONGER;
    deadline_that_counts_on_the_lock_delay: CountsOnDelay, DELAYED, KEPT_FOR_LONGER;
    /// The inbox is closed when the client has just got ready.
    waiter_that_is_dropped_when_its_subscription_is_lost:
        DropsUnheardAtOnce, Rules { drops: false, ..LATE }, PLACES_KEPT;
}

/// A script raises an error in its middle, and this is the only fault.
const RAISED: Rules = Rules { raises: true, crashes: false, drops: false, deafness: false, extends: false, ..BASE };

caught! {
    /// The error comes after the winner has left the queue and has the key, and before its message is sent.
    waiter_that_relies_on_a_message: ReliesOnMessage, RAISED, NOBODY_FORGOTTEN;
    /// The error comes after the winner has left the queue, and before it has the key.
    raised_error_of_a_release_taken_for_a_success: RaisedReleaseBelieved, RAISED, NOTHING_LEFT;
    raised_error_of_an_acquire_taken_for_a_refusal: RaisedTakenForRefused, RAISED, NOTHING_LEFT;
}
