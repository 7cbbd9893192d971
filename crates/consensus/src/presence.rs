//! The sessions of a process that serve no tenure. Each holds what clients of the process say of themselves, and says what they have to say to
//! others. There is one for each length of life. Nobody depends on them: the end of one costs a description for people.
//!
//! *Why they are not the sessions of tenures.* A client's record outlives its tenures, and a client that only asks has none. A session of a
//! tenure may
//! end for a request without an answer, and the record would go with it.
//!
//! *Why a copy of the process does no harm.* It has the same sessions, and may end one that the other copy uses. Whoever finds its session ended
//! opens another one, and writes again what was held by it. Nothing that these sessions hold excludes anybody.
//!
//! *Why their requests leave no doubt.* A record that is written late replaces an older one of the same client, or comes after its removal
//! and goes with the session. Words that come late are words to a client that does not wait for them any more.

use super::deadline::Deadline;
use super::kv::{Kv, Life};
use super::sessions::Session;
use crate::sync::Mutex;
use redis_dlock::{Clock, Error, SystemClock};
use std::time::Duration;

/// The sessions, which a processor has for all of its clients.
#[derive(Debug, Default)]
pub(super) struct Presence {
    sessions: Mutex<Vec<Session>>,
    /// How many messages have names.
    said: Mutex<u64>,
}

/// What such a session is called in the store: it is no client's, so a client without tenures is not taken for one that has some.
const OF_PROCESS: &str = "(process)";

/// Returns what a session must be like that holds nothing which excludes anybody: its end keeps nobody out.
pub(super) fn harmless<K: Kv + ?Sized>(kv: &K, time: Duration) -> Life {
    Life { needed: Duration::ZERO, ..kv.delay(time) }
}

impl Presence {
    /// Returns a session that lives for `life` without a renewal, and certainly for `needed` from now. Renewing one is no write. Two threads that
    /// come at the same time may both open one: both are ended at the close.
    pub(super) fn session<K: Kv + ?Sized>(
        &self,
        kv: &K,
        life: Duration,
        needed: Duration,
        deadline: Deadline,
    ) -> Result<String, Error> {
        let life = harmless(kv, life);
        let known = self.sessions.lock().iter().find(|session| session.life == life).cloned();
        if let Some(mut session) = known {
            if SystemClock.now() + needed <= session.until {
                return Ok(session.id);
            }
            let lives = session.renew(kv, deadline)?;
            self.forget(&session.id);
            if lives {
                return Ok(self.keep(session));
            }
        }
        Ok(self.keep(Session::open(kv, life, OF_PROCESS, deadline)?))
    }

    fn keep(&self, session: Session) -> String {
        let id = session.id.clone();
        self.sessions.lock().push(session);
        id
    }

    /// Returns a name for a message of a session, which no other message has.
    pub(super) fn name(&self, session: &str) -> String {
        let mut said = self.said.lock();
        *said += 1;
        format!("{session}-{said}")
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&self, id: &str) {
        self.sessions.lock().retain(|session| session.id != id);
    }

    /// Ends all of them. Whatever is left ends by itself.
    pub(super) fn end<K: Kv + ?Sized>(&self, kv: &K, deadline: Deadline) {
        let sessions = std::mem::take(&mut *self.sessions.lock());
        for session in sessions {
            if kv.end_session(&session.id, deadline).is_err() {
                return;
            }
        }
    }
}
