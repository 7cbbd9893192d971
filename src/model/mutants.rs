//! Mistakes, each built into the crate: the scenarios must find what it breaks.

use super::scenarios::{self, run};
use super::world::Scenario;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A grant that comes between the reading of an answer and the settling in `Waiting` is not looked at.
    SettlesWithoutLook,
    /// A thread whose time ends as it gets its turn leaves with the turn.
    GivesUpWithTurn,
    /// A thread whose time ends as it gets the hold leaves without it.
    GivesUpWithHold,
    /// A thread is woken without the mutex.
    NudgesWithoutMutex,
    /// The lease counts from when the client heard of it.
    CountsFromHearing,
    /// The lease counts from the reply.
    CountsFromReply,
    /// A grant for a locker that is over is ignored.
    IgnoresStrangers,
    /// An extension counts for whatever tenure there is.
    ExtendsAnyTenure,
    /// An acquire without an answer is forgotten when it is given up.
    ForgetsUnanswered,
    /// A place in the store's queue is forgotten when it is given up.
    ForgetsWaiting,
    /// A hold is passed on whether it is lost or not.
    PassesOnWhatIsLost,
    /// A turn that leads to nothing is not passed on.
    DropsTurn,
    /// A grant that was heard during a question of which nothing came is forgotten.
    DropsHeardGrant,
    /// The lock is passed on in the process whoever waits outside.
    PassesWithoutEnd,
    /// A grant is taken for the locker that waits, whichever it names.
    TakesAnyGrant,
    /// A grant is not heard while a question is under way.
    DeafWhileAsking,
    /// A tenure that came when all had given up is not released.
    KeepsUnwanted,
    /// The next locker of a release without an answer is forgotten.
    ForgetsNextLocker,
    /// The last waiter leaves the book when another may have entered it.
    ForgetsRetryLate,
    /// A worker that is rung for in its round does not hear it.
    OverhearsBell,
    /// A thread leaves a closing client without the gate.
    LeavesWithoutGate,
    /// A thread enters without looking again whether the client is closed.
    EntersWithoutSecondLook,
    /// A waiting thread is unknown to its token.
    ParksUnregistered,
}

std::thread_local! {
    static BUILT_IN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mistake is built in.
pub(crate) fn is(mutant: Mutant) -> bool {
    BUILT_IN.get() == Some(mutant)
}

/// Expects that the scenario fails with the mistake, and with these words.
fn caught(mutant: Mutant, scenario: Scenario, words: &str) {
    const ENOUGH: usize = 30_000;
    BUILT_IN.set(Some(mutant));
    let begin = std::time::Instant::now();
    let mut found = None;
    for pct in [false, true] {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            if pct { run(PctScheduler::new(4, ENOUGH), scenario) } else { run(RandomScheduler::new(ENOUGH), scenario) }
        }));
        if let Err(panic) = ran {
            found = panic.downcast::<String>().ok();
            break;
        }
    }
    BUILT_IN.set(None);
    let found = found.unwrap_or_default();
    eprintln!("{mutant:?}: {:.1?}: {found}", begin.elapsed());
    assert!(found.contains(words) && !found.is_empty(), "{mutant:?} was not caught, or not by {words:?}: {found}");
}

macro_rules! caught {
    ($($name:ident: $mutant:ident, $scenario:ident, $words:expr;)*) => {
        $(#[test]
        fn $name() {
            caught(Mutant::$mutant, scenarios::$scenario, $words);
        })*
    };
}

caught! {
    settles_without_look: SettlesWithoutLook, TWO_FAULTY, "";
    gives_up_with_turn: GivesUpWithTurn, GIVE_UPS, "";
    gives_up_with_hold: GivesUpWithHold, GIVE_UPS, "";
    nudges_without_mutex: NudgesWithoutMutex, GIVE_UPS, "deadlock";
    counts_from_hearing: CountsFromHearing, TWO_FAULTY, "";
    counts_from_reply: CountsFromReply, TWO_FAULTY, "";
    ignores_strangers: IgnoresStrangers, GIVE_UPS_FAULTY, "";
    extends_any_tenure: ExtendsAnyTenure, TWO_FAULTY, "";
    forgets_unanswered: ForgetsUnanswered, GIVE_UPS_FAULTY, "";
    forgets_waiting: ForgetsWaiting, GIVE_UPS, "";
    passes_on_what_is_lost: PassesOnWhatIsLost, TWO_FAULTY, "";
    drops_turn: DropsTurn, GIVE_UPS_FAULTY, "";
    drops_heard_grant: DropsHeardGrant, GIVE_UPS_FAULTY, "";
    passes_without_end: PassesWithoutEnd, TWO, "";
    takes_any_grant: TakesAnyGrant, GIVE_UPS_FAULTY, "";
    deaf_while_asking: DeafWhileAsking, TWO_FAULTY, "";
    keeps_unwanted: KeepsUnwanted, GIVE_UPS_FAULTY, "";
    forgets_next_locker: ForgetsNextLocker, TWO_FAULTY, "";
    forgets_retry_late: ForgetsRetryLate, GIVE_UPS, "";
    overhears_bell: OverhearsBell, TWO_FAULTY, "";
    leaves_without_gate: LeavesWithoutGate, CLOSING, "";
    enters_without_second_look: EntersWithoutSecondLook, CLOSING, "";
    parks_unregistered: ParksUnregistered, GIVE_UPS, "";
}
