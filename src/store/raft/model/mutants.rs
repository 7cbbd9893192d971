//! Mistakes that can be built into the protocol, one at a time. The scenarios must detect each of them.

use super::scenarios;
use crate::check::model::mutants::{FORGOTTEN, caught_each};

const LEFT: &[&str] = &["left in the store", "deadlock", "exceeded max_steps"];

/// With faults, the schedule decides what shows first: a waiter that waits for ever, or two holders of one lock.
const LEFT_OR_TWICE: &[&str] =
    &["left in the store", "deadlock", "exceeded max_steps", "holds what is not its own", "inside at once"];

caught_each! {
    gives_unchecked: GivesUnchecked, LEAVING, LEFT;
    believes_renewals: BelievesRenewals, TWO_FAULTY, LEFT_OR_TWICE;
    doubts_nothing: DoubtsNothing, TWO_FAULTY, LEFT_OR_TWICE;
    holds_what_is_forfeit: HoldsWhatIsForfeit, TWO_FAULTY, LEFT_OR_TWICE;
    hears_the_last: HearsTheLast, TWO, FORGOTTEN;
    gives_unsaid: GivesUnsaid, TWO, FORGOTTEN;
    frees_unlooked: FreesUnlooked, TWO, LEFT;
    leaves_the_queue_unlooked: LeavesTheQueueUnlooked, LEAVING, LEFT;
}
