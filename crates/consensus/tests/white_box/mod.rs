//! Explores how the requests of several clients to a consensus store fall between one another. It runs the crate's own protocol
//! ([`ConsensusStore`](crate::store::ConsensusStore)) under the scheduler [`shuttle`], which runs one thread at a time and chooses at each use of a mutex, and
//! at each request, which one goes on.
//!
//! | part | is | in |
//! |---|---|---|
//! | the store | entries, sessions and transactions in memory, as etcd has them or as Consul has them. Each request is one step; before it and after it all others may act. Requests are refused, lost before or after their execution, or executed after their caller has its error | `servers` |
//! | the operator | ends a session now and then, whoever has it; or breaks a hold that it has seen | `servers`, `client` |
//! | a client | a few tenures, one after another: it takes the key or its place, waits, holds, and releases or hands over. It gives up now and then, or dies while it waits. It goes by its messages, and asks only when it may have missed one. What has no answer it ends for certain | `client` |
//! | messages | an inbox keeps the last one, so a client may see several as one. In two scenarios it confirms on a thread of its own, while the client asks | `servers`, `client` |
//!
//! What must hold: G1 (no two are inside, but for those whose session was ended, or whose hold was broken), G7 (the numbers of holds rise), L2
//! (nothing is left in the end), and L1 (whoever waits gets the key, by messages alone). A client that is forgotten is a deadlock.

/// Makes a test of each row: its name, what it plays, and under how many schedules.
macro_rules! played {
    ($($name:ident: $play:expr, $schedules:expr;)*) => {
        $(#[test]
        fn $name() {
            shuttle::check_random($play, $schedules);
        })*
    };
}

mod anew;
mod client;
#[path = "../../../../tests/white_box/check/model/explorer.rs"]
mod explorer;
mod first;
#[path = "../../../../tests/white_box/check/model/journal.rs"]
mod journal;
#[cfg(dlock_mutants)]
pub(crate) mod mutants;
mod offers;
mod scenarios;
mod servers;
mod shared;
