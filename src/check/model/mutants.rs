//! Mistakes, each built into the crate: the scenarios must find what it breaks.

use super::scenarios::{self, explore};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

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
    /// An extension counts for whatever tenure there is.
    ExtendsAnyTenure,
    /// A locker is forgotten when it is given up: its place in the store's queue, or its acquire that had no answer.
    ForgetsGivenUp,
    /// An acquire without an answer that is given up is released once.
    CleansUpOnce,
    /// A tenure is passed on or lingers whether it is lost or not.
    KeepsWhatIsLost,
    /// A tenure lingers, and nobody looks at its end.
    LingersUnwatched,
    /// A lingering tenure is taken up though others want it.
    TakesUpRecalled,
    /// A lingering tenure is kept though others want it.
    IgnoresRecall,
    /// A turn that leads to nothing is not passed on.
    DropsTurn,
    /// The lock is passed on in the process whoever waits outside.
    PassesWithoutEnd,
    /// A grant is taken for the locker that waits, whichever it names.
    TakesAnyGrant,
    /// A grant is not heard while a question is under way.
    DeafWhileAsking,
    /// A release is repeated, for a grant that was heard late, before it is answered.
    RepeatsAtOnce,
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
    /// The last hold ends the client, whoever has come to hold since.
    EndsByOldCount,
    /// A thread that has no place in the store's queue waits for a message.
    WaitsUnqueued,
    /// A waiting thread is unknown to its token.
    ParksUnregistered,
    /// A sleeper is unknown to the clock that is moved by hand.
    SleepsUnregistered,
    /// A worker is rung for without the mutex when the clock is moved.
    RingsWithoutMutex,
    /// A pause counts from the answer, though the clock was moved since the question.
    PausesFromAnswer,
    // Of the transport: redis/transport/model.
    /// Who stops reading appoints nobody.
    ReaderLeavesAlone,
    /// Who stops writing appoints nobody.
    WriterLeavesAlone,
    /// A caller that goes keeps the duty to write.
    DepartsWithDuty,
    /// The calls that were written to a broken connection are not told.
    FailsNobody,
    /// What a full connection did not take is forgotten.
    ForgetsBacklog,
    /// A caller that goes takes its place in the order with it.
    LeavesTheOrder,
    /// Later calls of a key may take another way as soon as the caller has gone.
    GivesPassageBackEarly,
    /// Posted calls that were not sent are not told of the closing.
    ForgetsPostedAtClose,
    /// Posted calls that a writer left behind wait for the next caller.
    LeavesPostedBehind,
    /// Who posts leaves those whose calls it wrote without a reader.
    PostsUnread,
    /// Who has written calls of others, but has none itself on that connection, leaves them without a reader.
    WritesUnread,
    /// Who reads does not look whether it has to write.
    ReadsOnInDuty,
    /// Who waits on one connection is appointed on another.
    WaitsTwice,
    /// Who has to write when its time is over appoints itself.
    AppointsItself,
    /// Who takes the role of writing over from one that gives way does not write.
    TakesOverAndLeaves,
    /// Who takes the role over because a posted call was left for long does not write.
    TakesLeftAndLeaves,
    /// Who looks for its answer in vain does not give the role of reading back.
    KeepsTheRole,
    /// A limit of zero breaks the connection.
    BreaksWithoutTime,
    /// Who posts leaves the writing to whoever writes, and goes on.
    PostsAndLeaves,
    /// Who writes goes when its own answer is there, although only calls are queued that their posters have left.
    LeavesLeftCalls,
    /// Who posts leaves its call to a writer that goes after one write.
    LeavesToOneWrite,
    /// A posted script that turns out unknown is queued again after those were woken whose answers came behind it.
    RepeatsLate,
    /// A panic of a connection keeps the role of writing.
    KeepsRoleInPanic,
    /// A caller connects within its own time, and throws a half-made connection away.
    ThrowsConnectsAway,
    /// A caller that goes takes the connect with it that it has waited for.
    TakesConnectAlong,
    /// Callers that wait for a connect are not told of its end.
    ConnectsUnheard,
    /// Nobody waits for the callbacks that a thread runs whose connect has ended.
    LeavesTellersBehind,
    // Of the tests with real servers: tests/faults/mutants.rs.
    DeletesWithoutCompare,
    ExtendsWithoutCompare,
    AsksAnewWithoutAnswer,
    TokensStand,
    TakesDenialForLoss,
    GivesUpWhenDenied,
}

std::thread_local! {
    static BUILT_IN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mistake is built in.
pub(crate) fn is(mutant: Mutant) -> bool {
    BUILT_IN.get() == Some(mutant)
}

/// Neither a lost thread nor time that goes on without end is an error of shuttle's own: what it says of them.
pub(crate) const FORGOTTEN: &[&str] = &["deadlock", "exceeded max_steps", "time goes on and on"];

/// Expects that executions fail with the mistake, and with some of these words.
pub(crate) fn caught(mutant: Mutant, play: impl Fn() + Copy + Send + Sync + 'static, words: &[&str]) {
    const ROUND: usize = 500;
    let begin = Instant::now();
    BUILT_IN.set(Some(mutant));
    // Some mistakes show by chance sooner, some by priorities. The slowest takes some 40 rounds, by chance up to 160.
    let found = (0..1000).find_map(|round| {
        let ran = catch_unwind(AssertUnwindSafe(|| match round % 2 {
            0 => explore(PctScheduler::new(4, ROUND), play),
            _ => explore(RandomScheduler::new(ROUND), play),
        }));
        ran.err().map(|panic| match panic.downcast::<String>() {
            Ok(text) => (round, *text),
            Err(panic) => (round, panic.downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default()),
        })
    });
    BUILT_IN.set(None);
    let (round, text) = found.unwrap_or_default();
    eprintln!("{mutant:?}: round {round}, {:.1?}: {text:.300}", begin.elapsed());
    assert!(
        words.iter().any(|words| text.contains(words)),
        "{mutant:?} was not caught, or not by {words:?}: {text:.2000}"
    );
}

/// A test for each mistake: which one, the scenario (of the `scenarios` in scope) that finds it, and by which words.
macro_rules! caught {
    ($($name:ident: $mutant:ident, $scenario:ident, $words:expr;)*) => {
        $(#[test]
        fn $name() {
            $crate::check::model::mutants::caught(
                $crate::check::model::mutants::Mutant::$mutant,
                || scenarios::$scenario.play(),
                $words,
            );
        })*
    };
}

pub(crate) use caught as caught_each;

/// Two inside, or about to be.
const TWO_INSIDE: &[&str] = &["inside at once", "has token", "cause: TakenOver", "cause: Deleted"];

const LEFT: &[&str] = &["left in the store", "closed in", "never at rest"];

caught! {
    settles_without_look: SettlesWithoutLook, TWO, &["waits for what it was given"];
    gives_up_with_turn: GivesUpWithTurn, GIVE_UPS_ASKING, &["left in the store", "closed in", "never at rest", "on and on", "deadlock"];
    gives_up_with_hold: GivesUpWithHold, GIVE_UPS, &["closed in", "without a guard", "on and on", "max_steps"];
    waits_unqueued: WaitsUnqueued, TWO, FORGOTTEN;
    nudges_without_mutex: NudgesWithoutMutex, CANCELLING, FORGOTTEN;
    counts_from_hearing: CountsFromHearing, TWO_FAULTY, TWO_INSIDE;
    counts_from_reply: CountsFromReply, TWO_FAULTY, TWO_INSIDE;
    extends_any_tenure: ExtendsAnyTenure, PROBING, TWO_INSIDE;
    forgets_unanswered: ForgetsGivenUp, GIVE_UPS_ASKING_FAULTY, LEFT;
    forgets_waiting: ForgetsGivenUp, GIVE_UPS, LEFT;
    cleans_up_once: CleansUpOnce, GIVE_UPS_ASKING_FAULTY, LEFT;
    keeps_what_is_lost: KeepsWhatIsLost, PASSING_FAULTY, &["is valid again", "valid: false, unlocking: Some(Ok"];
    drops_turn: DropsTurn, GIVE_UPS_FAULTY, &["deadlock", "never at rest", "closed in"];
    passes_without_end: PassesWithoutEnd, CONTENDED, &["without end"];
    takes_any_grant: TakesAnyGrant, RETURNING, TWO_INSIDE;
    deaf_while_asking: DeafWhileAsking, TWO_FAULTY, &["waits for what it was given", "inside at once", "cause: TakenOver", "has token"];
    repeats_at_once: RepeatsAtOnce, PAIR, &["cause: TakenOver", "cause: Deleted"];
    keeps_unwanted: KeepsUnwanted, GIVE_UPS_ASKING, LEFT;
    forgets_next_locker: ForgetsNextLocker, TWO_FAULTY, TWO_INSIDE;
    forgets_retry_late: ForgetsRetryLate, CROSSING, FORGOTTEN;
    overhears_bell: OverhearsBell, TWO_FAULTY, FORGOTTEN;
    leaves_without_gate: LeavesWithoutGate, CLOSING, FORGOTTEN;
    enters_without_second_look: EntersWithoutSecondLook, ENTERING, &["ShutDown"];
    ends_by_old_count: EndsByOldCount, CLOSING_ASKING, &["ShutDown"];
    parks_unregistered: ParksUnregistered, CANCELLING, FORGOTTEN;
    lingers_unwatched: LingersUnwatched, LINGERING_FAULTY, LEFT;
    takes_up_recalled: TakesUpRecalled, LINGERING, &["given back"];
    ignores_recall: IgnoresRecall, LINGERING, FORGOTTEN;
}
