//! One client: a store, a clock, an identity, the keys in use, and two worker threads.
//!
//! A client lives as long as a generator or a lock of it. When it is closed, its threads and its store go on until the
//! last thread has left `lock` and the last hold has ended; see [`activity`](crate::activity).
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | what a client is; its keys; how it asks its store |
//! | `books.rs` | what its two workers have to do when |
//! | `giving_back.rs` | how it gives back what it has in the store |
//! | `ending.rs` | what the end of the main thread waits for |
//! | `closing.rs` | its end |

mod books;
mod closing;
mod ending;
mod giving_back;

pub(crate) use ending::Ticket;

use crate::activity::Activity;
use crate::cleanup::Cleanup;
use crate::clock::Clock;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::key::Key;
use crate::listener::Listener;
use crate::locker::ClientId;
use crate::log;
use crate::loss_hook::LossHook;
use crate::processor::{LockProcessor, Outcome, Request, run};
use crate::schedule::Schedule;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::timer::Timer;
use crate::worker::Worker;
use books::Held;
use ending::Unanswered;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) processor: Box<dyn LockProcessor>,
    pub(crate) clock: Timer,
    pub(crate) cleanup: Arc<Cleanup>,
    unanswered: Arc<Unanswered>,
    id: ClientId,
    /// The process that has the threads and the connection.
    pid: u32,
    this: Weak<Self>,
    keys: Mutex<HashMap<Arc<str>, Weak<Key>>>,
    last_key: AtomicU64,
    waiting: Mutex<Schedule<Arc<Key>>>,
    retry_thread: Worker,
    /// When the answers to posted releases are to be taken in; zero when none is known to be missing.
    collect_at: AtomicU64,
    held: Mutex<Held>,
    lease_thread: Worker,
    listener: Listener,
    on_lost: Option<Arc<LossHook>>,
    /// Whether messages may be sent, or somebody is about to find out.
    is_checked: AtomicBool,
    /// The slowest round trip of late, in nanoseconds.
    trip: AtomicU64,
    activity: Activity,
    /// Whether the end has come; held while it comes, so that it comes once.
    is_down: Mutex<bool>,
}

impl Client {
    pub(crate) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        listen: bool,
        on_lost: Option<LossHook>,
    ) -> Result<Arc<Self>, Error> {
        let (id, clock) = (ClientId::draw()?, Timer::new(clock));
        let client = Arc::new_cyclic(|this| Self {
            processor,
            cleanup: Arc::new(Cleanup::new(clock.clone())),
            unanswered: Arc::default(),
            id,
            pid: std::process::id(),
            this: Weak::clone(this),
            keys: Mutex::new(HashMap::new()),
            last_key: AtomicU64::new(0),
            waiting: Mutex::new(Schedule::new()),
            retry_thread: Worker::new("dlock-retry", clock.clone()),
            collect_at: AtomicU64::new(0),
            held: Mutex::new(Held::new()),
            lease_thread: Worker::new("dlock-lease", clock.clone()),
            listener: Listener::new(listen, clock.clone()),
            clock,
            on_lost: on_lost.map(Arc::new),
            is_checked: AtomicBool::new(false),
            trip: AtomicU64::new(0),
            activity: Activity::default(),
            is_down: Mutex::new(false),
        });
        client.note_use();
        Ok(client)
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
    pub(crate) fn key(&self, name: &Arc<str>) -> Arc<Key> {
        let mut keys = self.keys.lock();
        if let Some(key) = keys.get(&**name).and_then(Weak::upgrade) {
            return key;
        }
        let id = self.last_key.fetch_add(1, Ordering::Relaxed);
        let key = Arc::new(Key::new(id, Arc::clone(name), Weak::clone(&self.this)));
        keys.insert(Arc::clone(name), Arc::downgrade(&key));
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

    /// Whether this is a child of the process that made the client, with a copy of its memory. Costs a system call.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Makes sure that this process may use the client: a child would talk on its parent's connection, and wait for threads
    /// that it does not have.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// What the program wants to be told of lost leases by.
    pub(crate) fn on_lost(&self) -> Option<&LossHook> {
        self.on_lost.as_deref()
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
        if self.listener.is_started() || self.is_forked() {
            return;
        }
        if let Err(error) = self.listener.start(&self.this) {
            log::error!(HAND_OVER, "grants will not be heard: {error}");
        }
    }

    /// Prepares for the first lock: the lease thread, and the right to tell others. Both once; cheap afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] when messages may not be sent, [`Error::Backend`] when the operating system refuses a thread. That the
    /// store cannot be reached is not looked at here.
    pub(crate) fn prepare(&self, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        self.note_use();
        self.start_lease_thread()?;
        if !self.hands_over() || self.is_checked.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_process()?;
        if self.is_checked.swap(true, Ordering::AcqRel) {
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
}
