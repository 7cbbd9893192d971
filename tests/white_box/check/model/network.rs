//! The network between the clients and the embedded store. It does not delay, lose or repeat anything by itself; what becomes of each
//! command and each message is drawn at random.
//!
//! An operation is one step. Between request and operation, and between operation and reply, all other threads may act and time may
//! pass.

use super::owned::OwnedRequest;
use super::shims::{Condvar, Mutex, thread};
use super::time::{self, StoreClock};
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::{
    AcquireOutcome, Break, BreakOutcome, DelayReleaseOutcome, ExtendOutcome, Extension, Limit, Message, Operations,
    Outcome, PollOutcome, ReleaseOutcome, Request,
};
use crate::store::memory::MemoryLockProcessor;
use shuttle::rand::{Rng, thread_rng};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How many faults of each kind an execution may have at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Commands that are refused or not answered.
    pub(crate) commands: u32,
    /// Messages that never arrive.
    pub(crate) messages: u32,
    /// Broken subscriptions.
    pub(crate) breaks: u32,
    /// Whether each grant is heard only when its hold is being released.
    pub(crate) late_grants: bool,
}

/// What happens to a command.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    Refused,
    /// It never arrives.
    Lost,
    /// It is executed, but its reply is lost.
    Unanswered,
    /// It is executed after its caller has given it up.
    Late,
    /// It is executed, and no replica acknowledges it. Only where the store asks replicas.
    Unacknowledged,
}

/// What clients have heard and done.
#[derive(Default)]
struct Heard {
    /// The lockers that were given the key.
    granted: HashSet<String>,
    /// The lockers whose key others wait for, and how many holds each has had since.
    contended: HashMap<String, u32>,
    /// The lockers of which a reply has said that they have the key.
    answered: HashSet<String>,
    /// The lockers whose holds were broken, or are being broken.
    broken: HashSet<String>,
    /// The lockers whose releases were sent.
    released: HashSet<String>,
}

/// One store, and a client's connection to it.
#[derive(Clone)]
pub(crate) struct Network {
    pub(super) shared: Arc<Shared>,
    pub(super) closed: Arc<AtomicBool>,
}

pub(super) struct Shared {
    pub(super) store: MemoryLockProcessor,
    faults: std::sync::Mutex<Faults>,
    pub(super) lease: Duration,
    /// Whether the store asks replicas, so that a message alone begins no hold.
    pub(super) asks_replicas: bool,
    /// Whether the client is told now and then that the server is silent, and so asks on other threads.
    pub(super) seems_silent: bool,
    /// Whether releases may be posted.
    pub(super) posts: bool,
    /// Changes whenever a message may have been sent.
    pub(super) news: Mutex<u64>,
    pub(super) changed: Condvar,
    /// The commands that are still to be executed.
    late: std::sync::Mutex<Vec<thread::JoinHandle<()>>>,
    /// Whether a command came so late that a client may have forgotten it.
    too_late: AtomicBool,
    /// Whether a command was not answered.
    faulty: AtomicBool,
    heard: std::sync::Mutex<Heard>,
}

impl Network {
    pub(crate) fn new(faults: Faults, lease: Duration) -> Self {
        let shared = Arc::new(Shared {
            store: MemoryLockProcessor::with_clock(Arc::new(StoreClock)),
            faults: std::sync::Mutex::new(faults),
            lease,
            asks_replicas: thread_rng().gen_bool(0.5),
            seems_silent: thread_rng().gen_bool(0.25),
            posts: thread_rng().gen_bool(0.5),
            news: Mutex::new(0),
            changed: Condvar::new(),
            late: std::sync::Mutex::default(),
            too_late: AtomicBool::new(false),
            faulty: AtomicBool::new(false),
            heard: std::sync::Mutex::default(),
        });
        Self { shared, closed: Arc::default() }
    }

    /// A connection for another client.
    pub(crate) fn another(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), closed: Arc::default() }
    }

    /// Closes the connection.
    pub(super) fn end(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.note_news();
    }

    /// Waits until the client has closed its connection.
    pub(crate) fn await_end(&self) {
        let mut news = self.shared.news.lock();
        while !self.closed.load(Ordering::Relaxed) {
            self.shared.changed.wait(&mut news);
        }
    }

    /// Lets those look again who wait for messages, or for the end of a client.
    pub(super) fn note_news(&self) {
        *self.shared.news.lock() += 1;
        self.shared.changed.notify_all();
    }

    /// The store itself, for inspection.
    pub(crate) fn store(&self) -> &MemoryLockProcessor {
        &self.shared.store
    }

    /// Ends the faults, and waits until all late commands have been executed. Returns whether there were any.
    pub(crate) fn calm(&self) -> bool {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = Faults::default();
        let late = std::mem::take(&mut *self.shared.late.lock().unwrap_or_else(PoisonError::into_inner));
        let were_any = !late.is_empty();
        for command in late {
            let _ = command.join();
        }
        were_any
    }

    /// Whether a late command may have left something behind that only the end of its lease removes.
    pub(crate) fn was_too_late(&self) -> bool {
        self.shared.too_late.load(Ordering::Relaxed)
    }

    /// Whether a command was not answered.
    pub(crate) fn was_faulty(&self) -> bool {
        self.shared.faulty.load(Ordering::Relaxed)
    }

    /// Whether a client has processed the grant of the key to this locker.
    pub(crate) fn has_heard_grant(&self, locker: &str) -> bool {
        self.memory().granted.contains(locker)
    }

    /// Whether a client has processed the message that others wait for this locker's key.
    pub(crate) fn has_heard_contention(&self, locker: &str) -> bool {
        self.memory().contended.contains_key(locker)
    }

    /// Whether a hold of this locker may begin.
    pub(crate) fn may_begin(&self, locker: &str) -> bool {
        !self.shared.asks_replicas || self.memory().answered.contains(locker)
    }

    /// Whether the hold of this locker was broken, or is being broken.
    pub(crate) fn is_broken(&self, locker: &str) -> bool {
        self.memory().broken.contains(locker)
    }

    /// Breaks the hold of a locker.
    pub(super) fn break_hold(&self, order: &Break<'_>, limit: Duration) -> Result<BreakOutcome, Error> {
        time::step();
        self.memory().broken.insert(order.locker.to_owned());
        let outcome = self.shared.store.break_hold(order, limit);
        log::trace!("{:?}: {order:?}: {outcome:?}", time::now());
        if !matches!(outcome, Ok(BreakOutcome::Broken { .. })) {
            self.memory().broken.remove(order.locker);
        }
        self.note_news();
        time::step();
        outcome
    }

    /// Counts a hold of this locker, if others are known to wait for it. Returns how many holds there were since.
    pub(crate) fn count_hold(&self, locker: &str) -> Option<u32> {
        let mut memory = self.memory();
        let holds = memory.contended.get_mut(locker)?;
        *holds += 1;
        Some(*holds)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a client has processed a message.
    pub(super) fn heard(&self, message: Message) {
        log::trace!("{:?}: taken in: {message:?}", time::now());
        match message {
            Message::Granted { locker, .. } => {
                self.memory().granted.insert(locker);
            }
            Message::Contended { locker, .. } => {
                self.memory().contended.entry(locker).or_default();
            }
            Message::Broken { .. } | Message::Said { .. } | Message::Changed { .. } | Message::ChangedAmong { .. } => {}
        }
    }

    /// Whether a message is heard later than this moment.
    pub(super) fn is_late(&self, message: &Message) -> bool {
        self.are_grants_late()
            && matches!(message, Message::Granted { locker, .. } if !self.memory().released.contains(locker))
    }

    fn are_grants_late(&self) -> bool {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).late_grants
    }

    /// Notes that a release is sent, if messages wait for it.
    fn note_release(&self, request: &Request<'_>) {
        if let Request::Release(claim) | Request::HandOver(claim, _) = request
            && self.are_grants_late()
        {
            self.memory().released.insert(claim.locker.to_owned());
            self.note_news();
        }
    }

    /// Uses up a fault of the kind, with a certain probability, if there is one left.
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
        let fates = [Fate::Refused, Fate::Lost, Fate::Unanswered, Fate::Late, Fate::Unacknowledged];
        fates[thread_rng().gen_range(0..4 + usize::from(self.shared.asks_replicas))]
    }

    /// What becomes of an outcome that no replica acknowledges.
    fn unacknowledged(&self, request: &Request<'_>, outcome: Result<Outcome, Error>) -> Result<Outcome, Error> {
        let failure = match outcome {
            Ok(Outcome::Acquire(AcquireOutcome::Acquired(_)) | Outcome::Poll(PollOutcome::Acquired(_))) => {
                let _ = request.claim().map(|claim| self.execute(&Request::Release(*claim)));
                BackendFailure::Unacknowledged
            }
            Ok(Outcome::Extend(ExtendOutcome::Extended(_)) | Outcome::DelayRelease(DelayReleaseOutcome::Delayed)) => {
                BackendFailure::Unacknowledged
            }
            Ok(Outcome::Release(ReleaseOutcome::Passed(_))) => BackendFailure::Unknown,
            other => return other,
        };
        Err(Error::backend(failure, "no replica acknowledges it"))
    }

    /// Notes which locker has the key, as a reply says.
    fn note_holder(&self, request: &Request<'_>, outcome: &Outcome) {
        let holder = match (request, outcome) {
            (Request::HandOver(_, next), Outcome::Release(ReleaseOutcome::Passed(_))) => next.locker,
            (_, Outcome::Acquire(AcquireOutcome::Acquired(_)) | Outcome::Poll(PollOutcome::Acquired(_)))
            | (_, Outcome::Extend(ExtendOutcome::Extended(_))) => locker_of(request),
            _ => return,
        };
        self.memory().answered.insert(holder.to_owned());
    }

    /// Executes a command.
    fn execute(&self, request: &Request<'_>) -> Result<Outcome, Error> {
        let outcome = self.shared.store.run_one(*request, Limit::Call(Duration::ZERO));
        log::trace!("{:?}: {request:?}: {outcome:?}", time::now());
        if !matches!(request, Request::Extend(_) | Request::ExtendWithNumbers(_) | Request::Probe(_)) {
            self.note_news();
        }
        outcome
    }

    /// Carries out a request, as its fate is drawn.
    pub(super) fn call(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        self.note_release(request);
        time::step();
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::ShutDown);
        }
        match self.fate() {
            Fate::Answered => {
                let outcome = self.execute(request);
                if let Ok(Outcome::Extend(ExtendOutcome::Extended(Extension { waiting: 0, .. }))) = &outcome {
                    // The waiter was so slow that the store has forgotten it.
                    self.memory().contended.remove(locker_of(request));
                }
                outcome.iter().for_each(|outcome| self.note_holder(request, outcome));
                time::step();
                return outcome;
            }
            Fate::Unacknowledged => return self.unacknowledged(request, self.execute(request)),
            Fate::Refused => return Err(Error::backend(BackendFailure::NotExecuted, "the store is loading")),
            Fate::Lost => {}
            Fate::Unanswered => {
                let _ = self.execute(request);
            }
            Fate::Late => {
                let (network, command, sent_at) = (self.clone(), OwnedRequest::of(request), time::now());
                let handle = thread::spawn(move || network.execute_late(&command, sent_at));
                self.shared.late.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            }
        }
        // Either the caller's time runs out, or the connection breaks.
        if thread_rng().gen_bool(0.5) {
            thread::sleep(limit);
        }
        Err(Error::backend(BackendFailure::Unknown, "no answer"))
    }

    fn execute_late(&self, command: &OwnedRequest, sent_at: Moment) {
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

fn locker_of<'a>(request: &Request<'a>) -> &'a str {
    request.claim().map_or("", |claim| claim.locker)
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}
