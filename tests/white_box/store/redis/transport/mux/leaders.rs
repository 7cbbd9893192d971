//! Unit tests of `src/store/redis/transport/mux/leaders.rs`.

use crate::error::Error;
use crate::store::redis::net::connector::{Connector, OpenConnection, ReadHalf, Shutdown, WriteHalf};
use crate::store::redis::transport::{AtLimit, Polling, Transport};
use ::redis::Value;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A network in which the step with that number panics, once. It answers everything that is written at once.
struct Shaky(Arc<Steps>);

struct Steps {
    bad: usize,
    next: AtomicUsize,
    unread: AtomicUsize,
}

impl Steps {
    fn step(&self) {
        assert_ne!(self.next.fetch_add(1, Ordering::SeqCst), self.bad, "as the test wants it");
    }
}

struct End(Arc<Steps>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.step();
    }
}

impl Connector for Shaky {
    type Out = End;
    type In = Arc<Steps>;
    type Cut = Arc<Steps>;

    fn open(&self, _: Instant) -> Result<OpenConnection<Self>, Error> {
        self.0.step();
        self.0.unread.store(0, Ordering::SeqCst);
        let steps = || Arc::clone(&self.0);
        Ok(OpenConnection { outbound: End(steps()), inbound: steps(), cut: steps() })
    }
}

impl WriteHalf for End {
    fn send(&mut self, _: &[u8], _: Instant) -> io::Result<bool> {
        self.0.step();
        self.0.unread.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    fn flush(&mut self, _: Instant) -> io::Result<bool> {
        Ok(true)
    }
}

impl ReadHalf for Arc<Steps> {
    fn fill(&mut self, _: Option<Instant>) -> io::Result<bool> {
        self.step();
        Ok(self.unread.load(Ordering::SeqCst) > 0)
    }

    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        self.step();
        let taken = self.unread.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        Ok(taken.ok().map(|_| Value::Okay))
    }
}

impl Shutdown for Arc<Steps> {
    fn cut(&self) {
        self.step();
    }
}

fn call(transport: &Transport<Shaky>) -> bool {
    let mut batch = transport.batch(LIMIT);
    batch.push(Some("k"), |packed| packed.words(&["PING"]));
    transport.round_trip(batch, LIMIT, AtLimit::KeepConnection).pop().is_some_and(|reply| reply.is_ok())
}

/// Shows: L5.
#[test]
fn a_panic_anywhere_in_a_connection_leaves_no_role_behind() {
    for bad in 0..12 {
        let steps = Arc::new(Steps { bad, next: AtomicUsize::new(0), unread: AtomicUsize::new(0) });
        let transport = Transport::over(
            Shaky(Arc::clone(&steps)),
            "shaky".to_owned(),
            LIMIT,
            LIMIT,
            Polling::Automatic,
            *b"00000",
            None,
        );
        for _ in 0..3 {
            // A panic outside the connection's own code reaches the caller, once.
            let _ = catch_unwind(AssertUnwindSafe(|| call(&transport)));
        }
        assert!(steps.next.load(Ordering::SeqCst) > bad, "it comes to that step");
        assert!(call(&transport) && call(&transport), "{bad}");
        steps.next.store(1000, Ordering::SeqCst);
    }
}
