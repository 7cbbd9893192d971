//! Lockers and sessions that begin anew while another thread asks about them, and a waiter that asks about its own client.

use super::explorer::explore;
use super::servers::Servers;
use crate::names::Names;
use crate::store::ConsensusStore;
use redis_dlock::port::{AcquireOutcome, Break, BreakOutcome, Claim, Operations, ProbeOutcome, ReleaseOutcome};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::PctScheduler;
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

fn store(servers: &Servers) -> ConsensusStore {
    ConsensusStore::new(Arc::new(servers.clone()), "dlock/")
}

fn claim(locker: &str) -> Claim<'_> {
    Claim::new("k", &locker[..1], locker, LONG)
}

/// A locker takes a free key over a waiter that leaves, and takes it again with another session. An operator has seen the first of these holds.
fn takes_it_again() {
    let servers = Servers::new(0, true);
    let (a, h, x) = (store(&servers), store(&servers), store(&servers));
    h.acquire(&claim("h-1"), LONG).expect("an answer");
    x.join(&claim("x-1"), LONG).expect("an answer");
    servers.expire(&Names::new("dlock/").lock("k"));
    let leaves = thread::spawn(move || x.release(&claim("x-1"), LONG).expect("an answer"));
    let takes = thread::spawn(move || a.acquire(&claim("a-1"), LONG).expect("an answer"));
    for _ in 0..5 {
        match store(&servers).break_hold(&Break::new("k", "a-1", "operator-1", "it hangs"), LONG).expect("an answer") {
            BreakOutcome::NotHeldBy { holder } => assert_ne!(holder.as_deref(), Some("a-1"), "it holds the key"),
            _ => break,
        }
    }
    leaves.join().expect("an answer");
    takes.join().expect("an answer");
}

/// A locker hands a key over to the next one, which goes on with its session, and leaves it to a hold of another key. Meanwhile a thread extends the
/// first one, and a server that has just begun to lead does not know the session.
fn passes_its_session() {
    let servers = Servers::new(2, false);
    let a = Arc::new(store(&servers));
    let is_held = matches!(a.acquire(&claim("a-1"), LONG), Ok(AcquireOutcome::Acquired(_)));
    let extends = {
        let a = Arc::clone(&a);
        thread::spawn(move || drop(a.extend(&claim("a-1"), LONG)))
    };
    if !is_held {
        // The scheduler refuses a scene in whose first execution two threads are never at work at once.
        thread::yield_now();
        return extends.join().expect("an answer or none");
    }
    let [next, other] = [("k", "a-2"), ("other", "a-3")].map(|(key, locker)| Claim::new(key, "a", locker, LONG));
    let mut last = matches!(a.hand_over(&claim("a-1"), &next, LONG), Ok(ReleaseOutcome::Passed(_))).then_some(&next);
    if last.is_some() && thread_rng().gen_bool(0.5) {
        let is_left = matches!(a.release(&next, LONG), Ok(ReleaseOutcome::Released { .. }));
        let takes = || matches!(a.acquire(&other, LONG), Ok(AcquireOutcome::Acquired(_)));
        last = (is_left && takes()).then_some(&other);
    }
    extends.join().expect("an answer or none");
    if let Some(last) = last {
        let probed = a.probe(last, LONG).expect("an answer");
        assert!(matches!(probed, ProbeOutcome::Ours), "{} is lost: {probed:?}", last.key);
    }
}

/// A waiter asks about an earlier hold of its own client, and so writes itself that somebody waits. In the model that is no reason to ask again.
fn asks_about_its_own_client() {
    let servers = Servers::new(0, false);
    let (a, inbox) = (store(&servers), Names::new("dlock/").inbox("a"));
    a.acquire(&claim("a-1"), LONG).expect("an answer");
    a.join(&claim("a-2"), LONG).expect("an answer");
    let (seen, _) = servers.wait(&inbox, 0);
    a.poll(&claim("a-2"), LONG).expect("an answer");
    let (_, asks) = servers.wait(&inbox, seen);
    assert!(!asks, "it asks for ever");
}

played! {
    a_waiter_for_its_own_client_does_not_ask_for_ever: asks_about_its_own_client, 20;
    a_hold_that_is_taken_again_is_broken: takes_it_again, 10_000;
}

#[test]
fn a_session_with_which_the_next_locker_goes_on_is_not_ended() {
    explore(PctScheduler::new(3, 5000), passes_its_session);
}
