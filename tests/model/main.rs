//! An exhaustive model of the protocol between processes: every order in which clients, network and server can act.
//!
//! The server runs the crate's specification of the scripts ([`spec`]). The embedded store runs it, too, so the
//! conformance suite holds it against the scripts. The rules of a client are written down once more, small enough that a model checker
//! ([`search`]) can visit every state within the bounds below. So the model tests the *protocol*. The other tests show that the
//! scripts and the crate follow it.
//!
//! # What is modelled
//!
//! | part | state | in |
//! |---|---|---|
//! | server | the specification's state of a key: the holder (locker, ticks left), the queue (lockers, ticks left), the mark for unheard waiters that keep their places (ticks left, how many), the gap for pollers (ticks left); the fence; the four commands of a plain attempt | `server` |
//! | client | what it wants, has or gives back, how much of its lease is left by its own clock, its clean-up list | `client`, `answers` |
//! | network | for each client a connection with commands and replies in order, dropped connections whose commands are still to come, an inbox with messages under way | `client`, `world` |
//! | time | ticks, for everybody at once; a lease is 1 to 3 of them. All times are kept as what is left, so time has no end | `world` |
//!
//! # What can happen
//!
//! At any moment, one of these ([`world::Action`]):
//!
//! * *a client acts*: sends an acquire (with or without waiting; by the script, or by the four commands of a plain attempt, which the server
//!   executes one by one), polls, gives up, extends, probes, unlocks (with a next locker or without, or with a delayed release), releases an
//!   entry of its clean-up list, opens its inbox again. None of it is ever due: a client that does not act is a stopped one;
//! * *the network acts*: the server executes the next command of some connection, a dropped one too, whatever has become of
//!   its client; a reply or a message arrives;
//! * *a fault*, as many as the bounds allow: a connection is given up, with what was not yet executed lost, or late (so
//!   replies are lost, and time-outs happen); a process ends; a message is lost; an inbox loses its connection, or all do;
//!   the server's clock is stepped back; where the model has a fine clock, FLUSHALL and a fail-over to a master without the
//!   last writes; in one model, a deleted key;
//! * *a refused command* is a fault, too, where the model has it: in one script, one call is refused, or all from one on. So is a script
//!   that raises an error at one of its calls, or at its message: what it did before stands;
//! * *an operator* sees who holds the key, and orders a forced break of that hold, as many as the bounds allow; the server executes the order at
//!   any later moment;
//! * *a gap becomes due*, as many as the bounds allow: the next release of a holder leaves the key free for a tick;
//! * *a tick*.
//!
//! # What must hold
//!
//! In every state that can be reached ([`checker`]) S1 to S6, L1 and L2 of ARCHITECTURE.md hold. Besides:
//!
//! * S1: where a hold was broken by force, its client may believe in it until it is told, and is not counted. Its message is not modelled: a
//!   probe, an extension or its release tells it. A waiter that was broken before it hears of its grant may begin a hold with a number that is
//!   smaller than another one's (S2).
//! * S1: the server keeps a key for its holder's lease and the lock-delay.
//! * S3: once a client has sent a delayed release, no command makes the key free, or gives it to anybody, before the delay is over, whatever
//!   becomes of the replies and of late messages of a grant. The end of the lease may, if no delayed release has come until then.
//! * S2: where the fence is lost, so is the key, and only the numbers that are issued are looked at. Where the key is
//!   deleted, of two holds the one that was given the key later has the greater number.
//! * S4: a waiter that nobody hears keeps its place for a tick or two after it is passed over. Once it has had its time, a hand-over
//!   drops it ([`places`]).
//! * S5 is looked at for plain attempts; the model's server has one script for all else.
//! * L1: a waiter does *not wait for a lease to end*, but for the leases that the protocol leaves to their end: see
//!   [`settle`].
//!
//! For L1 and L2 the checker plays one fair schedule without faults to its end, from *each* state in which nothing is under way. From any
//! other state such a state is reached by arrivals alone, which are steps of the model. This shows that a good end can always be
//! reached, not that no schedule avoids it for ever.
//!
//! # Bounds
//!
//! *Lockers* is how many each client sends for the first time, so how often it locks. *Faults* are in all. *Under way* is how
//! many commands a client has on one connection. Each model is explored completely.
//!
//! | model | lockers | lease | faults | under way | besides | states |
//! |---|---|---|---|---|---|---|
//! | two once, two faults | 1, 1 | 2 | 2 of any kind | 2 | no extends but for confirming | 838,000 |
//! | two once, everything | 1, 1 | 2 | 1 of any kind | 2 | acquires that do not wait; probes | 484,000 |
//! | two once, lease of 3 | 1, 1 | 3 | 1 of any kind | 2 |  | 649,000 |
//! | two once, lock-delay | 1, 1 | 2 | 1 of any kind | 2 | a lock-delay of a tick, no extends but for confirming | 342,000 |
//! | two twice, lock-delay | 2, 2 | 2 | 1 crash | 1 | a lock-delay of a tick, no extends but for confirming | 229,000 |
//! | two once, break | 1, 1 | 2 | 1 of any kind | 2 | one forced break, no extends but for confirming | 1,024,000 |
//! | two twice, break | 2, 2 | 2 | none | 1 | one forced break, no extends but for confirming | 951,000 |
//! | three, breaks | 1, 1, 1 | 1 | none | 1 | two forced breaks, no extends but for confirming | 1,423,000 |
//! | three, break, messages | 1, 1, 1 | 1 | 1 lost message or deaf inbox | 1 | one forced break, no extends but for confirming | 1,798,000 |
//! | two once, delays | 1, 1 | 2 | 1 of any kind | 2 | delayed releases of 3 ticks, no extends but for confirming | 279,000 |
//! | two twice, delays | 2, 2 | 2 | none | 1 | delayed releases of 3 ticks, no extends but for confirming | 268,000 |
//! | three, delay and drops | 1, 1, 1 | 1 | 1 dropped connection | 1 | delayed releases of 2 ticks, no extends but for confirming | 784,000 |
//! | two twice, no faults | 2, 2 | 2 | none | 1 |  | 138,000 |
//! | two twice, drops | 2, 1 | 2 | 1 dropped connection | 1 | no extends but for confirming | 914,000 |
//! | two twice, messages | 2, 2 | 2 | 1 lost message or deaf inbox | 1 | no extends but for confirming | 448,000 |
//! | two twice, crashes | 2, 2 | 2 | 1 crash | 1 | no extends but for confirming | 137,000 |
//! | two twice, gaps | 2, 2 | 2 | none | 1 | two gaps, no extends but for confirming | 676,000 |
//! | two once, gaps | 1, 1 | 2 | 1 of any kind | 1 | two gaps | 120,000 |
//! | three, gap and drops | 1, 1, 1 | 1 | 1 dropped connection | 1 | one gap, no extends but for confirming | 1,269,000 |
//! | two twice, PUBLISH denied | 2, 2 | 2 | none | 1 | every message is lost | 29,000 |
//! | three, drops | 1, 1, 1 | 1 | 1 dropped connection | 1 | no extends but for confirming | 494,000 |
//! | three, messages | 1, 1, 1 | 2 | 1 lost message or deaf inbox | 1 | no extends but for confirming | 1,108,000 |
//! | three, crashes | 1, 1, 1 | 2 | 1 crash | 1 | no extends but for confirming | 312,000 |
//! | two once, plain | 1, 1 | 2 | 1 of any kind | 2 | plain attempts, no extends but for confirming | 864,000 |
//! | two twice, plain | 2, 2 | 2 | none | 1 | plain attempts, no extends but for confirming | 743,000 |
//! | two once, plain, gaps | 1, 1 | 2 | 1 of any kind | 1 | plain attempts, two gaps, no extends but for confirming | 735,000 |
//! | three, plain | 1, 1, 1 | 1 | none | 1 | plain attempts, no extends but for confirming | 520,000 |
//! | two, plain, deleted key | 1, 1 | 2 | 1 deleted key | 1 | plain attempts, no extends but for confirming | 232,000 |
//! | two twice, plain, lost fence | 2, 1 | 2 | 2 of FLUSHALL, fail-over | 1 | plain attempts under a proof that lasts a tick, else as below | 3,063,000 |
//! | two twice, refusals | 2, 1 | 2 | 1 refused command | 1 | no extends but for confirming | 332,000 |
//! | three, refusals | 1, 1, 1 | 1 | 1 refused command | 1 | no extends but for confirming | 298,000 |
//! | two twice, lost fence | 2, 1 | 2 | 2 of FLUSHALL, fail-over | 1 | two ticks, numbers by a fine clock, no next lockers | 1,983,000 |
//! | two twice, unheard | 2, 1 | 2 | 2 of lost message, deaf inbox, clock that steps back | 1 | places kept for 2 ticks, no extends but for confirming | 278,000 |
//! | three, all unheard | 1, 1, 1 | 2 | 1 that closes all inboxes | 1 | no extends but for confirming | 2,132,000 |
//! | three, unheard, refusals | 1, 1, 1 | 1 | 2 of refused command, all inboxes closed | 1 | no extends but for confirming | 3,050,000 |
//! | two twice, raised | 2, 1 | 2 | 1 script that raises | 1 | no extends but for confirming | 380,000 |
//! | three, raised | 1, 1, 1 | 1 | 1 script that raises | 1 | no extends but for confirming | 355,000 |
//! | two once, heard late | 1, 1 | 2 | 1 of any kind | 1 | clients that hear late | 116,000 |
//! | two twice, heard late | 2, 2 | 2 | 1 lost message or deaf inbox | 1 | clients that hear late, no extends but for confirming | 610,000 |
//! | three, heard late | 1, 1, 1 | 1 | 1 lost message or deaf inbox | 1 | clients that hear late, no extends but for confirming | 613,000 |
//!
//! Elsewhere, places are kept for a tick. *Clients that hear late* are those of a Cluster: at first they hear nothing, and subscribe when a key is
//! busy. Their first acquire does not wait. One that finds the key busy leaves nothing behind, and is followed by a second one, which waits if the
//! client hears by then. Here it has the same locker, and the crate takes a fresh one, so more can go wrong here.
//!
//! Together 31.0 million states, about a minute and a half of processor time. Each model has a thread of its own. A locker more in "two twice,
//! drops", or a fault more anywhere but in the smallest, makes a model several times as large. Each mistake in [`mutants`] shows within
//! these bounds.
//!
//! # What is not modelled
//!
//! * Threads: what happens inside a client, local passing, ranges of numbers, reentry. A client is its tenures.
//! * `contended`, and lingering, which it ends: a holder may unlock at any moment here, so it may also do so because of a
//!   message, or without one.
//! * Leases of different lengths, clocks of different speed (the slack of a deadline is for these). Of clocks that step back: all but the
//!   time for which unheard waiters keep their places.
//! * Errors that mean "not executed", foreign types, memory limits. Of refused calls: the ones that only read, and the ones that make a
//!   gap (`tests/it/denied` refuses each call of each script to a real server).
//! * Replies are not lost singly but with their connection; of a dropped connection either all or nothing comes late (what
//!   comes very late is as good as lost).
//! * A loss of data other than a lost fence or a deleted key: then two can hold, whatever the protocol, and tokens are what protects.
//! * Nodes and slots of a Cluster, several keys, JVM clients: nobody takes the key in a gap, and the rate of gaps is not looked at.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod answers;
mod around;
mod checker;
mod client;
mod list;
mod mutants;
mod normal;
mod places;
mod rules;
mod search;
mod server;
mod settle;
#[allow(dead_code, reason = "the embedded store uses all of it")]
#[path = "../../src/store/memory/spec/mod.rs"]
mod spec;
mod world;

use rules::{DELETED, FENCE, ONCE, PAIR, Rules, TRIO};
use search::Search;
use std::time::Instant;

/// Explores the model completely, and expects that all properties hold.
fn holds(name: &str, rules: Rules) {
    let begin = Instant::now();
    let Search { states, steps, wrong } = Search::new(&rules, |world| rules.broken(world).next().is_some());
    println!("{name}: {states} states, {steps} steps, {:.1?}", begin.elapsed());
    if let Some((actions, last)) = wrong {
        panic!("not so: {:?}\n{actions:#?}\nleads to {last:#?}", rules.broken(&last).collect::<Vec<_>>());
    }
}

/// Makes a test of each model: what the table above calls it, and its rules.
macro_rules! holds {
    ($($(#[$comment:meta])* $name:ident: $model:expr, $rules:expr;)*) => {
        $(
            $(#[$comment])*
            #[test]
            fn $name() {
                holds($model, $rules);
            }
        )*
    };
}

holds! {
    two_once_with_two_faults: "two once, two faults", Rules { faults: 2, under_way: 2, extends: false, ..ONCE };
    two_once_with_everything: "two once, everything", Rules { under_way: 2, tries: true, probes: true, ..ONCE };
    two_once_with_a_finer_clock: "two once, lease of 3", Rules { under_way: 2, lease: 3, ..ONCE };
    two_once_with_a_lock_delay: "two once, lock-delay", Rules { delay: 1, under_way: 2, extends: false, ..ONCE };
    two_twice_with_a_lock_delay_and_a_crash:
        "two twice, lock-delay", Rules { delay: 1, drops: false, deafness: false, extends: false, ..PAIR };
    two_once_with_a_break_and_a_fault: "two once, break", Rules { breaks: 1, under_way: 2, extends: false, ..ONCE };
    two_twice_with_a_break: "two twice, break", Rules { breaks: 1, faults: 0, extends: false, ..PAIR };
    three_with_breaks: "three, breaks", Rules { breaks: 2, faults: 0, lease: 1, ..TRIO };
    three_with_a_break_and_a_lost_message:
        "three, break, messages", Rules { breaks: 1, crashes: false, drops: false, lease: 1, ..TRIO };
    two_once_with_delays_and_a_fault: "two once, delays", Rules { delayed: 3, under_way: 2, extends: false, ..ONCE };
    two_twice_with_delays: "two twice, delays", Rules { delayed: 3, faults: 0, extends: false, ..PAIR };
    three_with_a_delay_and_a_dropped_connection:
        "three, delay and drops", Rules { delayed: 2, crashes: false, deafness: false, lease: 1, ..TRIO };
    two_twice_without_faults: "two twice, no faults", Rules { faults: 0, ..PAIR };
    two_twice_with_a_dropped_connection:
        "two twice, drops",
        Rules {
            crashes: false, deafness: false, extends: false, lockers: &[2, 1], alike: false, ..PAIR
        };
    two_twice_with_a_lost_message:
        "two twice, messages", Rules { crashes: false, drops: false, extends: false, ..PAIR };
    two_twice_with_a_crash: "two twice, crashes", Rules { drops: false, deafness: false, extends: false, ..PAIR };
    two_twice_with_gaps: "two twice, gaps", Rules { faults: 0, gaps: 2, extends: false, ..PAIR };
    two_once_with_gaps_and_a_fault: "two once, gaps", Rules { gaps: 2, ..ONCE };
    three_with_a_gap_and_a_dropped_connection:
        "three, gap and drops", Rules { crashes: false, deafness: false, lease: 1, gaps: 1, ..TRIO };
    two_twice_with_a_refused_command:
        "two twice, refusals",
        Rules {
            refusals: true, crashes: false, drops: false, deafness: false, extends: false, lockers: &[2, 1],
            alike: false, ..PAIR
        };
    two_twice_with_inboxes_that_close_and_a_clock_that_steps_back:
        "two twice, unheard",
        Rules {
            keep: 2, faults: 2, steps_back: true, crashes: false, drops: false, extends: false,
            lockers: &[2, 1], alike: false, ..PAIR
        };
    three_that_are_all_unheard_at_once:
        "three, all unheard", Rules { all_deaf: true, crashes: false, drops: false, deafness: false, ..TRIO };
    three_with_a_refused_command_while_all_are_unheard:
        "three, unheard, refusals",
        Rules {
            all_deaf: true, refusals: true, faults: 2, crashes: false, drops: false, deafness: false, lease: 1,
            ..TRIO
        };
    three_with_a_refused_command:
        "three, refusals", Rules { refusals: true, crashes: false, drops: false, deafness: false, lease: 1, ..TRIO };
    two_twice_without_messages: "two twice, PUBLISH denied", Rules { faults: 0, publish: false, ..PAIR };
    three_with_a_dropped_connection: "three, drops", Rules { crashes: false, deafness: false, lease: 1, ..TRIO };
    three_with_a_lost_message: "three, messages", Rules { crashes: false, drops: false, ..TRIO };
    three_with_a_crash: "three, crashes", Rules { drops: false, deafness: false, ..TRIO };
    two_twice_with_a_lost_fence: "two twice, lost fence", FENCE;
    two_once_plainly: "two once, plain", Rules { plain: true, under_way: 2, extends: false, ..ONCE };
    two_twice_plainly: "two twice, plain", Rules { plain: true, faults: 0, extends: false, ..PAIR };
    two_once_plainly_with_gaps: "two once, plain, gaps", Rules { plain: true, gaps: 2, extends: false, ..ONCE };
    three_plainly: "three, plain", Rules { plain: true, faults: 0, lease: 1, ..TRIO };
    two_twice_plainly_with_a_lost_fence: "two twice, plain, lost fence", Rules { plain: true, ..FENCE };
    two_plainly_with_a_deleted_key: "two, plain, deleted key", DELETED;
    two_twice_with_a_script_that_raises:
        "two twice, raised",
        Rules {
            raises: true, crashes: false, drops: false, deafness: false, extends: false, lockers: &[2, 1],
            alike: false, ..PAIR
        };
    three_with_a_script_that_raises:
        "three, raised", Rules { raises: true, crashes: false, drops: false, deafness: false, lease: 1, ..TRIO };
    two_once_that_hear_late: "two once, heard late", Rules { hears_late: true, ..ONCE };
    two_twice_that_hear_late_with_a_lost_message:
        "two twice, heard late", Rules { hears_late: true, crashes: false, drops: false, extends: false, ..PAIR };
    three_that_hear_late_with_a_lost_message:
        "three, heard late", Rules { hears_late: true, crashes: false, drops: false, lease: 1, ..TRIO };
}
