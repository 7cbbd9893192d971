//! Mistakes, each built into the crate: the scenarios must find what it breaks.

use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    NudgesWithoutMutex,
    // Of the tests with real servers: tests/faults/mutants.rs.
    DeletesWithoutCompare,
    ExtendsWithoutCompare,
    AsksAnewWithoutAnswer,
    CountsFromReply,
    TokensStand,
}

std::thread_local! {
    static BUILT_IN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mistake is built in.
pub(crate) fn is(mutant: Mutant) -> bool {
    BUILT_IN.get() == Some(mutant)
}
