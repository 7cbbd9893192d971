//! A store of which a part of all commands fails, by a seeded die: before they are executed, after it, or so that they
//! are executed later than their failure is told.

use crate::support::dice::Dice;
use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};
use parking_lot::Mutex;
use redis_dlock::{
    AcquireOutcome, AcquireRequest, BackendFailure, Error, ExtendOutcome, ExtendRequest, Gap, Inbox, InboxBreaker,
    Inspection, LockProcessor, Message, Outcome, PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseOutcome,
    ReleaseRequest, Request,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How late a late command is executed, and a late message heard, at most.
const LATEST: Duration = Duration::from_millis(20);

/// What becomes of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It does not reach the store, and this is known.
    NotExecuted,
    /// It does not reach the store, but nobody knows.
    Lost,
    /// It is executed, and the answer gets lost.
    Unanswered,
    /// It fails, and is executed later.
    Late,
}

/// What a [`FaultyStore`] did, by fate.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    commands: AtomicUsize,
    failed: AtomicUsize,
    late: AtomicUsize,
    /// How many of the late ones are executed by now.
    executed: AtomicUsize,
    broken_inboxes: AtomicUsize,
}

impl Tally {
    /// How many commands there were, how many failed, how many of these were executed later, and how many inboxes broke.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [&self.commands, &self.failed, &self.late, &self.broken_inboxes].map(|count| count.load(Ordering::Relaxed))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn LockProcessor>,
    dice: Arc<Mutex<Dice>>,
    /// How many commands of a hundred fail.
    part: Arc<AtomicU64>,
    tally: Arc<Tally>,
    late: Option<Sender<(Instant, Owned)>>,
    later: Option<JoinHandle<()>>,
}

/// The test's side of it.
#[derive(Debug)]
pub(crate) struct Faults {
    part: Arc<AtomicU64>,
    pub(crate) tally: Arc<Tally>,
}

impl Faults {
    /// Whether all commands that were to be executed late are.
    pub(crate) fn none_is_late(&self) -> bool {
        // The others are counted first: what comes in between is late.
        let executed = self.tally.executed.load(Ordering::SeqCst);
        self.tally.late.load(Ordering::SeqCst) == executed
    }

    /// From now on all commands are answered.
    pub(crate) fn end(&self) {
        self.part.store(0, Ordering::SeqCst);
    }
}

impl FaultyStore {
    /// Lets `part` of a hundred commands fail.
    pub(crate) fn new(inner: Arc<dyn LockProcessor>, part: u64, seed: u64) -> (Self, Faults) {
        let (late, commands) = unbounded::<(Instant, Owned)>();
        let tally = Arc::new(Tally::default());
        let (store, counts) = (Arc::clone(&inner), Arc::clone(&tally));
        let later = thread::spawn(move || {
            let mut due: Vec<(Instant, Owned)> = Vec::new();
            loop {
                let next = due.iter().map(|(at, _)| *at).min();
                let pause = next.map_or(LATEST, |at| at.saturating_duration_since(Instant::now()));
                let over = match commands.recv_timeout(pause) {
                    Ok(command) => {
                        due.push(command);
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    // What is left is executed at once.
                    Err(RecvTimeoutError::Disconnected) => true,
                };
                let now = Instant::now();
                for (_, command) in due.extract_if(.., |(at, _)| over || *at <= now) {
                    let _ = store.batch(&[command.request()], store.command_limit());
                    counts.executed.fetch_add(1, Ordering::SeqCst);
                }
                if over {
                    return;
                }
            }
        });
        let part = Arc::new(AtomicU64::new(part));
        let faults = Faults { part: Arc::clone(&part), tally: Arc::clone(&tally) };
        let dice = Arc::new(Mutex::new(Dice::new(seed)));
        (Self { inner, dice, part, tally, late: Some(late), later: Some(later) }, faults)
    }

    fn fate(&self) -> Fate {
        self.tally.commands.fetch_add(1, Ordering::Relaxed);
        let mut dice = self.dice.lock();
        if !dice.percent(self.part.load(Ordering::SeqCst)) {
            return Fate::Answered;
        }
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        [Fate::NotExecuted, Fate::Lost, Fate::Unanswered, Fate::Late][usize::try_from(dice.up_to(3)).unwrap()]
    }

    fn postpone(&self, request: &Request<'_>) {
        self.tally.late.fetch_add(1, Ordering::SeqCst);
        let micros = self.dice.lock().up_to(LATEST.as_micros().try_into().unwrap());
        let late = self.late.as_ref().expect("there until it is dropped");
        late.send((Instant::now() + Duration::from_micros(micros), Owned::of(request))).unwrap();
    }

    fn pass<T>(&self, request: Request<'_>, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match self.fate() {
            Fate::Answered => work(),
            Fate::NotExecuted => Err(failed(BackendFailure::NotExecuted)),
            Fate::Lost => Err(failed(BackendFailure::Unknown)),
            Fate::Unanswered => work().and(Err(failed(BackendFailure::Unknown))),
            Fate::Late => {
                self.postpone(&request);
                Err(failed(BackendFailure::Unknown))
            }
        }
    }
}

fn failed(failure: BackendFailure) -> Error {
    Error::backend(failure, "the die wants it so")
}

impl Drop for FaultyStore {
    fn drop(&mut self) {
        self.late = None;
        if let Some(later) = self.later.take() {
            let _ = later.join();
        }
    }
}

impl LockProcessor for FaultyStore {
    fn acquire(&self, request: &AcquireRequest<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.pass(Request::Acquire(*request), || self.inner.acquire(request, limit))
    }

    fn poll(&self, request: &PollRequest<'_>, limit: Duration) -> Result<PollOutcome, Error> {
        self.pass(Request::Poll(*request), || self.inner.poll(request, limit))
    }

    fn extend(&self, request: &ExtendRequest<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.pass(Request::Extend(*request), || self.inner.extend(request, limit))
    }

    fn release(&self, request: &ReleaseRequest<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.pass(Request::Release(*request), || self.inner.release(request, limit))
    }

    fn probe(&self, request: &ProbeRequest<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        self.pass(Request::Probe(*request), || self.inner.probe(request, limit))
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        self.inner.inspect(key, limit)
    }

    /// Each command has its own fate; what is executed goes in one go, in order.
    fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        let fates: Vec<_> = requests.iter().map(|_| self.fate()).collect();
        let executed =
            requests.iter().zip(&fates).filter(|(_, fate)| matches!(fate, Fate::Answered | Fate::Unanswered));
        let executed: Vec<_> = executed.map(|(request, _)| *request).collect();
        let mut results = self.inner.batch(&executed, limit).into_iter();
        let outcomes = requests.iter().zip(&fates).map(|(request, fate)| match fate {
            Fate::Answered => results.next().unwrap(),
            Fate::Unanswered => results.next().unwrap().and(Err(failed(BackendFailure::Unknown))),
            Fate::NotExecuted => Err(failed(BackendFailure::NotExecuted)),
            Fate::Lost => Err(failed(BackendFailure::Unknown)),
            Fate::Late => {
                self.postpone(request);
                Err(failed(BackendFailure::Unknown))
            }
        });
        outcomes.collect()
    }

    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        if self.fate() != Fate::Answered {
            return Err(failed(BackendFailure::NotExecuted));
        }
        let (dice, part, tally) = (Arc::clone(&self.dice), Arc::clone(&self.part), Arc::clone(&self.tally));
        Ok(Box::new(FaultyInbox { inner: self.inner.open_inbox(client, limit)?, dice, part, tally }))
    }

    fn check_inbox(&self, client: &str, limit: Duration) -> Result<(), Error> {
        if self.fate() != Fate::Answered {
            return Err(failed(BackendFailure::Unknown));
        }
        self.inner.check_inbox(client, limit)
    }

    fn command_limit(&self) -> Duration {
        self.inner.command_limit()
    }

    fn has_answered(&self) -> bool {
        self.inner.has_answered()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// An inbox of which every message may be late, and those behind it with it, or the last, and lost.
struct FaultyInbox {
    inner: Box<dyn Inbox>,
    dice: Arc<Mutex<Dice>>,
    part: Arc<AtomicU64>,
    tally: Arc<Tally>,
}

impl Inbox for FaultyInbox {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        let Some(message) = self.inner.next(limit)? else { return Ok(None) };
        let part = self.part.load(Ordering::SeqCst);
        let mut dice = self.dice.lock();
        // A tenth as often as commands fail: while it is closed, there is no hand-over to be tried.
        if dice.up_to(999) < part {
            self.tally.broken_inboxes.fetch_add(1, Ordering::Relaxed);
            return Err(failed(BackendFailure::Unknown));
        }
        let late = if dice.percent(part) { dice.up_to(LATEST.as_micros().try_into().unwrap()) } else { 0 };
        drop(dice);
        thread::sleep(Duration::from_micros(late));
        Ok(Some(message))
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        self.inner.breaker()
    }
}

/// A request that outlives its caller.
#[derive(Debug)]
struct Owned {
    key: String,
    locker: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Acquire { lease: Duration, wait: bool },
    Poll { lease: Duration },
    Extend { lease: Duration, fresh_numbers: bool },
    Release { lease: Duration, next: Option<(String, Duration)>, gap: Option<Gap> },
    Probe,
}

impl Owned {
    fn of(request: &Request<'_>) -> Self {
        let (key, locker, what) = match request {
            Request::Acquire(AcquireRequest { key, locker, lease, wait }) => {
                (key, locker, What::Acquire { lease: *lease, wait: *wait })
            }
            Request::Poll(PollRequest { key, locker, lease }) => (key, locker, What::Poll { lease: *lease }),
            Request::Extend(ExtendRequest { key, locker, lease, fresh_numbers }) => {
                (key, locker, What::Extend { lease: *lease, fresh_numbers: *fresh_numbers })
            }
            Request::Release(ReleaseRequest { key, locker, lease, next, gap }) => {
                let next = next.map(|(next, lease)| (next.to_owned(), lease));
                (key, locker, What::Release { lease: *lease, next, gap: *gap })
            }
            Request::Probe(ProbeRequest { key, locker }) => (key, locker, What::Probe),
        };
        Self { key: (*key).to_owned(), locker: (*locker).to_owned(), what }
    }

    fn request(&self) -> Request<'_> {
        let (key, locker) = (self.key.as_str(), self.locker.as_str());
        match &self.what {
            What::Acquire { lease, wait } => {
                Request::Acquire(AcquireRequest { key, locker, lease: *lease, wait: *wait })
            }
            What::Poll { lease } => Request::Poll(PollRequest { key, locker, lease: *lease }),
            What::Extend { lease, fresh_numbers } => {
                Request::Extend(ExtendRequest { key, locker, lease: *lease, fresh_numbers: *fresh_numbers })
            }
            What::Release { lease, next, gap } => {
                let next = next.as_ref().map(|(next, lease)| (next.as_str(), *lease));
                Request::Release(ReleaseRequest { key, locker, lease: *lease, next, gap: *gap })
            }
            What::Probe => Request::Probe(ProbeRequest { key, locker }),
        }
    }
}
