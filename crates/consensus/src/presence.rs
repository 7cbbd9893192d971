//! The sessions of a process that serve no tenure. Each session holds the record of one client, and words to other clients. No lock depends on them:
//! the end of one costs a description for people.
//!
//! *Why each client has its own.* Renewing one session for all would keep the records of clients that have ended.
//!
//! *Why they are not the sessions of tenures.* A client's record outlives its tenures, and a client that only asks has none. A session of a
//! tenure may end for a request without an answer, and the record would go with it.
//!
//! *Why a copy of the process does no harm.* It has the same sessions, and may end one that the other copy uses. A process that finds its session
//! ended opens another one, and writes again what it held. Nothing that these sessions hold excludes anybody.
//!
//! *Why their requests leave no doubt.* A record that is written late replaces an older one of the same client, or comes after its removal
//! and goes with the session. Words that come late are words to a client that does not wait for them any more.

use super::deadline::Deadline;
use super::kv::{Kv, Life};
use super::sessions::Session;
use super::timing::{SAYING, VOICE};
use crate::sync::Mutex;
use redis_dlock::{Clock, Error, SystemClock};
use std::time::Duration;

/// The sessions of all clients of a processor.
#[derive(Debug, Default)]
pub(super) struct Presence {
    sessions: Mutex<Vec<Session>>,
    /// The number of the last message.
    said: Mutex<u64>,
}

/// The client's name in the session of words while no client of the process has a session. No client has this name.
const OF_PROCESS: &str = "(process)";

/// How many unread messages of a session a client keeps: more than come between two reads.
const MOST_UNREAD: u64 = 64;

/// Returns the life of a session whose entries exclude nobody: its end keeps nobody out.
pub(super) fn harmless(kv: &dyn Kv, time: Duration) -> Life {
    Life { needed: Duration::ZERO, ..kv.delay(time) }
}

impl Presence {
    /// Returns a session of a client that lives for `life` without a renewal, and certainly for `needed` from now. Renewing it is no write. Two
    /// threads that come at the same time may both open a session: the close ends both.
    pub(super) fn session(
        &self,
        kv: &dyn Kv,
        client: &str,
        life: Duration,
        needed: Duration,
        deadline: Deadline,
    ) -> Result<String, Error> {
        let life = harmless(kv, life);
        let known =
            self.sessions.lock().iter().find(|session| session.life == life && session.client == client).cloned();
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
        Ok(self.keep(Session::open(kv, life, client, deadline)?))
    }

    /// Returns a session for words: any session that lives for long enough, or else one of this client or of the process. It does not renew a session
    /// of another client.
    pub(super) fn voice(&self, kv: &dyn Kv, client: Option<&str>, deadline: Deadline) -> Result<String, Error> {
        let soon = SystemClock.now() + SAYING;
        let lives = self.sessions.lock().iter().find(|session| soon <= session.until).map(|session| session.id.clone());
        lives.map_or_else(|| self.session(kv, client.unwrap_or(OF_PROCESS), VOICE, SAYING, deadline), Ok)
    }

    /// Forgets sessions whose life is over: their clients have ended, or will open them again.
    fn keep(&self, session: Session) -> String {
        let (id, now) = (session.id.clone(), SystemClock.now());
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| now < session.until);
        sessions.push(session);
        id
    }

    /// Returns a name for a message of a session. A much later message replaces one that nobody has read: for a client that does not listen, messages
    /// would pile up for as long as the session lives.
    pub(super) fn name(&self, session: &str) -> String {
        let mut said = self.said.lock();
        *said = (*said + 1) % MOST_UNREAD;
        format!("{session}-{said}")
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&self, id: &str) {
        self.sessions.lock().retain(|session| session.id != id);
    }

    /// Ends the sessions of a client, or all sessions. A session that is left ends by itself.
    pub(super) fn end(&self, kv: &dyn Kv, client: Option<&str>, deadline: Deadline) {
        let is_meant = |session: &mut Session| client.is_none_or(|client| session.client == client);
        let ended: Vec<_> = self.sessions.lock().extract_if(.., is_meant).collect();
        for session in ended {
            if kv.end_session(&session.id, deadline).is_err() {
                return;
            }
        }
    }
}
