//! Who holds a key, who waits for it, and what their clients say: for people.
//!
//! The store names the lockers and keeps the clients' records. Each of the other clients is asked by a message to its inbox. Its listener
//! hears the question and notes it; its retry thread answers by a message to the inbox of the asker. A question that cannot be answered at
//! once is dropped: its asker does not wait for long.

use crate::client::core::Core;
use crate::client::inquiry::{self, Inquiry, Words};
use crate::description::{ClientRecord, Description, MOST_WAITERS, Party, Told, WaitingThread};
use crate::error::Error;
use crate::log;
use crate::state::key::Key;
use crate::state::locker::lock_delay_left;
use crate::state::machine::Phase;
use crate::state::names;
use crate::store::processor::{Directory, Parties};
use crate::sync::thread;
use crate::timing::{ANSWERS_LIMIT, DESCRIBE_LIMIT, SHORTEST_COMMAND, SUBSCRIBE_LOOK};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The client id in a locker. JVM lockers have none that is worth asking for, and nobody has a record or an inbox of their name.
fn client_of(locker: &str) -> Option<&str> {
    locker.rsplit_once('-').map(|(client, _)| client).filter(|client| !client.is_empty() && !client.contains(' '))
}

impl Core {
    /// Describes a key.
    pub(crate) fn describe(&self, name: &Arc<str>) -> Result<Description, Error> {
        self.check_process()?;
        let _inside = self.enter()?;
        let directory = self.directory()?;
        let limit = self.limits.command;
        let Parties { holder, remaining, waiting, queue_length } = directory.parties(name, limit)?;
        let mut clients: Vec<&str> = Vec::new();
        for client in holder.iter().chain(&waiting).filter_map(|locker| client_of(locker)) {
            if !clients.contains(&client) {
                clients.push(client);
            }
        }
        let lock_delay = holder.as_deref().and_then(|locker| lock_delay_left(locker, remaining));
        let records = match directory.records(&clients, limit) {
            // Only what a client says of itself is missing.
            Err(Error::Denied { .. }) => vec![None; clients.len()],
            other => other?,
        };
        let records: Vec<_> = records.iter().map(|line| line.as_deref().map(ClientRecord::of_line)).collect();
        let told = self.ask_clients(directory, name, &clients, &records);
        let party = |locker: String| {
            let at = client_of(&locker).and_then(|client| clients.iter().position(|known| *known == client));
            let client = at.and_then(|at| records.get(at).cloned().flatten());
            // An answer about another locker is one about another moment.
            let told = at.and_then(|at| told.get(at)?.as_ref()).filter(|(of, _)| of.as_deref() == Some(&*locker));
            Party { is_local: self.is_ours(&locker), client, told: told.map(|(_, told)| told.clone()), locker }
        };
        let (holder, waiting) = (holder.clone().map(party), waiting.iter().cloned().map(party).collect());
        Ok(Description { key: name.to_string(), holder, remaining, lock_delay, waiting, queue_length })
    }

    /// Returns what the store tells people.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it tells nothing.
    pub(crate) fn directory(&self) -> Result<&dyn Directory, Error> {
        let lacks = || Error::unsupported("the store neither lists locks nor names who waits: it has no directory");
        self.processor.directory().ok_or_else(lacks)
    }

    /// Asks these clients about a key, and waits until all have answered or the time is over. Returns for each what it says, and of which
    /// locker.
    fn ask_clients(
        &self,
        directory: &dyn Directory,
        name: &Arc<str>,
        clients: &[&str],
        records: &[Option<ClientRecord>],
    ) -> Vec<Option<(Option<String>, Told)>> {
        let until = Instant::now() + DESCRIBE_LIMIT;
        let left = || until.saturating_duration_since(Instant::now());
        let mut told = vec![None; clients.len()];
        let mut others = Vec::new();
        for (at, client) in clients.iter().enumerate() {
            if *client == self.id().as_str() {
                told[at] = Some(self.account(name));
            } else if records.get(at).and_then(Option::as_ref).is_none_or(ClientRecord::describes) {
                others.push(at);
            }
        }
        let key = self.keys.key(name);
        if others.is_empty() || !self.hears_answers(&key, &left) {
            return told;
        }
        let asking = self.inquiries.begin(others.len());
        let mut asked = 0;
        for (place, at) in others.iter().enumerate() {
            let words = inquiry::inquiry(asking.nonce(place), self.id().as_str(), name);
            match directory.say(clients[*at], name, &words, left().min(self.limits.command)) {
                Ok(is_heard) => asked += usize::from(is_heard),
                Err(error) => {
                    log::debug!(CLIENT, "lock {name:?}: the client {:?} was not asked: {error}", clients[*at]);
                }
            }
        }
        while asked > 0 {
            let Ok((place, line)) = asking.answers.recv_timeout(left()) else { break };
            if let Some(at) = others.get(place) {
                told[*at] = Some(Told::of_line(&line));
            }
            asked -= 1;
        }
        told
    }

    /// Waits until this client hears what is said about a key. Returns whether it does.
    fn hears_answers(&self, key: &Key, left: &impl Fn() -> Duration) -> bool {
        if !self.hands_over() {
            return false;
        }
        self.listen();
        while !self.is_listening() {
            if left().is_zero() || self.is_closed() {
                return false;
            }
            thread::sleep(SUBSCRIBE_LOOK);
        }
        self.gets_ready_to_hear(key, left)
    }
}

/// The part of the client that is asked.
impl Core {
    /// Handles what another client says. Called by the listener, so it waits for nobody.
    pub(super) fn on_said(&self, text: &str) {
        match inquiry::read(text) {
            Some(Words::Inquiry(question)) => {
                let is_answered = self.inquiries.note(question) && self.start_retry_thread().is_ok();
                if is_answered {
                    self.retry_thread.wake_by(self.clock.now());
                }
            }
            Some(Words::Answer { nonce, text }) => self.inquiries.hear(nonce, text),
            Some(Words::Greeting { nonce, client }) => self.on_greeting(nonce, &client),
            None => {}
        }
    }

    /// Gets ready to hear questions about the locks that are held with a reason, or asked for. Called by the listener when the inbox is open.
    pub(super) fn hear_questions(&self) {
        if !self.record.is_on() {
            return;
        }
        for key in self.keys.all() {
            let mut state = key.state();
            // A thread that asks may have found the inbox closed, and its settings are not known here.
            let is_asked_for = matches!(state.phase, Phase::Asking { .. });
            let says_why = is_asked_for || state.kept().is_some_and(|tenure| tenure.settings.reason().is_some());
            drop(state);
            if says_why {
                self.gets_ready_to_hear(&key, || Duration::ZERO);
            }
        }
    }

    /// Answers what other clients have asked. Called by the retry thread. What cannot be said in a moment is dropped.
    pub(super) fn answer_questions(&self) {
        let begun = Instant::now();
        let Some(directory) = self.processor.directory() else { return };
        for Inquiry { nonce, asker, key } in self.inquiries.take() {
            // One that is not answered leaves time for the others.
            let limit = self.limits.command.min(ANSWERS_LIMIT.saturating_sub(begun.elapsed()) / 2);
            if limit < SHORTEST_COMMAND {
                return;
            }
            let (locker, told) = self.account(&key);
            let words = inquiry::answer(nonce, &told.to_line(locker.as_deref()));
            if let Err(error) = directory.say(&asker, &key, &words, limit) {
                log::debug!(CLIENT, "lock {key:?}: a question about it was not answered: {error}");
            }
        }
    }

    /// Returns what this client says of a key, and of which locker.
    fn account(&self, name: &str) -> (Option<String>, Told) {
        let Some(key) = self.keys.known(name) else { return (None, Told::default()) };
        let now = self.clock.now();
        let mut state = key.state();
        let first = state.queue.head().map(Arc::clone);
        let mut told = Told {
            waiting_threads: state.queue.len(),
            first_waits_for: first.as_ref().map(|first| now.since(first.since)),
            ..Told::default()
        };
        let waiting = state.queue.iter().take(MOST_WAITERS).map(|waiter| (waiter.thread, now.since(waiter.since)));
        let waiting: Vec<_> = waiting.collect();
        let (mut thread, mut reason) = (None, None);
        let is_held = matches!(state.phase, Phase::Held(_));
        let locker = if let Some(tenure) = state.kept() {
            told.lease_left = Some(tenure.deadline().since(now));
            told.lingering = !is_held;
            reason = tenure.settings.reason().map(str::to_owned);
            if is_held {
                thread = Some(key.hold.owner());
                told.held_for = Some(now.since(tenure.held_since()));
                told.hold_count = key.hold.count();
                told.token = Some(key.hold.token());
            }
            Some(tenure.locker.to_string())
        } else {
            if let Some(first) = &first {
                thread = Some(first.thread);
                reason = first.settings.reason().map(str::to_owned);
            }
            match &state.phase {
                Phase::Waiting { unsettled: Some(unsettled) } => Some(unsettled.locker.to_string()),
                _ => state.about().map(|about| about.locker.to_string()),
            }
        };
        drop(state);
        if let Some(name) = thread.and_then(names::of) {
            (told.thread, told.thread_id) = (name.name, name.id);
        }
        let named = |(thread, waits_for)| {
            let names::Name { name: thread, id: thread_id } = names::of(thread).unwrap_or_default();
            WaitingThread { thread, thread_id, waits_for }
        };
        told.waiters = waiting.into_iter().map(named).collect();
        told.reason = reason;
        (locker, told)
    }
}
