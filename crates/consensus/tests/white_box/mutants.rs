//! Mistakes that can be built into the protocol, one at a time. The scenarios must detect each of them.

use super::explorer::failure;
use super::scenarios::*;
use super::shared;
use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A key is given to a waiter without a check that it still waits.
    GivesUnchecked,
    /// A request without an answer leaves no doubt.
    DoubtsNothing,
    /// A waiter is given the key, and not told.
    GivesUnsaid,
    /// A tenure holds the key although a request without an answer may take it away.
    HoldsWhatIsDoomed,
    /// A client that hears several messages as one takes it for all of them.
    HearsTheLast,
    /// A key is freed without a look at those who wait.
    FreesUnlooked,
    /// Whoever knows whom to give a key takes a refusal for a gift.
    GivesToTheFirstAnyway,
    /// A waiter leaves the queue, and does not look whether it has been given the key.
    LeavesTheQueueUnlooked,
    /// A session is believed to have ended because a renewal says so.
    BelievesRenewals,
    /// The same of a renewal among others.
    BelievesRenewalsOfMany,
    /// A break takes the key from whoever holds it by then.
    BreaksWhoever,
    /// A delayed release that is repeated does not know its mark.
    ForgetsTheMark,
    /// A waiter that asks takes an offer for a hold.
    BelievesOffers,
    /// An offer is confirmed without a check that nothing has changed since.
    ConfirmsUnchecked,
    /// A waiter is passed over without a check that it has not confirmed.
    PassesOverUnchecked,
    /// A request about one of several holds that share a session is settled by the end of that session.
    EndsTheShared,
    /// A hold that was moved by a request without an answer is believed to be where it was.
    ForgetsTheMove,
    /// Whatever takes a key from a session that many share checks the session alone.
    FreesWhatIsShared,
    /// Holds stay with a session of which one is not extended any more.
    KeepsTheRetired,
    /// A waiter that does not confirm is not passed over.
    WaitsForTheDead,
    /// An extension does not renew its session. `tests/faults` finds it.
    RenewsNothing,
    /// The session of a request without an answer goes on. `tests/faults` finds it.
    LeavesSessions,
}

std::thread_local! {
    static BUILT_IN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mistake is built in.
pub(crate) fn is(mutant: Mutant) -> bool {
    BUILT_IN.get() == Some(mutant)
}

/// The words by which shuttle reports a forgotten client.
const FORGOTTEN: &[&str] = &["deadlock", "exceeded max_steps"];

const LEFT: &[&str] = &["left in the store", "deadlock", "exceeded max_steps"];

/// With faults, the schedule decides what shows first: a waiter that waits for ever, or two holders of one lock,
/// or that the token of the second one is smaller.
const LEFT_OR_TWICE: &[&str] = &[
    "left in the store",
    "deadlock",
    "exceeded max_steps",
    "holds what is not its own",
    "is told of a hold",
    "inside at once",
    "has token",
];

/// Checks that some execution fails with this mistake and with one of these words.
fn caught(mutant: Mutant, play: impl Fn() + Copy + Send + Sync + 'static, words: &[&str]) {
    BUILT_IN.set(Some(mutant));
    let found = failure(play, words);
    BUILT_IN.set(None);
    found.unwrap_or_else(|why| panic!("{mutant:?} is {why}"));
}

/// Defines a test for each mistake: its name, the scenario that finds it, and the words to expect.
macro_rules! caught_each {
    ($($name:ident: $mutant:ident, $play:expr, $words:expr;)*) => {
        $(#[test]
        fn $name() {
            caught(Mutant::$mutant, $play, $words);
        })*
    };
}

caught_each! {
    ends_the_shared: EndsTheShared, shared::releases, &["is lost"];
    forgets_the_move: ForgetsTheMove, shared::moves, &["is lost", "is not free"];
    frees_what_is_shared: FreesWhatIsShared, shared::releases, &["is lost"];
    keeps_the_retired: KeepsTheRetired, shared::retires, &["it is renewed for ever"];
    gives_unchecked: GivesUnchecked, || LEAVING.play(), LEFT;
    believes_renewals: BelievesRenewals, || TWO_FAULTY.play(), LEFT_OR_TWICE;
    believes_renewals_of_many: BelievesRenewalsOfMany, || TWO_FAULTY.play(), LEFT_OR_TWICE;
    doubts_nothing: DoubtsNothing, || TWO_FAULTY.play(), LEFT_OR_TWICE;
    holds_what_is_doomed: HoldsWhatIsDoomed, || TWO_FAULTY.play(), LEFT_OR_TWICE;
    hears_the_last: HearsTheLast, || TWO.play(), FORGOTTEN;
    gives_unsaid: GivesUnsaid, || TWO.play(), FORGOTTEN;
    frees_unlooked: FreesUnlooked, || TWO.play(), LEFT;
    gives_to_the_first_anyway: GivesToTheFirstAnyway, || LEAVING.play(), LEFT;
    breaks_whoever: BreaksWhoever, || BROKEN.play(), LEFT_OR_TWICE;
    forgets_the_mark: ForgetsTheMark, || DELAYED.faulty(2).play(), &["a delayed release finds"];
    leaves_the_queue_unlooked: LeavesTheQueueUnlooked, || LEAVING.play(), LEFT;
    believes_offers: BelievesOffers, || DYING.play(), LEFT_OR_TWICE;
    confirms_unchecked: ConfirmsUnchecked, || CONFIRMING.play(), LEFT_OR_TWICE;
    passes_over_unchecked: PassesOverUnchecked, || DYING.play(), LEFT_OR_TWICE;
    waits_for_the_dead: WaitsForTheDead, || DYING.play(), FORGOTTEN;
}
