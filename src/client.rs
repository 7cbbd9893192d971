//! One client: a store, a clock, an identity, the keys in use, and two worker threads.
//!
//! A client lives as long as a generator or a lock of it. `closed` and `active` decide together when the store is no
//! longer needed: whoever asks or holds has entered; who enters after the closing is turned away; the last one that
//! leaves after the closing shuts the rest down.

use crate::cleanup::{Cleanup, Ending};
use crate::clock::{Clock, Moment};
use crate::error::{BackendFailure, Error, LeaseLoss, LossCause};
use crate::key::Key;
use crate::locker::ClientId;
use crate::processor::{LockProcessor, NotOurs, Outcome, ReleaseOutcome, ReleaseRequest, Request, run};
use crate::schedule::Schedule;
use crate::tenure::{Tenure, Unsettled};
use crate::worker::Worker;
use crate::{backoff::Backoff, lease, retry};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a release is tried before it goes on the clean-up list.
const RELEASE_TRIES: u32 = 3;

/// A renewal may take this part of the time that is left.
const KEEP_PART: u32 = 3;

/// No renewal may take longer than this part of the shortest lease held: it would keep the others waiting.
const KEEP_LEASE_PART: u32 = 12;

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
    closed: AtomicBool,
    active: AtomicUsize,
}

/// The tenures that the lease thread keeps.
#[derive(Debug)]
struct Held {
    schedule: Schedule<Arc<Key>>,
    leases: BTreeMap<Duration, usize>,
}

impl Client {
    pub(crate) fn new(processor: Box<dyn LockProcessor>, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
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
            held: Mutex::new(Held { schedule: Schedule::new(), leases: BTreeMap::new() }),
            lease_thread: Worker::new("dlock-lease", Arc::clone(&clock)),
            clock,
            closed: AtomicBool::new(false),
            active: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_str()
    }

    pub(crate) fn next_locker(&self) -> Arc<str> {
        self.id.next_locker().into()
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

    /// Releases a tenure: three tries, then the clean-up list.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] when the key was not ours any more; else the last try's.
    pub(crate) fn give_back(&self, key: &str, tenure: &Tenure) -> Result<(), Error> {
        let request = ReleaseRequest { key, locker: &tenure.locker, lease: tenure.lease(), next: None };
        let mut perhaps_done = false;
        let mut failures = 0;
        loop {
            match self.processor.release(&request, self.processor.command_limit()) {
                // After a try without an answer, "not ours" may be that try's own work.
                Ok(ReleaseOutcome::NotOurs(NotOurs { holder })) if !perhaps_done => {
                    let cause = holder.map_or(LossCause::Deleted, |by| LossCause::TakenOver { by });
                    let locker = tenure.locker.to_string();
                    let loss = LeaseLoss { key: key.to_owned(), locker, cause, ago: Duration::ZERO };
                    return Err(Error::LeaseLost(Box::new(loss)));
                }
                Ok(_) => return Ok(()),
                Err(error) => {
                    failures += 1;
                    perhaps_done |= matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                    if failures >= RELEASE_TRIES || !matches!(error, Error::Backend { .. }) {
                        log::warn!("lock {key:?}: {:?} could not be released: {error}", tenure.locker);
                        let ended =
                            Unsettled { locker: Arc::clone(&tenure.locker), settings: Arc::clone(&tenure.settings) };
                        self.cleanup.add(key, ended, Ending::ReleaseUnanswered(tenure.deadline()));
                        self.wake_cleanup();
                        return Err(error);
                    }
                    std::thread::sleep(Backoff::capped(tenure.lease() / 6).after(failures));
                }
            }
        }
    }

    /// Puts a locker that ends while the outcome of its acquire is unknown on the clean-up list.
    pub(crate) fn abandon(&self, key: &str, unsettled: Option<Unsettled>) {
        if let Some(unsettled) = unsettled {
            self.cleanup.add(key, unsettled, Ending::AcquireUnanswered);
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

    pub(crate) fn forget_retry(&self, key: &Key) {
        let removed = self.waiting.lock().remove(key.id);
        drop(removed);
    }

    pub(crate) fn take_due_retries(&self, now: Moment) -> Vec<Arc<Key>> {
        self.waiting.lock().take_due(now)
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

/// The lease thread's book.
impl Client {
    pub(crate) fn start_lease_thread(&self) -> Result<(), Error> {
        self.lease_thread.start(&self.this, lease::round)
    }

    /// Takes a new tenure into the lease thread's care.
    pub(crate) fn keep(&self, key: &Arc<Key>, tenure: &Tenure) {
        *self.held.lock().leases.entry(tenure.lease()).or_default() += 1;
        self.keep_until(key, tenure.due());
    }

    /// Sets when the lease thread has to look at a kept tenure.
    pub(crate) fn keep_until(&self, key: &Arc<Key>, due: Moment) {
        self.held.lock().schedule.put(key.id, due, Arc::clone(key));
        self.lease_thread.wake_by(due);
    }

    /// Ends the care for a tenure.
    pub(crate) fn forget_kept(&self, key: &Key, tenure: &Tenure) {
        let mut held = self.held.lock();
        if let Some(count) = held.leases.get_mut(&tenure.lease()) {
            *count -= 1;
            if *count == 0 {
                held.leases.remove(&tenure.lease());
            }
        }
        let removed = held.schedule.remove(key.id);
        drop(held);
        drop(removed);
    }

    pub(crate) fn take_due_leases(&self, now: Moment) -> Vec<Arc<Key>> {
        self.held.lock().schedule.take_due(now)
    }

    pub(crate) fn next_lease(&self) -> Moment {
        self.held.lock().schedule.next()
    }

    /// How long a renewal may take when so much time is left.
    pub(crate) fn keep_limit(&self, left: Duration) -> Duration {
        let shortest = self.held.lock().leases.first_key_value().map_or(Duration::MAX, |(lease, _)| *lease);
        (left / KEEP_PART)
            .min(shortest / KEEP_LEASE_PART)
            .min(self.processor.command_limit())
            .max(Duration::from_millis(1))
    }
}

/// The end.
impl Client {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Counts the caller among those that need the store.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] after the closing.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        self.active.fetch_add(1, Ordering::SeqCst);
        if self.is_closed() {
            self.leave();
            return Err(Error::ShutDown);
        }
        Ok(())
    }

    /// Ends what [`enter`](Self::enter) began.
    pub(crate) fn leave(&self) {
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_closed() {
            self.shut_down();
        }
    }

    /// Refuses new and waiting locks; holds go on, and the last of them ends the rest.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let keys: Vec<_> = self.keys.lock().values().filter_map(Weak::upgrade).collect();
        for key in keys {
            key.nudge_all();
        }
        self.retry_thread.stop();
        if self.active.load(Ordering::SeqCst) == 0 {
            self.shut_down();
        }
    }

    /// Ends both threads and lets go of the store. May run twice, and on a worker's own thread.
    fn shut_down(&self) {
        self.retry_thread.stop();
        let leftovers = self.cleanup.take_due(Moment::NEVER);
        if !leftovers.is_empty() {
            let requests: Vec<_> = leftovers.iter().map(crate::cleanup::Leftover::request).collect();
            let failed =
                self.processor.batch(&requests, self.processor.command_limit()).iter().filter(|r| r.is_err()).count();
            log::info!("closing: {} leftovers released, {failed} of them without an answer", requests.len());
        }
        self.lease_thread.stop();
        self.processor.close();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        self.shut_down();
    }
}
