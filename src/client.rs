//! One client: a store, a clock, an identity, the keys in use, and two worker threads.
//!
//! A client lives as long as a generator or a lock of it. When it is closed, its threads and its store go on until the
//! last thread has left `lock` and the last hold has ended; see [`activity`](crate::activity).

use crate::activity::Activity;
use crate::cleanup::{Cleanup, Ending, Leftover};
use crate::clock::{Clock, Moment};
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error, LeaseLoss, LossCause};
use crate::key::Key;
use crate::listener::Listener;
use crate::locker::ClientId;
use crate::processor::{LockProcessor, NotOurs, Outcome, ReleaseOutcome, ReleaseRequest, Request, run};
use crate::schedule::Schedule;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use crate::tenure::{Tenure, Unsettled};
use crate::worker::Worker;
use crate::{backoff::Backoff, lease, retry};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a release is tried before it goes on the clean-up list.
const RELEASE_TRIES: u32 = 3;

/// The least time that a try of a release has, also after the lease's end.
const SHORTEST_RELEASE: Duration = Duration::from_millis(50);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A renewal may take this part of the time that the most urgent tenure has left, so that others fit in after it …
const KEEP_PART: u32 = 3;

/// … but so many round trips (a fresh connection takes three) if they fit at all: this part of the time that is left.
const KEEP_TRIPS: u32 = 4;
const KEEP_MOST_PART: u32 = 2;

/// After a faster round trip, the slowest one that is remembered falls by this part of it.
const TRIP_DECAY: u64 = 8;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) processor: Box<dyn LockProcessor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cleanup: Cleanup,
    id: ClientId,
    this: Weak<Self>,
    keys: Mutex<HashMap<String, Weak<Key>>>,
    last_key: AtomicU64,
    waiting: Mutex<Schedule<Arc<Key>>>,
    retry_thread: Worker,
    held: Mutex<Held>,
    lease_thread: Worker,
    listener: Listener,
    /// Whether messages may be sent, or somebody is about to find out.
    is_checked: AtomicBool,
    /// The slowest round trip of late, in nanoseconds.
    trip: AtomicU64,
    activity: Activity,
    /// Whether the end has come; held while it comes, so that it comes once.
    is_down: Mutex<bool>,
}

/// A thread inside `lock`.
#[must_use]
pub(crate) struct Inside<'a>(&'a Client);

impl Inside<'_> {
    /// The thread leaves with a hold, which takes its place.
    pub(crate) fn begin_hold(self) {
        self.0.activity.begin_hold();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.activity.leave();
    }
}

/// A hold that is about to be over, release and all.
#[must_use]
pub(crate) struct Leaving<'a>(&'a Client);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.0.activity.end_hold() {
            self.0.shut_down();
        }
    }
}

/// The tenures that the lease thread keeps.
#[derive(Debug)]
struct Held {
    schedule: Schedule<Arc<Key>>,
    /// The deadlines of the live ones.
    deadlines: Schedule<()>,
}

impl Client {
    pub(crate) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        listen: bool,
    ) -> Result<Arc<Self>, Error> {
        let id = ClientId::draw()?;
        Ok(Arc::new_cyclic(|this| Self {
            processor,
            cleanup: Cleanup::new(Arc::clone(&clock)),
            id,
            this: Weak::clone(this),
            keys: Mutex::new(HashMap::new()),
            last_key: AtomicU64::new(0),
            waiting: Mutex::new(Schedule::new()),
            retry_thread: Worker::new("dlock-retry", Arc::clone(&clock)),
            held: Mutex::new(Held { schedule: Schedule::new(), deadlines: Schedule::new() }),
            lease_thread: Worker::new("dlock-lease", Arc::clone(&clock)),
            clock,
            listener: Listener::new(listen),
            is_checked: AtomicBool::new(false),
            trip: AtomicU64::new(0),
            activity: Activity::default(),
            is_down: Mutex::new(false),
        }))
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_str()
    }

    /// Whether a locker is one of this client.
    pub(crate) fn is_ours(&self, locker: &str) -> bool {
        locker.strip_prefix(self.id()).is_some_and(|rest| rest.starts_with('-'))
    }

    /// A fresh locker for a tenure with these settings.
    pub(crate) fn next_locker(&self, settings: &DLockConfig) -> Arc<str> {
        self.id.next_locker(self.hands_over() && !settings.linger().is_zero()).into()
    }

    /// The key of that name, shared by all its handles.
    pub(crate) fn key(&self, name: &str) -> Arc<Key> {
        let mut keys = self.keys.lock();
        if let Some(key) = keys.get(name).and_then(Weak::upgrade) {
            return key;
        }
        let id = self.last_key.fetch_add(1, Ordering::Relaxed);
        let key = Arc::new(Key::new(id, name.to_owned(), Weak::clone(&self.this)));
        keys.insert(name.to_owned(), Arc::downgrade(&key));
        key
    }

    /// The key of that name, if it is in use.
    pub(crate) fn known_key(&self, name: &str) -> Option<Arc<Key>> {
        self.keys.lock().get(name).and_then(Weak::upgrade)
    }

    /// All keys in use.
    pub(crate) fn known_keys(&self) -> Vec<Arc<Key>> {
        self.keys.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Forgets a key whose last handle went, unless a new one of the same name was made since.
    pub(crate) fn forget_key(&self, name: &str) {
        let mut keys = self.keys.lock();
        if keys.get(name).is_some_and(|key| key.strong_count() == 0) {
            keys.remove(name);
        }
    }

    /// Sends one request.
    pub(crate) fn run(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        run(&*self.processor, request, limit)
    }

    /// Sends many requests in one go; as many results, whatever the store returns.
    pub(crate) fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let mut results = self.processor.batch(requests, limit);
        results.resize_with(requests.len(), || {
            Err(Error::backend(BackendFailure::Unknown, "the store returned fewer results than it had requests"))
        });
        results
    }

    /// Releases a tenure: three tries, then the clean-up list.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] when the key was not ours any more; else the last try's.
    pub(crate) fn give_back(&self, key: &str, tenure: &Tenure) -> Result<(), Error> {
        self.release(key, tenure, false)
    }

    /// Releases a tenure, also when a release of it may have been executed before.
    ///
    /// # Errors
    ///
    /// As [`give_back`](Self::give_back).
    pub(crate) fn release(&self, key: &str, tenure: &Tenure, mut perhaps_done: bool) -> Result<(), Error> {
        let request =
            ReleaseRequest { key, locker: &tenure.locker, lease: tenure.lease(), next: None, gap: tenure.gap };
        let mut failures = 0;
        loop {
            // After the lease's end the key is gone by itself: there is nothing to wait for then.
            let left = tenure.deadline().since(self.clock.now());
            let limit = left.max(SHORTEST_RELEASE).min(self.processor.command_limit());
            match self.processor.release(&request, limit) {
                // After a try without an answer, "not ours" may be that try's own work.
                Ok(ReleaseOutcome::NotOurs(other)) if !perhaps_done => return self.not_ours(key, tenure, other),
                Ok(_) => return Ok(()),
                Err(error) => {
                    failures += 1;
                    perhaps_done |= matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                    if failures >= RELEASE_TRIES || left.is_zero() || !matches!(error, Error::Backend { .. }) {
                        log::warn!("lock {key:?}: {:?} could not be released: {error}", tenure.locker);
                        self.release_later(key, tenure);
                        return Err(error);
                    }
                    thread::sleep(Backoff::capped((tenure.lease() / 6).min(LONGEST_PAUSE)).after(failures));
                }
            }
        }
    }

    /// What it means that the key of a tenure whose hold ended in time was not ours when the release came: it was lost,
    /// unless its lease, which nobody renews after the hold, has just ended.
    pub(crate) fn not_ours(&self, key: &str, tenure: &Tenure, other: NotOurs) -> Result<(), Error> {
        if self.clock.now() >= tenure.deadline() {
            return Ok(());
        }
        let (locker, cause) = (tenure.locker.to_string(), LossCause::from(other));
        Err(Error::LeaseLost(Box::new(LeaseLoss { key: key.to_owned(), locker, cause, ago: Duration::ZERO })))
    }

    /// Leaves the release of a tenure to the clean-up list.
    pub(crate) fn release_later(&self, key: &str, tenure: &Tenure) {
        self.cleanup.add(key, &tenure.locker, tenure.lease(), Ending::ReleaseUnanswered(tenure.deadline()));
        self.wake_cleanup();
    }

    /// Gives up a locker that was sent: by the clean-up list, at once.
    pub(crate) fn abandon(&self, key: &str, unsettled: Option<Unsettled>) {
        if let Some(Unsettled { locker, settings, answered, .. }) = unsettled {
            let ending = if answered { Ending::GivenUp } else { Ending::AcquireUnanswered };
            self.cleanup.add(key, &locker, settings.lease(), ending);
            self.wake_cleanup();
        }
    }
}

/// The retry thread's book.
impl Client {
    pub(crate) fn start_retry_thread(&self) -> Result<(), Error> {
        self.retry_thread.start(&self.this, retry::round)
    }

    pub(crate) fn retry_at(&self, key: &Arc<Key>, at: Moment) {
        self.waiting.lock().put(key.id, at, Arc::clone(key));
        self.retry_thread.wake_by(at);
    }

    /// Takes a key for which nobody waits any more out of the book. With the key's mutex held.
    pub(crate) fn forget_retry(&self, key: &Key) {
        let removed = self.waiting.lock().remove(key.id);
        drop(removed);
    }

    /// Makes every waited-for key due now.
    pub(crate) fn hasten_retries(&self, now: Moment) {
        self.waiting.lock().hasten(now);
        self.retry_thread.wake_by(now);
    }

    pub(crate) fn take_due_retries(&self, now: Moment) -> Vec<Arc<Key>> {
        self.waiting.lock().take_due(now, usize::MAX)
    }

    pub(crate) fn next_retry(&self) -> Moment {
        self.waiting.lock().next().min(self.cleanup.next())
    }

    /// Lets the retry thread see to the clean-up list.
    pub(crate) fn wake_cleanup(&self) {
        match self.start_retry_thread() {
            Ok(()) => self.retry_thread.wake_by(self.cleanup.next()),
            Err(Error::ShutDown) => {}
            Err(error) => log::error!("the clean-up list waits: {error}"),
        }
    }
}

/// The inbox.
impl Client {
    /// Whether waiters are handed the lock: by messages between processes, by one another within this one.
    pub(crate) fn hands_over(&self) -> bool {
        self.listener.is_enabled()
    }

    /// Whether grants are heard.
    pub(crate) fn is_listening(&self) -> bool {
        self.listener.is_subscribed()
    }

    /// Sees to it that grants will be heard; until then, and when that fails, waiting threads ask.
    pub(crate) fn listen(&self) {
        if let Err(error) = self.listener.start(&self.this) {
            log::error!("grants will not be heard: {error}");
        }
    }
}

/// The lease thread's book.
impl Client {
    /// Prepares for the first lock: the lease thread, and the right to tell others. Both once; cheap afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] when messages may not be sent, [`Error::Backend`] when the operating system refuses a thread. That the
    /// store cannot be reached is not looked at here.
    pub(crate) fn prepare(&self, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        self.start_lease_thread()?;
        if !self.hands_over() || self.is_checked.load(Ordering::Acquire) || self.is_checked.swap(true, Ordering::AcqRel)
        {
            return Ok(());
        }
        let checked = self.processor.check_inbox(self.id(), limit());
        if checked.is_err() {
            self.is_checked.store(false, Ordering::Release);
        }
        match checked {
            Err(error @ Error::Denied { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    fn start_lease_thread(&self) -> Result<(), Error> {
        self.lease_thread.start(&self.this, lease::round)
    }

    /// Takes a new tenure into the lease thread's care.
    pub(crate) fn keep(&self, key: &Arc<Key>, tenure: &Tenure) {
        self.keep_until(key, tenure, tenure.due(self.trip()));
    }

    /// Sets when the lease thread has to look at a kept tenure.
    pub(crate) fn keep_until(&self, key: &Arc<Key>, tenure: &Tenure, due: Moment) {
        let mut held = self.held.lock();
        held.schedule.put(key.id, due, Arc::clone(key));
        held.deadlines.put(key.id, tenure.deadline(), ());
        drop(held);
        self.lease_thread.wake_by(due);
    }

    /// Ends the care for a tenure that was lost. The book keeps its key until the hold ends: a stale hold has to be found
    /// again by its thread.
    pub(crate) fn keep_no_more(&self, key: &Arc<Key>) {
        let mut held = self.held.lock();
        held.deadlines.remove(key.id);
        held.schedule.put(key.id, Moment::NEVER, Arc::clone(key));
    }

    /// Takes the tenure of a hold that ends out of the book.
    pub(crate) fn forget_kept(&self, key: &Key) {
        let mut held = self.held.lock();
        held.deadlines.remove(key.id);
        let removed = held.schedule.remove(key.id);
        drop(held);
        drop(removed);
    }

    pub(crate) fn take_due_leases(&self, now: Moment) -> Vec<Arc<Key>> {
        self.held.lock().schedule.take_due(now, usize::MAX)
    }

    pub(crate) fn next_lease(&self) -> Moment {
        self.held.lock().schedule.next()
    }

    /// Notes how long the store took to answer.
    pub(crate) fn note_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // A lost update of two threads at once costs nothing but precision.
        let before = self.trip.load(Ordering::Relaxed);
        self.trip.store(took.max(before - before / TRIP_DECAY), Ordering::Relaxed);
    }

    /// The slowest round trip of late: a lease that is short for it is renewed earlier.
    pub(crate) fn trip(&self) -> Duration {
        Duration::from_nanos(self.trip.load(Ordering::Relaxed))
    }

    /// How long a renewal may take that must be through before `deadline`: it should leave time for others after it, for
    /// this tenure and for every other one that this thread keeps.
    pub(crate) fn keep_limit(&self, deadline: Moment, now: Moment) -> Duration {
        let most_urgent = self.held.lock().deadlines.next().min(deadline).since(now);
        let at_least = (self.trip() * KEEP_TRIPS).min(deadline.since(now) / KEEP_MOST_PART);
        (most_urgent / KEEP_PART).max(at_least).min(self.processor.command_limit()).max(Duration::from_millis(1))
    }
}

/// The end.
impl Client {
    pub(crate) fn is_closed(&self) -> bool {
        self.activity.is_closed()
    }

    /// Lets the calling thread in.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] after the closing.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Error> {
        self.activity.enter().map(|()| Inside(self))
    }

    /// Counts out a hold when what this returns is dropped.
    pub(crate) fn leaving(&self) -> Leaving<'_> {
        Leaving(self)
    }

    /// Turns new and waiting threads away, and waits until they have left; holds go on, and the last of them ends the rest.
    pub(crate) fn close(&self) {
        if self.activity.close() {
            for key in self.known_keys() {
                key.nudge_all();
            }
        }
        self.end_lingering();
        if self.activity.wait_until_left() {
            self.shut_down();
        }
    }

    /// Gives back what nobody holds. After the closing nothing comes to linger.
    fn end_lingering(&self) {
        let over: Vec<_> = self.known_keys().iter().filter_map(|key| key.end_linger(self, true)).collect();
        retry::release(self, over, self.processor.command_limit());
    }

    /// Ends both threads and lets go of the store, once.
    fn shut_down(&self) {
        let mut is_down = self.is_down.lock();
        if std::mem::replace(&mut *is_down, true) {
            return;
        }
        self.end_lingering();
        self.retry_thread.stop();
        // Before the leftovers: a grant heard at the last moment is one of them.
        self.listener.stop();
        self.release_leftovers();
        self.lease_thread.stop();
        self.processor.close();
    }
}

impl Client {
    /// Releases what is on the clean-up list once more, as long as the store answers.
    fn release_leftovers(&self) {
        let (mut released, mut unanswered) = (0, 0);
        while unanswered == 0 {
            let leftovers = self.cleanup.take_due(Moment::NEVER);
            if leftovers.is_empty() {
                break;
            }
            let requests: Vec<_> = leftovers.iter().map(Leftover::request).collect();
            let results = self.batch(&requests, self.processor.command_limit());
            unanswered = results.iter().filter(|result| result.is_err()).count();
            released += results.len() - unanswered;
        }
        if released + unanswered > 0 {
            log::info!("closing: {released} leftovers released, {unanswered} without an answer");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.activity.close();
        self.shut_down();
    }
}
