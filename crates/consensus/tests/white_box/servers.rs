//! A consensus store, in memory.

use crate::deadline::Deadline;
use crate::kv::{Change, Check, Committed, Entry, Kv, Life, Listening, Transaction, Write};
use crate::names::Party;
use crate::sync::Mutex;
use redis_dlock::port::{Claim, StoreLimits};
use redis_dlock::{BackendFailure, Clock, Error, Moment, SystemClock};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Condvar;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A point at which the scheduler may let another thread go on.
pub(super) fn step() {
    // Shuttle's yield would also ask it to run other threads first; it has no call that is only a scheduling point.
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// What all clients share.
#[derive(Clone)]
pub(super) struct Servers(Arc<Shared>);

struct Shared {
    /// Whether transactions cannot check that nobody waits, and do not tell what they have found when they are refused: as Consul.
    is_blind: bool,
    /// Whether neither requests fail nor sessions end, so that messages alone suffice.
    is_calm: bool,
    state: Mutex<State>,
    changed: Condvar,
    late: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    index: u64,
    /// When anything but an inbox changed last.
    moved: u64,
    /// How many messages each inbox has had.
    said: BTreeMap<String, u64>,
    /// Whether nobody may hold a lock's entry for a while.
    is_delayed: bool,
    entries: BTreeMap<String, Entry>,
    sessions: BTreeSet<String>,
    /// Those that the operator has ended, and the lockers that held by them.
    ended: BTreeSet<String>,
    /// The clients that have died.
    dead: BTreeSet<String>,
    faults: u32,
    /// What becomes of the next transaction.
    next: Option<Lost>,
    /// The beginning of the paths that nobody passes on any more, and what comes of it.
    kept: Option<(String, fn() -> Error)>,
    /// How often that has come.
    refusals: u32,
    /// How often sessions were renewed, and when last; and whether the next renewal finds none: by a server that has just begun to lead.
    renewals: BTreeMap<String, u32>,
    renewed_at: BTreeMap<String, Moment>,
    is_new: bool,
    /// How often a key was looked at.
    looks: u32,
    /// Whether each session that is created is on the node of an agent, or none is created; and how often that was asked for.
    creation: Option<Creation>,
    created: u32,
    is_on_agents: bool,
}

/// What becomes of a transaction whose answer is lost, or is that to a repetition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    NeverExecuted,
    Executed,
    ExecutedLater,
    /// A proxy sends it twice, and tells the second answer.
    Twice,
}

/// What becomes of new sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creation {
    OnAgents,
    Unanswered,
}

impl Lost {
    pub(super) fn some() -> Self {
        [Self::NeverExecuted, Self::Executed, Self::ExecutedLater][thread_rng().gen_range(0..3)]
    }
}

impl Servers {
    pub(super) fn new(faults: u32, is_calm: bool) -> Self {
        Self::with(faults, is_calm, thread_rng().gen_bool(0.5))
    }

    /// Servers without faults, on which holds share a session.
    pub(super) fn like_consul() -> Self {
        Self::with(0, false, true)
    }

    /// Servers without faults, on which none does.
    pub(super) fn like_etcd() -> Self {
        Self::with(0, false, false)
    }

    /// Sets how many requests fail from now on, at most.
    pub(super) fn set_faults(&self, faults: u32) {
        self.0.state.lock().faults = faults;
    }

    fn with(faults: u32, is_calm: bool, is_blind: bool) -> Self {
        let state = State { faults, ..State::default() };
        let shared =
            Shared { is_blind, is_calm, state: Mutex::new(state), changed: Condvar::new(), late: Mutex::default() };
        Self(Arc::new(shared))
    }

    /// Does one step, and lets others see it.
    fn step<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        step();
        let outcome = act(&mut self.0.state.lock());
        self.0.changed.notify_all();
        step();
        outcome
    }

    /// Ends some session that holds or waits. Perhaps nobody may hold the lock for a while then, as after the end of a session of Consul
    /// that asks for that.
    pub(super) fn end_some_session(&self) {
        let is_delayed = self.0.is_blind && thread_rng().gen_bool(0.5);
        self.step(|state| {
            state.is_delayed = is_delayed;
            let held: Vec<_> = state.entries.values().filter_map(|entry| entry.session.clone()).collect();
            if !held.is_empty() {
                let session = held[thread_rng().gen_range(0..held.len())].clone();
                let lost = state.entries.values().filter(|entry| entry.session.as_ref() == Some(&session));
                let lost: Vec<_> = lost.map(|entry| Party::read(&entry.value, None).locker).collect();
                state.ended.extend(lost);
                state.end(&session);
                state.ended.insert(session);
            }
        });
        step();
        self.step(|state| {
            state.index += 1;
            state.moved = state.index;
            state.is_delayed = false;
        });
    }

    /// Lets the time of the session be over that holds an entry.
    pub(super) fn expire(&self, path: &str) {
        self.step(|state| {
            if let Some(session) = state.entries.get(path).and_then(|entry| entry.session.clone()) {
                state.end(&session);
            }
        });
    }

    /// Has every write fail so from now on of an entry whose path begins with this.
    pub(super) fn keep(&self, prefix: &str, failure: fn() -> Error) {
        self.0.state.lock().kept = Some((prefix.to_owned(), failure));
    }

    /// How many have.
    pub(super) fn refusals(&self) -> u32 {
        self.0.state.lock().refusals
    }

    /// Has the next renewal be answered by a server that does not know the session yet. Returns how many there were before.
    pub(super) fn begin_to_lead(&self) -> u32 {
        let mut state = self.0.state.lock();
        state.is_new = true;
        state.renewals.values().sum()
    }

    pub(super) fn renewals(&self) -> u32 {
        self.0.state.lock().renewals.values().sum()
    }

    pub(super) fn renewals_of(&self, session: &str) -> u32 {
        self.0.state.lock().renewals.get(session).copied().unwrap_or_default()
    }

    /// When a session was renewed last.
    pub(super) fn renewed_at(&self, session: &str) -> Moment {
        self.0.state.lock().renewed_at[session]
    }

    /// Changes what becomes of new sessions.
    pub(super) fn create(&self, creation: Creation) {
        self.0.state.lock().creation = Some(creation);
    }

    /// How often somebody wanted to create one.
    pub(super) fn created(&self) -> u32 {
        self.0.state.lock().created
    }

    pub(super) fn looks(&self) -> u32 {
        self.0.state.lock().looks
    }

    /// Loses the answer to the next transaction, or executes it twice.
    pub(super) fn lose_next(&self, how: Lost) {
        self.0.state.lock().next = Some(how);
    }

    /// Writes an entry that no session holds, as a person does on etcd.
    pub(super) fn put(&self, path: &str) {
        let mut state = self.0.state.lock();
        state.index += 1;
        let (created, changed) = (state.index, state.index);
        let (path, value) = (path.to_owned(), Vec::new());
        let entry = Entry { path, value, session: None, is_held: true, is_ours: true, created, changed };
        state.entries.insert(entry.path.clone(), entry);
    }

    /// Notes that a client has died: its sessions end after all else.
    pub(super) fn note_dead(&self, name: &str) {
        self.0.state.lock().dead.insert(name.to_owned());
    }

    /// Whether the operator has ended this session, or one that this locker had.
    pub(super) fn has_ended(&self, name: &str) -> bool {
        self.0.state.lock().ended.contains(name)
    }

    /// The session that holds the entry, without a step.
    pub(super) fn holder(&self, path: &str) -> Option<String> {
        self.0.state.lock().entries.get(path)?.session.clone()
    }

    /// The last message in an inbox, if it has come since so many were heard.
    pub(super) fn inbox(&self, path: &str, heard: &mut u64) -> Option<Change> {
        let state = self.0.state.lock();
        let (entry, said) = (state.entries.get(path)?, *state.said.get(path)?);
        let before = std::mem::replace(heard, said);
        (said > before).then(|| Change {
            value: entry.value.clone(),
            index: entry.changed,
            is_merged: said > before + 1,
        })
    }

    /// Waits until an inbox has changed since an index; or, where requests fail or the operator interferes, until anything has changed but another's
    /// inbox, as somebody does who also asks from time to time. Returns the index up to which changes were seen, and whether more than inboxes has
    /// changed, so that it is time to ask. A message alone is no such time: who waits for a tenure of its own client writes itself one whenever it asks,
    /// and would ask for ever where the schedule lets no other thread go on.
    pub(super) fn wait(&self, path: &str, since: u64) -> (u64, bool) {
        let mut state = self.0.state.lock();
        loop {
            let heard = state.entries.get(path).map_or(0, |entry| entry.changed);
            let moved = if self.0.is_calm { 0 } else { state.moved };
            if heard.max(moved) > since {
                return (heard.max(moved), moved > since);
            }
            state = self.0.changed.wait(state).expect("no thread has panicked");
        }
    }

    /// Whether the operator has ended any session, or broken any hold.
    pub(super) fn is_meddled_with(&self) -> bool {
        let state = self.0.state.lock();
        !state.ended.is_empty() || state.entries.keys().any(|path| path.contains(".broken/"))
    }

    /// Whether there is an entry with this prefix.
    pub(super) fn has(&self, prefix: &str) -> bool {
        !self.0.state.lock().with(prefix).is_empty()
    }

    /// Waits until all late requests were executed. Returns what is left but for inboxes, and for what tells of broken holds.
    pub(super) fn leftovers(&self) -> Vec<Entry> {
        loop {
            let late = std::mem::take(&mut *self.0.late.lock());
            if late.is_empty() {
                break;
            }
            for request in late {
                let _ = request.join();
            }
        }
        let mut state = self.0.state.lock();
        let is_dead = |session: &String| session.split_once('/').is_some_and(|(name, _)| state.dead.contains(name));
        let sessions: Vec<_> = state.sessions.iter().filter(|session| is_dead(session)).cloned().collect();
        for session in &sessions {
            state.end(session);
        }
        state
            .entries
            .values()
            .filter(|entry| ![".inbox/", ".session/", ".broken/"].iter().any(|kept| entry.path.contains(kept)))
            .cloned()
            .collect()
    }

    fn execute(&self, transaction: &Transaction) -> Committed {
        let is_blind = self.0.is_blind;
        let committed = self.0.state.lock().execute(transaction, is_blind);
        log::trace!("{transaction:?}: {committed:?}");
        self.0.changed.notify_all();
        committed
    }

    fn strikes(&self) -> bool {
        let mut state = self.0.state.lock();
        let strikes = state.faults > 0 && thread_rng().gen_ratio(1, 6);
        state.faults -= u32::from(strikes);
        strikes
    }
}

impl State {
    fn end(&mut self, session: &str) -> bool {
        self.index += 1;
        self.moved = self.index;
        self.entries.retain(|_, entry| entry.session.as_deref() != Some(session));
        self.sessions.remove(session)
    }

    fn holds(&self, check: &Check, is_blind: bool) -> bool {
        match check {
            Check::HeldBy { path, session } => {
                self.entries.get(path).is_some_and(|entry| entry.session.as_deref() == Some(session))
            }
            Check::Free { path } => !self.entries.contains_key(path),
            Check::Unchanged { path, index } => self.entries.get(path).is_some_and(|entry| entry.changed == *index),
            Check::Nothing { prefix } => {
                let waits = |entry: &Entry| entry.session.is_some() && entry.path.starts_with(prefix);
                is_blind || !self.entries.values().any(waits)
            }
        }
    }

    fn with(&self, prefix: &str) -> Vec<Entry> {
        self.entries.values().filter(|entry| entry.path.starts_with(prefix)).cloned().collect()
    }

    fn execute(&mut self, transaction: &Transaction, is_blind: bool) -> Committed {
        let Transaction { checks, writes, look } = transaction;
        if !checks.iter().all(|check| self.holds(check, is_blind)) {
            return Committed::Refused((!is_blind).then(|| self.with(look)));
        }
        let is_lock = |write: &Write| match write {
            Write::Hold { path, .. } | Write::Pass { path, .. } => path.ends_with("/.lock"),
            Write::Delete { .. } | Write::Say { .. } => false,
        };
        if self.is_delayed && writes.iter().any(is_lock) {
            return Committed::Delayed;
        }
        let heirs = writes.iter().filter_map(|write| match write {
            Write::Hold { session, .. } | Write::Pass { to: session, .. } => Some(session),
            Write::Delete { .. } | Write::Say { .. } => None,
        });
        if heirs.into_iter().any(|session| !self.sessions.contains(session)) {
            return Committed::NoSession;
        }
        // etcd puts an entry whoever holds it. Consul takes it from its session, or from nobody.
        let is_anothers = |write: &Write| match write {
            Write::Hold { path, session, .. } | Write::Pass { path, from: session, .. } => self
                .entries
                .get(path)
                .is_some_and(|entry| entry.session.is_some() && entry.session.as_deref() != Some(session)),
            Write::Delete { .. } | Write::Say { .. } => false,
        };
        if is_blind && writes.iter().any(is_anothers) {
            return Committed::Refused(None);
        }
        self.index += 1;
        let changed = self.index;
        if !writes.iter().all(|write| matches!(write, Write::Say { .. })) {
            self.moved = changed;
        }
        for write in writes {
            let (path, session, value) = match write {
                Write::Hold { path, session, value } => (path, Some(session), value),
                Write::Pass { path, to, value, .. } => (path, Some(to), value),
                Write::Say { path, value, .. } => {
                    *self.said.entry(path.clone()).or_default() += 1;
                    (path, None, value)
                }
                Write::Delete { path } => {
                    self.entries.remove(path);
                    continue;
                }
            };
            let created = self.entries.get(path).map_or(changed, |entry| entry.created);
            let entry = Entry {
                path: path.clone(),
                value: value.clone(),
                session: session.cloned(),
                is_held: session.is_some(),
                is_ours: true,
                created,
                changed,
            };
            self.entries.insert(path.clone(), entry);
        }
        Committed::Done { index: changed, entries: if look.is_empty() { Vec::new() } else { self.with(look) } }
    }
}

fn path_of(write: &Write) -> &str {
    match write {
        Write::Hold { path, .. } | Write::Pass { path, .. } | Write::Delete { path } | Write::Say { path, .. } => path,
    }
}

pub(super) fn unanswered() -> Error {
    Error::backend(BackendFailure::Unknown, "no answer")
}

impl Kv for Servers {
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    fn has_answered(&self) -> bool {
        true
    }

    fn life(&self, claim: &Claim<'_>) -> Life {
        let needed = claim.lease.max(Duration::from_secs(3600));
        Life { time: needed * 2, needed, delay: Duration::ZERO }
    }

    fn delay(&self, needed: Duration) -> Life {
        Life { time: needed, needed, delay: Duration::ZERO }
    }

    fn open_session(&self, _life: Life, name: &str, _: Deadline) -> Result<String, Error> {
        let creation = {
            let mut state = self.0.state.lock();
            state.created += 1;
            state.creation
        };
        if creation == Some(Creation::Unanswered) {
            return Err(unanswered());
        }
        Ok(self.step(|state| {
            state.is_on_agents = creation.is_some();
            state.index += 1;
            let id = format!("{name}/{}", state.index);
            state.sessions.insert(id.clone());
            id
        }))
    }

    fn renew(&self, session: &str, _: Deadline) -> Result<bool, Error> {
        let is_new = {
            let mut state = self.0.state.lock();
            *state.renewals.entry(session.to_owned()).or_default() += 1;
            state.renewed_at.insert(session.to_owned(), SystemClock.now());
            std::mem::take(&mut state.is_new)
        };
        // By a server that has just begun to lead.
        if is_new || self.strikes() {
            return Ok(false);
        }
        Ok(self.step(|state| state.sessions.contains(session)))
    }

    fn most_own_sessions(&self) -> usize {
        if self.0.is_blind { 0 } else { usize::MAX }
    }

    fn has_no_node(&self) -> bool {
        self.0.state.lock().is_on_agents
    }

    fn end_session(&self, session: &str, _: Deadline) -> Result<(), Error> {
        self.step(|state| state.end(session));
        Ok(())
    }

    fn commit(&self, transaction: &Transaction, _: Deadline) -> Result<Committed, Error> {
        step();
        let next = {
            let mut state = self.0.state.lock();
            if let Some((prefix, failure)) = state.kept.clone()
                && transaction.writes.iter().any(|write| path_of(write).starts_with(&prefix))
            {
                state.refusals += 1;
                return Err(failure());
            }
            state.next.take()
        };
        let lost = match next {
            Some(lost) => lost,
            None if !self.strikes() => {
                let committed = self.execute(transaction);
                step();
                return Ok(committed);
            }
            None if thread_rng().gen_ratio(1, 4) => {
                return Err(Error::backend(BackendFailure::NotExecuted, "no leader"));
            }
            None => Lost::some(),
        };
        match lost {
            Lost::NeverExecuted => {}
            Lost::Executed => drop(self.execute(transaction)),
            Lost::Twice => {
                drop(self.execute(transaction));
                return Ok(self.execute(transaction));
            }
            Lost::ExecutedLater => {
                let (servers, transaction) = (self.clone(), transaction.clone());
                let late = thread::spawn(move || {
                    step();
                    drop(servers.execute(&transaction));
                });
                self.0.late.lock().push(late);
            }
        }
        step();
        Err(unanswered())
    }

    fn look(&self, prefix: &str, _: Deadline) -> Result<Vec<Entry>, Error> {
        Ok(self.step(|state| {
            state.looks += 1;
            state.with(prefix)
        }))
    }

    fn listen(&self, _: &str, _: Deadline) -> Result<Box<dyn Listening>, Error> {
        Err(Error::unsupported("the model reads inboxes itself"))
    }

    fn close(&self) {}
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Servers")
    }
}
