//! A store of which a part of all commands fails, by a seeded die: before they are executed, after it, or so that they
//! are executed later than their failure is told.

use crate::support::dice::Dice;
use crate::support::owned::OwnedRequest;
use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};
use parking_lot::Mutex;
use redis_dlock::processor::{
    Inbox, InboxBreaker, Limit, LockProcessor, Message, Outcome, Request, StoreLimits, WaitQueue,
};
use redis_dlock::{BackendFailure, Error};
use std::collections::HashMap;
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
    /// How many extensions of a locker have failed in a row.
    in_a_row: Mutex<HashMap<String, u32>>,
    late: Option<Sender<(Instant, OwnedRequest)>>,
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
        let (late, commands) = unbounded::<(Instant, OwnedRequest)>();
        let tally = Arc::new(Tally::default());
        let (store, counts) = (Arc::clone(&inner), Arc::clone(&tally));
        let later = thread::spawn(move || {
            let mut due: Vec<(Instant, OwnedRequest)> = Vec::new();
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
                    let _ = store.run(&[command.request()], Limit::Attempt(store.limits().command));
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
        (Self { inner, dice, part, tally, in_a_row: Mutex::default(), late: Some(late), later: Some(later) }, faults)
    }

    fn inner_queue(&self) -> &dyn WaitQueue {
        self.inner.queue().expect("has a queue")
    }

    /// Three extensions fit before a deadline (G3), and a lease is lost if all fail. So at most two in a row do.
    fn fate_of(&self, request: &Request<'_>) -> Fate {
        match request {
            Request::Inspect { .. } => Fate::Answered,
            Request::Extend(claim) | Request::ExtendWithNumbers(claim) => {
                let mut in_a_row = self.in_a_row.lock();
                let failed = in_a_row.entry(claim.locker.to_owned()).or_default();
                let fate = if *failed < 2 { self.fate() } else { Fate::Answered };
                *failed = if fate == Fate::Answered { 0 } else { *failed + 1 };
                fate
            }
            _ => self.fate(),
        }
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
        late.send((Instant::now() + Duration::from_micros(micros), OwnedRequest::of(request))).unwrap();
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
    /// Each command has its own fate; what is executed goes in one go, in order.
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let fates: Vec<_> = requests.iter().map(|request| self.fate_of(request)).collect();
        let executed =
            requests.iter().zip(&fates).filter(|(_, fate)| matches!(fate, Fate::Answered | Fate::Unanswered));
        let executed: Vec<_> = executed.map(|(request, _)| *request).collect();
        let mut results = self.inner.run(&executed, limit).into_iter();
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

    fn limits(&self) -> StoreLimits {
        let mut limits = self.inner.limits();
        (limits.settles, limits.breaks) = (false, false);
        limits
    }

    fn has_answered(&self) -> bool {
        self.inner.has_answered()
    }

    fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        self.inner.on_new_server(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl WaitQueue for FaultyStore {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        if self.fate() != Fate::Answered {
            return Err(failed(BackendFailure::NotExecuted));
        }
        let (dice, part, tally) = (Arc::clone(&self.dice), Arc::clone(&self.part), Arc::clone(&self.tally));
        Ok(Box::new(FaultyInbox { inner: self.inner_queue().open_inbox(client, limit)?, dice, part, tally }))
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        if self.fate() != Fate::Answered {
            return Err(failed(BackendFailure::Unknown));
        }
        self.inner_queue().check_inbox(client, key, limit)
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        self.inner_queue().hears(client, key)
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.inner_queue().get_ready_to_hear(client, key, limit)
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
