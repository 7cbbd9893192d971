//! Unit tests of `src/store/redis/transport/mux/state.rs`.

use super::*;
use crate::store::redis::net::connector::WriteHalf;

/// A connection that does nothing.
struct Idle;

impl Connector for Idle {
    type Out = Self;
    type In = Self;
    type Cut = Self;

    fn open(&self, _: Instant) -> Result<OpenConnection<Self>, Error> {
        Ok(OpenConnection { outbound: Self, inbound: Self, cut: Self })
    }
}

impl WriteHalf for Idle {
    fn send(&mut self, _: &[u8], _: Instant) -> io::Result<bool> {
        Ok(true)
    }

    fn flush(&mut self, _: Instant) -> io::Result<bool> {
        Ok(true)
    }
}

impl ReadHalf for Idle {
    fn fill(&mut self, _: Option<Instant>) -> io::Result<bool> {
        Ok(false)
    }

    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        Ok(None)
    }
}

impl Shutdown for Idle {
    fn cut(&self) {}

    fn server(&self) -> u64 {
        0
    }
}

#[test]
fn each_claim_takes_the_role_of_writer_from_those_that_it_may_replace() {
    use WriterRole::*;
    let idle: &[_] = &[Free, Promoted, Gathering(1), Gathering(2)];
    let rows: [(WriterClaim, bool, bool, &[WriterRole]); 7] = [
        // The claim, whether there is work, whether callers are expected: from which roles the caller takes over. Nobody replaces a writer
        // that writes.
        (WriterClaim::Free, true, false, &[Free, Gathering(1), Gathering(2)]),
        (WriterClaim::Free, true, true, &[Free]),
        (WriterClaim::AtOnce, true, true, idle),
        (WriterClaim::AtOnce, false, false, idle),
        (WriterClaim::Promoted, true, true, &[Free, Promoted]),
        (WriterClaim::Promoted, false, true, &[Promoted]),
        // A writer that comes back does not take the role of a successor that yields.
        (WriterClaim::Gathered(2), true, true, &[Gathering(2)]),
    ];
    for (claim, has_work, lacks_callers, replaced) in rows {
        for role in idle.iter().chain(&[Writing]) {
            let mut state = MuxState::<Idle>::new();
            let mut session = Session::new(1, Idle.open(now()).expect("it opens"));
            (session.has_backlog, session.away) = (has_work, usize::from(lacks_callers));
            (state.session, state.writer) = (Some(session), *role);
            let takes = replaced.contains(role);
            assert_eq!(
                state.take_role(claim),
                takes,
                "{claim:?} of {role:?}, work: {has_work}, callers: {lacks_callers}"
            );
            assert_eq!(state.writer, if takes { Writing } else { *role }, "{claim:?}");
        }
    }
}
