//! Many threads at once.

use crate::suite::{Client, Suite};
use redis_dlock::port::{AcquireOutcome, Message, PollOutcome, ReleaseOutcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const THREADS: u64 = 4;
const ROUNDS: u64 = 100;

/// What the lock protects. Atomics, so that a failure is an assertion and nothing worse.
#[derive(Default)]
struct Protected {
    inside: AtomicU64,
    entries: AtomicU64,
    last_number: AtomicU64,
}

impl Protected {
    fn enter(&self, number: u64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "somebody is inside");
        let before = self.last_number.swap(number, Ordering::SeqCst);
        assert!(number > before, "{number} after {before}");
        thread::yield_now();
        self.entries.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Shows: G1, G7, L2.
pub(crate) fn exclude_one_another(suite: &Suite) {
    let protected = Protected::default();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| enter_often(&suite.client(), &protected));
        }
    });
    assert_eq!(protected.entries.into_inner(), THREADS * ROUNDS);
    assert_eq!(suite.store().leftovers(), [""; 0]);
}

/// One client: waits for its grant by message, and asks when none comes; every other round it releases with a next
/// locker and goes on with that.
fn enter_often(client: &Client<'_>, protected: &Protected) {
    let mut inbox = client.listen();
    let mut tenure = client.tenure("k");
    let mut held = match tenure.ask(true) {
        AcquireOutcome::Acquired(grant) => Some(grant.number),
        _ => None,
    };
    for round in 1..=ROUNDS {
        while held.is_none() {
            held = match inbox.hear_within(Duration::from_millis(100)) {
                Some(Message::Granted { locker, grant, .. }) if locker == tenure.locker => Some(grant.number),
                Some(_) => None,
                None => match tenure.poll() {
                    PollOutcome::Acquired(grant) => Some(grant.number),
                    PollOutcome::Waiting(_) => None,
                    other => panic!("{tenure:?} is alive: {other:?}"),
                },
            };
        }
        protected.enter(held.take().unwrap());
        if round == ROUNDS {
            assert!(matches!(tenure.release(), ReleaseOutcome::Released { .. }));
            return;
        }
        let next = client.tenure("k");
        held = if round % 2 == 0 {
            match tenure.release_to(&next) {
                ReleaseOutcome::Passed(grant) => Some(grant.number),
                ReleaseOutcome::Queued(_) => None,
                other => panic!("{other:?}"),
            }
        } else {
            assert!(matches!(tenure.release(), ReleaseOutcome::Released { .. }));
            match next.ask(true) {
                AcquireOutcome::Acquired(grant) => Some(grant.number),
                _ => None,
            }
        };
        tenure = next;
    }
}
