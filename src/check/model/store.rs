//! The store of the model: the embedded one behind a network that delays, loses and repeats nothing by itself, but draws
//! what becomes of each command and each message.
//!
//! An operation is one step. Between it and its question, and between it and its answer, everybody else may act and time may pass.

use super::command::Command;
use super::inbox::ModelInbox;
use super::time::{self, StoreClock};
use super::twins::{Condvar, Mutex, thread};
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::store::memory::MemoryLockProcessor;
use crate::store::processor::{
    AcquireOutcome, AcquireRequest, ExtendOutcome, ExtendRequest, Inbox, Inspection, LockProcessor, Message, Outcome,
    PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseOutcome, ReleaseRequest, Request, run,
};
use shuttle::rand::{Rng, thread_rng};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How many faults of a kind an execution may have at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Commands without an answer, or refused.
    pub(crate) commands: u32,
    /// Messages that never arrive.
    pub(crate) messages: u32,
    /// Broken subscriptions.
    pub(crate) breaks: u32,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    Refused,
    /// It never arrives.
    Lost,
    /// It is executed, but nobody hears the answer.
    Unanswered,
    /// It is executed after its asker has given it up.
    Late,
}

/// What clients have taken in.
#[derive(Default)]
struct Heard {
    /// The lockers that were given the key.
    granted: HashSet<String>,
    /// The lockers that hold what others wait for, and how many holds they had since.
    contended: HashMap<String, u32>,
}

/// One store and a client's way to it.
#[derive(Clone)]
pub(crate) struct Network {
    pub(super) shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
}

pub(super) struct Shared {
    store: MemoryLockProcessor,
    faults: std::sync::Mutex<Faults>,
    lease: Duration,
    /// Changes with everything that may have sent a message.
    pub(super) news: Mutex<u64>,
    pub(super) changed: Condvar,
    /// The commands that are still to come.
    late: std::sync::Mutex<Vec<thread::JoinHandle<()>>>,
    /// Whether a command came so late that a client may have forgotten it.
    too_late: AtomicBool,
    /// Whether a command had no answer.
    faulty: AtomicBool,
    heard: std::sync::Mutex<Heard>,
}

impl Network {
    pub(crate) fn new(faults: Faults, lease: Duration) -> Self {
        let shared = Arc::new(Shared {
            store: MemoryLockProcessor::with_clock(Arc::new(StoreClock)),
            faults: std::sync::Mutex::new(faults),
            lease,
            news: Mutex::new(0),
            changed: Condvar::new(),
            late: std::sync::Mutex::default(),
            too_late: AtomicBool::new(false),
            faulty: AtomicBool::new(false),
            heard: std::sync::Mutex::default(),
        });
        Self { shared, closed: Arc::default() }
    }

    /// The way of another client.
    pub(crate) fn another(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), closed: Arc::default() }
    }

    /// The store itself, to look at.
    pub(crate) fn store(&self) -> &MemoryLockProcessor {
        &self.shared.store
    }

    /// Ends the faults, and waits for the commands that are still to come.
    pub(crate) fn calm(&self) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = Faults::default();
        let late = std::mem::take(&mut *self.shared.late.lock().unwrap_or_else(PoisonError::into_inner));
        for command in late {
            let _ = command.join();
        }
    }

    /// Whether what a late command left behind has to go by the end of its lease.
    pub(crate) fn was_too_late(&self) -> bool {
        self.shared.too_late.load(Ordering::Relaxed)
    }

    /// Whether a command was not answered.
    pub(crate) fn was_faulty(&self) -> bool {
        self.shared.faulty.load(Ordering::Relaxed)
    }

    /// Whether a client has taken in that this locker was given the key.
    pub(crate) fn has_heard_grant(&self, locker: &str) -> bool {
        self.memory().granted.contains(locker)
    }

    /// Whether a client has taken in that others wait for what this locker holds.
    pub(crate) fn has_heard_contention(&self, locker: &str) -> bool {
        self.memory().contended.contains_key(locker)
    }

    /// Counts a hold of this locker, if it has; how many there were since.
    pub(crate) fn count_hold(&self, locker: &str) -> Option<u32> {
        let mut memory = self.memory();
        let holds = memory.contended.get_mut(locker)?;
        *holds += 1;
        Some(*holds)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has taken in a message.
    pub(super) fn heard(&self, message: Message) {
        log::trace!("{:?}: taken in: {message:?}", time::now());
        match message {
            Message::Granted { locker, .. } => {
                self.memory().granted.insert(locker);
            }
            Message::Contended { locker, .. } => {
                self.memory().contended.entry(locker).or_default();
            }
        }
    }

    /// Takes one fault of the kind, now and then, if there is one left.
    pub(super) fn strikes(&self, kind: impl FnOnce(&mut Faults) -> &mut u32) -> bool {
        let mut faults = self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let left = kind(&mut faults);
        let strikes = *left > 0 && thread_rng().gen_ratio(1, 5);
        *left -= u32::from(strikes);
        strikes
    }

    fn fate(&self) -> Fate {
        if !self.strikes(|faults| &mut faults.commands) {
            return Fate::Answered;
        }
        self.shared.faulty.store(true, Ordering::Relaxed);
        [Fate::Refused, Fate::Lost, Fate::Unanswered, Fate::Late][thread_rng().gen_range(0..4)]
    }

    /// Executes a command.
    fn execute(&self, request: &Request<'_>) -> Result<Outcome, Error> {
        let outcome = run(&self.shared.store, request, Duration::ZERO);
        log::trace!("{:?}: {request:?}: {outcome:?}", time::now());
        if !matches!(request, Request::Extend(_) | Request::Probe(_)) {
            *self.shared.news.lock() += 1;
            self.shared.changed.notify_all();
        }
        outcome
    }

    fn call(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        time::step();
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::ShutDown);
        }
        match self.fate() {
            Fate::Answered => {
                let outcome = self.execute(request);
                if let (Request::Extend(request), Ok(Outcome::Extend(ExtendOutcome::Extended { waiting: 0, .. }))) =
                    (request, &outcome)
                {
                    // Who waited was so slow that the store has forgotten it.
                    self.memory().contended.remove(request.locker);
                }
                time::step();
                return outcome;
            }
            Fate::Refused => return Err(Error::backend(BackendFailure::NotExecuted, "the store is loading")),
            Fate::Lost => {}
            Fate::Unanswered => {
                let _ = self.execute(request);
            }
            Fate::Late => {
                let (network, command, sent_at) = (self.clone(), Command::of(request), time::now());
                let handle = thread::spawn(move || network.execute_late(&command, sent_at));
                self.shared.late.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            }
        }
        // A time-out, or the end of the connection.
        if thread_rng().gen_bool(0.5) {
            thread::sleep(limit);
        }
        Err(Error::backend(BackendFailure::Unknown, "no answer"))
    }

    fn execute_late(&self, command: &Command, sent_at: Moment) {
        if thread_rng().gen_bool(0.5) {
            thread::sleep(self.shared.lease / thread_rng().gen_range(2..8));
        }
        time::step();
        if time::now().since(sent_at) >= self.shared.lease || self.closed.load(Ordering::Relaxed) {
            self.shared.too_late.store(true, Ordering::Relaxed);
        }
        let _ = self.execute(&command.request());
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

macro_rules! outcome {
    ($self:ident, $request:ident, $limit:ident, $kind:ident) => {
        match $self.call(&Request::$kind(*$request), $limit)? {
            Outcome::$kind(outcome) => Ok(outcome),
            other => panic!("{other:?} is no answer to {:?}", $request),
        }
    };
}

impl LockProcessor for Network {
    fn acquire(&self, request: &AcquireRequest<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        if !request.wait || thread_rng().gen_ratio(2, 3) {
            return outcome!(self, request, limit, Acquire);
        }
        // As a store that looks at nothing but the key at first.
        let look = &AcquireRequest { wait: false, ..*request };
        let busy = match outcome!(self, look, limit, Acquire)? {
            AcquireOutcome::Busy(busy) => busy,
            other => return Ok(other),
        };
        if thread_rng().gen_bool(0.5) {
            return Ok(AcquireOutcome::Unqueued { busy, under_way: false });
        }
        match outcome!(self, request, limit, Acquire) {
            Err(Error::Backend { failure, .. }) => {
                Ok(AcquireOutcome::Unqueued { busy, under_way: failure == BackendFailure::Unknown })
            }
            answer => answer,
        }
    }

    fn poll(&self, request: &PollRequest<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        outcome!(self, request, limit, Poll)
    }

    fn extend(&self, request: &ExtendRequest<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        outcome!(self, request, limit, Extend)
    }

    fn release(&self, request: &ReleaseRequest<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        outcome!(self, request, limit, Release)
    }

    fn probe(&self, request: &ProbeRequest<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        outcome!(self, request, limit, Probe)
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        self.shared.store.inspect(key, limit)
    }

    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        requests.iter().map(|request| self.call(request, limit)).collect()
    }

    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        time::step();
        if self.strikes(|faults| &mut faults.breaks) {
            return Err(Error::backend(BackendFailure::NotExecuted, "refused"));
        }
        let inbox = self.shared.store.open_inbox(client, limit)?;
        Ok(Box::new(ModelInbox::new(self.clone(), inbox)))
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn command_limit(&self) -> Duration {
        self.shared.lease / 4
    }
}
