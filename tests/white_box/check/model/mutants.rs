//! For each mistake that can be built into the crate, a scenario must find what it breaks.

use super::explorer::failure;
use super::mistakes::{Mutant, build_in};
use super::scenarios::*;

/// The words by which shuttle, or the model, reports a forgotten thread or time that never ends.
pub(crate) const FORGOTTEN: &[&str] = &["deadlock", "exceeded max_steps", "time goes on and on"];

/// Checks that some execution fails with this mistake and with one of these words.
pub(crate) fn caught(mutant: Mutant, play: impl Fn() + Copy + Send + Sync + 'static, words: &[&str]) {
    build_in(Some(mutant));
    let found = failure(play, words);
    build_in(None);
    found.unwrap_or_else(|why| panic!("{mutant:?} is {why}"));
}

/// Defines a test for each mistake: its name, the scenario that finds it, and the words to expect.
macro_rules! caught {
    ($($name:ident: $mutant:ident, $scenario:expr, $words:expr;)*) => {
        $(#[test]
        #[cfg_attr(not(dlock_mutants), ignore = "only in the copy with mutants: tests/run.sh schedules")]
        fn $name() {
            $crate::check::model::mutants::caught(
                $crate::check::model::mistakes::Mutant::$mutant,
                || $scenario.play(),
                $words,
            );
        })*
    };
}

pub(crate) use caught as caught_each;

/// The words that report two threads inside at once, or about to be.
const TWO_INSIDE: &[&str] = &["inside at once", "has token", "cause: TakenOver", "cause: Deleted"];

const LEFT: &[&str] = &["left in the store", "closed in", "never at rest"];

caught! {
    settles_without_look: SettlesWithoutLook, TWO, &["waits for what it was given"];
    gives_up_with_turn: GivesUpWithTurn, GIVE_UPS.asking(), &["left in the store", "closed in", "never at rest", "on and on", "deadlock"];
    gives_up_with_hold: GivesUpWithHold, GIVE_UPS, &["closed in", "without a guard", "on and on", "max_steps"];
    waits_unqueued: WaitsUnqueued, TWO, FORGOTTEN;
    nudges_without_mutex: NudgesWithoutMutex, CANCELLING, FORGOTTEN;
    counts_from_hearing: CountsFromHearing, TWO.faulty().probing(), TWO_INSIDE;
    counts_from_reply: CountsFromReply, TWO.faulty().probing(), TWO_INSIDE;
    extends_any_tenure: ExtendsAnyTenure, PROBING, TWO_INSIDE;
    forgets_unanswered: ForgetsGivenUp, GIVE_UPS.asking().faulty(), LEFT;
    forgets_waiting: ForgetsGivenUp, GIVE_UPS, LEFT;
    repeats_apart_unheard: RepeatsApartUnheard, GIVE_UPS_ALONE, LEFT;
    cleans_up_once: CleansUpOnce, GIVE_UPS.asking().faulty(), LEFT;
    keeps_what_is_lost: KeepsWhatIsLost, PASSING.faulty(), &["is valid again", "valid: false, unlocking: Some(Ok"];
    drops_turn: DropsTurn, GIVE_UPS.faulty(), &["deadlock", "never at rest", "closed in"];
    passes_without_end: PassesWithoutEnd, CONTENDED, &["without end"];
    takes_any_grant: TakesAnyGrant, RETURNING, TWO_INSIDE;
    deaf_while_asking: DeafWhileAsking, TWO.faulty().probing(), &["waits for what it was given", "inside at once", "cause: TakenOver", "has token"];
    repeats_at_once: RepeatsAtOnce, HEARING_LATE, &["cause: TakenOver", "cause: Deleted"];
    keeps_unwanted: KeepsUnwanted, GIVE_UP, LEFT;
    holds_for_its_thread: HoldsForItsThread, CARRYING, &["a hold is its thread's"];
    keeps_waker_late: KeepsWakerLate, AWAITING, FORGOTTEN;
    stays_when_dropped: StaysWhenDropped, DROPPING, &["left in the store", "closed in", "never at rest", "on and on", "deadlock", "max_steps"];
    keeps_given_hold: KeepsGivenHold, DROPPING, &["closed in", "never at rest", "on and on", "deadlock", "max_steps"];
    ignores_giving_back: IgnoresGivingBack, DROPPED, &["the lock is free"];
    waits_in_wakes: WaitsInWakes, WOKEN, FORGOTTEN;
    leaves_unordered: LeavesUnordered, WOKEN, FORGOTTEN;
    ends_under_mutex: EndsUnderMutex, AWAITING, FORGOTTEN;
    ends_in_two_orders: EndsInTwoOrders, AWAITING, FORGOTTEN;
    confirms_nothing: ConfirmsNothing, AWAITING.faulty().probing().lingering(), FORGOTTEN;
    gives_back_uncounted: GivesBackUncounted, CLOSED_TWICE, LEFT;
    keeps_tasks_at_closing: KeepsTasksAtClosing, AWAITING_CLOSING, &["waits in a closed client"];
    forgets_next_locker: ForgetsNextLocker, TWO.faulty().probing(), TWO_INSIDE;
    forgets_retry_late: ForgetsRetryLate, CROSSING, FORGOTTEN;
    misses_bell: MissesBell, TWO.faulty().probing(), FORGOTTEN;
    leaves_without_gate: LeavesWithoutGate, CLOSING, FORGOTTEN;
    enters_without_second_look: EntersWithoutSecondLook, ENTERING, &["ShutDown"];
    ends_by_old_count: EndsByOldCount, CLOSING_AMID_HOLDS, &["ShutDown"];
    parks_unregistered: ParksUnregistered, CANCELLING, FORGOTTEN;
    lingers_unwatched: LingersUnwatched, LINGERING_FAULTY, LEFT;
    takes_up_recalled: TakesUpRecalled, LINGERING, &["given back"];
    ignores_recall: IgnoresRecall, LINGERING, FORGOTTEN;
    keeps_what_is_broken: KeepsWhatIsLost, BREAKING, &["is valid again", "valid: false, unlocking: Some(Ok"];
    unlocks_untold: UnlocksUntold, BREAKING, &["told of a loss: Err("];
    extends_after_a_break: ExtendsAnyTenure, BREAKING, TWO_INSIDE;
    passes_on_what_is_kept: PassesOnWhatIsKept, KEEPING, &["kept from everybody"];
    releases_what_is_kept: ReleasesWhatIsKept, KEEPING_UNANSWERED, &["kept from everybody"];
    believes_messages: BelievesMessages, TWO, &["by a message alone"];
    forgets_taken_releases: ForgetsTakenReleases, APART, FORGOTTEN;
    takes_in_list_order: TakesInListOrder, SEVERAL, FORGOTTEN;
    forgets_release_of_several: ForgetsReleaseOfSeveral, SEVERAL.faulty().probing(), LEFT;
}
