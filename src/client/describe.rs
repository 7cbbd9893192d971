//! Describes a key for people: who holds it, who waits for it, and what their clients say. This file has both sides: the client that asks,
//! and the clients that answer.
//!
//! The store names the lockers, and keeps the clients' records. Each of the other clients is asked by a message to its inbox. Its listening
//! thread receives the question and notes it. Its retry thread answers by a message to the inbox of the asker. A question that cannot be
//! answered at once is dropped, because its asker does not wait for long.

use super::core::Core;
use super::subscription::Subscription;
use crate::description::{ClientRecord, DelayedRelease, Description, MOST_WAITERS, Party, Told, WaitingThread};
use crate::error::Error;
use crate::log;
use crate::port::Parties;
use crate::state::key::Key;
use crate::state::locker::lock_delay_left;
use crate::state::machine::Phase;
use crate::state::owner;
use crate::sync::{Mutex, thread};
use crate::timing::{ANSWERS_LIMIT, DESCRIBE_LIMIT, SHORTEST_COMMAND, SUBSCRIBE_LOOK};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The client id in a locker. A JVM locker may have other text at that place. That does no harm, because no client has a record or an inbox
/// of that name.
fn client_of(locker: &str) -> Option<&str> {
    locker.rsplit_once('-').map(|(client, _)| client).filter(|client| !client.is_empty() && !client.contains(' '))
}

/// What a client says of a key, and the locker that this is about.
type Account = (Option<String>, Told);

/// What a client says of keys, and asks others.
#[derive(Default)]
pub(crate) struct Describe(Mutex<OpenInquiries>);

/// The client that asks.
impl Describe {
    /// Describes a key. Waits for the answers of other clients, and begins no such wait once this client is closed.
    pub(super) fn describe(
        &self,
        core: &Core,
        subscription: &Subscription,
        name: &Arc<str>,
    ) -> Result<Description, Error> {
        let directory = core.directory()?;
        let limit = core.limits.command;
        let Parties { holder, remaining, waiting, queue_length } = directory.parties(name, limit)?;
        let mut clients: Vec<&str> = Vec::new();
        for client in holder.iter().chain(&waiting).filter_map(|locker| client_of(locker)) {
            if !clients.contains(&client) {
                clients.push(client);
            }
        }
        let lock_delay = holder.as_deref().and_then(|locker| lock_delay_left(locker, remaining));
        let mut records = match directory.records(&clients, limit) {
            // Then only the records are missing.
            Err(Error::Denied { .. }) => Vec::new(),
            other => other?,
        };
        // There is a place for each client, even if the store returns too few records.
        records.resize(clients.len(), None);
        let records = records.iter().map(|line| line.as_deref().map(ClientRecord::of_line));
        let clients: Vec<_> = clients.into_iter().zip(records).collect();
        let until = Instant::now() + DESCRIBE_LIMIT;
        let left = || until.saturating_duration_since(Instant::now());
        let told = self.ask_clients(core, subscription, name, &clients, &left)?;
        let party = |locker: String| {
            let at = client_of(&locker).and_then(|client| clients.iter().position(|(known, _)| *known == client));
            let client = at.and_then(|at| clients.get(at)?.1.clone());
            // An answer about another locker is one about another moment.
            let told = at.and_then(|at| told.get(at)?.as_ref()).filter(|(of, _)| of.as_deref() == Some(&*locker));
            Party { is_local: core.is_ours(&locker), client, told: told.map(|(_, told)| told.clone()), locker }
        };
        let delayed_release = holder.as_deref().and_then(DelayedRelease::of_locker);
        let (holder, waiting) = (holder.clone().map(party), waiting.iter().cloned().map(party).collect());
        Ok(Description { key: name.to_string(), holder, remaining, lock_delay, delayed_release, waiting, queue_length })
    }

    /// Asks these clients about a key, if this client can hear their answers. Waits until all have answered, or no time is `left`. Returns
    /// for each what it says, and of which locker.
    fn ask_clients(
        &self,
        core: &Core,
        subscription: &Subscription,
        name: &Arc<str>,
        clients: &[(&str, Option<ClientRecord>)],
        left: &impl Fn() -> Duration,
    ) -> Result<Vec<Option<Account>>, Error> {
        let directory = core.directory()?;
        let mut told = vec![None; clients.len()];
        let mut others = Vec::new();
        for (at, (client, record)) in clients.iter().enumerate() {
            if *client == core.id.current().as_str() {
                told[at] = Some(account(core, name));
            } else if record.as_ref().is_none_or(ClientRecord::describes) {
                others.push((at, *client));
            }
        }
        let key = core.keys.key(name);
        if others.is_empty() || !hears(core, subscription, &key, left) {
            return Ok(told);
        }
        let asking = self.begin(others.len());
        let mut asked = 0;
        for (place, (_, client)) in others.iter().enumerate() {
            let words = inquiry(asking.nonce(place), core.id.current().as_str(), name);
            match directory.say(client, name, &words, left().min(core.limits.command)) {
                Ok(is_heard) => asked += usize::from(is_heard),
                Err(error) => {
                    log::debug!(CLIENT, "lock {name:?}: the client {:?} was not asked: {error}", client);
                }
            }
        }
        while asked > 0 {
            let Ok((place, line)) = asking.answers.recv_timeout(left()) else { break };
            if let Some((at, _)) = others.get(place) {
                told[*at] = Some(Told::of_line(&line));
            }
            asked -= 1;
        }
        Ok(told)
    }
}

/// Waits until this client hears what is said about a key. Returns whether it does.
fn hears(core: &Core, subscription: &Subscription, key: &Key, left: &impl Fn() -> Duration) -> bool {
    if !core.hands_over {
        return false;
    }
    subscription.listen(core);
    while !subscription.is_open() {
        if left().is_zero() || core.activity.is_closed() {
            return false;
        }
        thread::sleep(SUBSCRIBE_LOOK);
    }
    subscription.get_ready_to_hear(core, key, left)
}

/// What the listening thread must do about the words of another client.
pub(super) enum Heard {
    Nothing,
    /// There is a question to [answer](Describe::answer_questions).
    Question,
    /// A client says that it hears its inbox.
    Greeting(Greeting),
}

/// The client that is asked.
impl Describe {
    /// Notes what another client says, and returns what is to be done about it. Called by the listening thread, so it must not block.
    pub(super) fn on_said(&self, text: &str) -> Heard {
        match read(text) {
            Some(Words::Inquiry(question)) => {
                return if self.note(question) { Heard::Question } else { Heard::Nothing };
            }
            Some(Words::Answer { nonce, text }) => self.hear(nonce, text),
            Some(Words::Greeting(greeting)) => return Heard::Greeting(greeting),
            None => {}
        }
        Heard::Nothing
    }

    /// Answers what other clients have asked. Called by the retry thread. What cannot be said in a moment is dropped.
    pub(super) fn answer_questions(&self, core: &Core) {
        let begun = Instant::now();
        let Some(directory) = core.processor.directory() else { return };
        for Inquiry { nonce, asker, key } in self.take() {
            // An answer that cannot be sent leaves time for the others.
            let limit = core.limits.command.min(ANSWERS_LIMIT.saturating_sub(begun.elapsed()) / 2);
            if limit < SHORTEST_COMMAND {
                return;
            }
            let (locker, told) = account(core, &key);
            let words = answer(nonce, &told.to_line(locker.as_deref()));
            if let Err(error) = directory.say(&asker, &key, &words, limit) {
                log::debug!(CLIENT, "lock {key:?}: a question about it was not answered: {error}");
            }
        }
    }
}

/// Gets ready to hear questions about the locks that are held with a reason, or that threads ask for. Called by the listening thread when
/// the inbox is open.
pub(super) fn hear_questions(core: &Core, subscription: &Subscription) {
    for key in core.keys.all() {
        let mut state = key.state.lock();
        // A thread that asks may have found the inbox closed. Its settings are not known here.
        let is_asked_for = matches!(state.phase, Phase::Asking { .. });
        let says_why = is_asked_for || state.tenure_mut().is_some_and(|tenure| tenure.settings.reason().is_some());
        drop(state);
        if says_why {
            subscription.get_ready_to_hear(core, &key, || Duration::ZERO);
        }
    }
}

/// Returns what this client says of a key, and which locker that is about.
fn account(core: &Core, name: &str) -> Account {
    let Some(key) = core.keys.known(name) else { return (None, Told::default()) };
    let now = core.clock.now();
    let mut state = key.state.lock();
    let first = state.queue.front().map(Arc::clone);
    let mut told = Told {
        waiting_threads: state.queue.len(),
        first_waits_for: first.as_ref().map(|first| now.since(first.since)),
        ..Told::default()
    };
    let waiting = state.queue.iter().take(MOST_WAITERS).map(|waiter| (waiter.owner, now.since(waiter.since)));
    let waiting: Vec<_> = waiting.collect();
    let (mut owner, mut reason) = (None, None);
    let is_held = matches!(state.phase, Phase::Held(_));
    let locker = if let Some(tenure) = state.tenure_mut() {
        told.lease_left = Some(tenure.deadline().since(now));
        told.lingering = !is_held;
        reason = tenure.settings.reason().map(str::to_owned);
        if is_held {
            owner = Some(key.hold.owner());
            told.held_for = Some(now.since(tenure.hold.since));
            told.hold_count = key.hold.count();
            told.token = Some(key.hold.token());
        }
        Some(tenure.locker.to_string())
    } else {
        if let Some(first) = &first {
            owner = Some(first.owner);
            reason = first.settings.reason().map(str::to_owned);
        }
        match &state.phase {
            Phase::Waiting { unsettled: Some(unsettled) } => Some(unsettled.locker.to_string()),
            _ => state.about().map(|about| about.locker.to_string()),
        }
    };
    drop(state);
    if let Some(name) = owner.and_then(owner::name_of) {
        (told.thread, told.thread_id) = (name.name, name.id);
    }
    let named = |(owner, waits_for)| {
        let owner::OwnerName { name: thread, id: thread_id } = owner::name_of(owner).unwrap_or_default();
        WaitingThread { thread, thread_id, waits_for }
    };
    told.waiters = waiting.into_iter().map(named).collect();
    told.reason = reason;
    (locker, told)
}

// What clients say to one another.

/// How many questions wait for their answers. Further ones are dropped: their askers do not wait for long.
const MOST_INQUIRIES: usize = 64;

/// How many of its own greetings a client remembers. A greeting may be delivered late, after the inbox was opened again.
const MOST_GREETINGS: usize = 1024;

/// The longest name of an asker.
const LONGEST_ASKER: usize = 256;

/// A question of another client about a key.
#[derive(Debug, PartialEq, Eq)]
struct Inquiry {
    nonce: u64,
    asker: String,
    key: String,
}

/// An answer: the client that was asked, by its place among those that were asked together, and its words.
type InquiryAnswer = (usize, String);

/// The questions that this client is to answer, and those that it has asked.
#[derive(Default)]
struct OpenInquiries {
    /// The questions that this client is to answer.
    waiting: VecDeque<Inquiry>,
    /// The last number of a question. Numbers begin again with each client, whose inbox is its own.
    last: u64,
    asked: HashMap<u64, (usize, Sender<InquiryAnswer>)>,
    /// The numbers of the greetings of this client, the newest last.
    greetings: VecDeque<u64>,
}

/// What a client says when it hears its inbox: see [`twin`](super::twin).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) nonce: u64,
    pub(super) client: String,
    pub(super) proof: u64,
}

/// Words of another client.
#[derive(Debug, PartialEq, Eq)]
enum Words {
    Inquiry(Inquiry),
    Answer {
        nonce: u64,
        text: String,
    },
    /// A client says that it hears its inbox.
    Greeting(Greeting),
}

/// Reads the words of another client. `None` if they are no words of this version.
fn read(text: &str) -> Option<Words> {
    let (verb, rest) = text.split_once(' ')?;
    let (nonce, rest) = rest.split_once(' ')?;
    let nonce = nonce.parse().ok()?;
    match verb {
        "describe" => {
            let (asker, key) = rest.split_once(' ')?;
            let is_named = !asker.is_empty() && asker.len() <= LONGEST_ASKER;
            is_named.then(|| Words::Inquiry(Inquiry { nonce, asker: asker.to_owned(), key: key.to_owned() }))
        }
        "described" => Some(Words::Answer { nonce, text: rest.to_owned() }),
        "here" => {
            let (client, proof) = rest.split_once(' ')?;
            Some(Words::Greeting(Greeting { nonce, client: client.to_owned(), proof: proof.parse().ok()? }))
        }
        _ => None,
    }
}

/// Writes a question.
fn inquiry(nonce: u64, asker: &str, key: &str) -> String {
    format!("describe {nonce} {asker} {key}")
}

/// Writes an answer.
fn answer(nonce: u64, line: &str) -> String {
    format!("described {nonce} {line}")
}

impl Greeting {
    pub(super) fn to_line(&self) -> String {
        format!("here {} {} {}", self.nonce, self.client, self.proof)
    }
}

impl Describe {
    /// Notes a question. Returns `false` if it is dropped, because too many wait.
    fn note(&self, inquiry: Inquiry) -> bool {
        let mut open = self.0.lock();
        let has_room = open.waiting.len() < MOST_INQUIRIES;
        if has_room {
            open.waiting.push_back(inquiry);
        }
        has_room
    }

    /// Takes the questions that wait.
    fn take(&self) -> VecDeque<Inquiry> {
        std::mem::take(&mut self.0.lock().waiting)
    }

    /// Notes the questions of one round to several clients.
    fn begin(&self, count: usize) -> InquiryRound<'_> {
        let (sender, answers) = bounded(count.max(1));
        let mut open = self.0.lock();
        let first = open.last + 1;
        open.last += count as u64;
        for place in 0..count {
            open.asked.insert(first + place as u64, (place, sender.clone()));
        }
        InquiryRound { of: self, first, count, answers }
    }

    /// Remembers a greeting of this client.
    pub(super) fn note_greeting(&self, nonce: u64) {
        let mut open = self.0.lock();
        if open.greetings.len() == MOST_GREETINGS {
            open.greetings.pop_front();
        }
        open.greetings.push_back(nonce);
    }

    /// Returns whether a greeting is one of this client, which hears itself.
    pub(super) fn is_own_greeting(&self, nonce: u64) -> bool {
        self.0.lock().greetings.contains(&nonce)
    }

    /// Notes an answer. It is ignored if its question was never asked, or is not waited for any more.
    fn hear(&self, nonce: u64, text: String) {
        if let Some((place, sender)) = self.0.lock().asked.remove(&nonce) {
            // There is room for each, and the receiver may be gone.
            let _ = sender.try_send((place, text));
        }
    }
}

/// Questions that were asked together. Dropping it ends the wait for their answers.
struct InquiryRound<'t> {
    of: &'t Describe,
    first: u64,
    count: usize,
    answers: Receiver<InquiryAnswer>,
}

impl InquiryRound<'_> {
    /// The number of the question to the client at this place.
    fn nonce(&self, place: usize) -> u64 {
        self.first + place as u64
    }
}

impl Drop for InquiryRound<'_> {
    fn drop(&mut self) {
        let mut open = self.of.0.lock();
        for place in 0..self.count {
            open.asked.remove(&(self.first + place as u64));
        }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/describe.rs"]
mod tests;
