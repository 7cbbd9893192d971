//! The inbox of a client: it hears what the store says.

use super::tenure::{PATIENCE, Tenure};
use crossbeam_channel::{Receiver, unbounded};
use redis_dlock::Error;
use redis_dlock::port::{Grant, Inbox, InboxBreaker, Message};
use std::fmt;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// How long to listen for what must not happen.
const SILENCE: Duration = Duration::from_millis(30);

/// An open inbox.
pub struct InboxReader(Listening);

enum Listening {
    /// The inbox hears of all keys.
    Itself(Box<dyn Inbox>),
    /// The inbox gets ready for each key; for that, a thread waits for its messages, as a client's does.
    OnThread(Listener),
}

struct Listener {
    messages: Receiver<Result<Message, Error>>,
    breaker: Box<dyn InboxBreaker>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for InboxReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InboxReader")
    }
}

impl InboxReader {
    pub(super) fn on(inbox: Box<dyn Inbox>, hears_of_all_keys: bool) -> Self {
        Self(if hears_of_all_keys { Listening::Itself(inbox) } else { Listening::OnThread(Listener::on(inbox)) })
    }

    /// Hears the next message.
    pub fn hear(&mut self) -> Message {
        self.hear_within(PATIENCE).expect("a message")
    }

    /// Hears the next message, if one comes in this time.
    pub fn hear_within(&mut self, limit: Duration) -> Option<Message> {
        loop {
            let message = match &mut self.0 {
                Listening::Itself(inbox) => inbox.next(limit).unwrap()?,
                Listening::OnThread(listener) => listener.messages.recv_timeout(limit).ok()?.unwrap(),
            };
            // `Changed` asks the client to look, which no case needs to be told.
            if !matches!(message, Message::Changed { .. } | Message::ChangedAmong { .. }) {
                return Some(message);
            }
        }
    }

    /// Hears that the tenure was granted its key, and nothing before.
    pub fn hear_granted(&mut self, tenure: &Tenure) -> Grant {
        match self.hear() {
            Message::Granted { key, locker, grant } if key == tenure.key && locker == tenure.locker => grant,
            other => panic!("instead of a grant to {tenure:?}: {other:?}"),
        }
    }

    /// Hears that others wait for what the tenure holds, and nothing before.
    pub fn hear_contended(&mut self, tenure: &Tenure) {
        match self.hear() {
            Message::Contended { key, locker } if key == tenure.key && locker == tenure.locker => {}
            other => panic!("instead of contention for {tenure:?}: {other:?}"),
        }
    }

    /// Hears nothing for a moment.
    pub fn hear_nothing(&mut self) {
        assert_eq!(self.hear_within(SILENCE), None);
    }
}

impl Listener {
    fn on(mut inbox: Box<dyn Inbox>) -> Self {
        let (sender, messages) = unbounded();
        let breaker = inbox.breaker();
        let listen = move || {
            loop {
                let Some(message) = inbox.next(PATIENCE).transpose() else { continue };
                let ends = message.is_err();
                if sender.send(message).is_err() || ends {
                    return;
                }
            }
        };
        Self { messages, breaker, thread: Some(spawn(listen)) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.breaker.cut();
        // The inbox ends with its thread. A panic there was reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
