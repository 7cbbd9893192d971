//! The threads that use a store, and whether each has run since time was moved last. A thread that the machine keeps off its cores has not asked for
//! an extension yet, or does not know yet what it got. If time ran ahead of it, its lease would end.

use parking_lot::Mutex;
use redis_dlock::Error;
use redis_dlock::port::{Directory, Inbox, Limit, LockProcessor, Outcome, Posting, Request, StoreLimits, WaitQueue};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How far time may be moved while threads are at work, before each of them has run. This is far less than a lease.
const A_LITTLE: Duration = Duration::from_millis(10);

/// The calls of a store that are under way, and the threads that have made some.
#[derive(Debug, Default)]
pub(super) struct AtWork(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    calls: BTreeSet<u64>,
    begun: u64,
    threads: HashMap<ThreadId, Thread>,
    /// How many calls were begun at the last look.
    begun_before: u64,
    /// How far time may be moved until the next look.
    allowed: Duration,
}

#[derive(Debug)]
struct Thread {
    /// Its files in `/proc`.
    directory: PathBuf,
    /// How long it had computed at the last look, in the words of the system.
    computed_before: String,
}

impl AtWork {
    pub(super) fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let number = {
            let mut state = self.0.lock();
            state.note_thread();
            state.begun += 1;
            let number = state.begun;
            state.calls.insert(number);
            number
        };
        let ended = Ended(self, number);
        let result = call();
        drop(ended);
        result
    }

    /// Returns how far time may be moved now, up to `at_most`: not at all while a thread stands still, and a little while one is at work.
    pub(super) fn allows(&self, at_most: Duration) -> Duration {
        let mut state = self.0.lock();
        if at_most > state.allowed {
            match state.look() {
                Some(is_any) if is_any => state.allowed = A_LITTLE,
                Some(_) => state.allowed = at_most,
                None => {}
            }
        }
        let allowed = state.allowed.min(at_most);
        state.allowed = (state.allowed - allowed).min(A_LITTLE);
        allowed
    }
}

impl State {
    /// Looks at all threads but the calling one, and returns whether one is at work, or a call is under way. Returns `None` if a thread or a call
    /// has made no progress since the last such look.
    fn look(&mut self) -> Option<bool> {
        let mut stands_still = self.calls.first().is_some_and(|&first| first <= self.begun_before);
        let mut computed = HashMap::new();
        let own = thread::current().id();
        self.threads.retain(|&id, thread| {
            // The thread has ended.
            let Ok(stat) = fs::read_to_string(thread.directory.join("stat")) else { return false };
            // The name is in parentheses, and may contain parentheses.
            let is_running = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
            if id != own && is_running {
                let now = fs::read_to_string(thread.directory.join("schedstat")).unwrap_or_default();
                stands_still |= now == thread.computed_before;
                computed.insert(id, now);
            }
            true
        });
        if stands_still {
            return None;
        }
        self.begun_before = self.begun;
        let is_any = !self.calls.is_empty() || !computed.is_empty();
        computed.into_iter().for_each(|(id, now)| self.threads.get_mut(&id).expect("noted").computed_before = now);
        Some(is_any)
    }

    fn note_thread(&mut self) {
        self.threads.entry(thread::current().id()).or_insert_with(|| {
            let directory = fs::canonicalize("/proc/thread-self").expect("the system tells of its threads");
            Thread { directory, computed_before: String::new() }
        });
    }
}

/// Ends a call when dropped, even by a panic.
struct Ended<'a>(&'a AtWork, u64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.0.lock().calls.remove(&self.1);
    }
}

/// A store whose callers are noted.
#[derive(Debug)]
pub(super) struct Noting {
    pub(super) store: Arc<dyn LockProcessor>,
    pub(super) at_work: Arc<AtWork>,
}

impl Noting {
    fn inner_queue(&self) -> &dyn WaitQueue {
        self.store.queue().expect("as before")
    }
}

impl LockProcessor for Noting {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        self.at_work.call(|| self.store.run(requests, limit))
    }

    fn keeps_waiting(&self, key: &str) -> bool {
        self.store.keeps_waiting(key)
    }

    fn is_expected_soon(&self, key: &str, since: Instant) -> bool {
        self.store.is_expected_soon(key, since)
    }

    fn between_rounds(&self, limit: Duration) {
        self.at_work.call(|| self.store.between_rounds(limit));
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn has_answered(&self) -> bool {
        self.store.has_answered()
    }

    fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        self.store.on_new_server(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.store.queue().map(|_| self as &dyn WaitQueue)
    }

    fn posting(&self) -> Option<&dyn Posting> {
        self.store.posting()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.store.directory()
    }

    fn close(&self) {
        self.store.close();
    }
}

impl WaitQueue for Noting {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        // The thread that opens the inbox is noted here. It also reads the inbox.
        self.at_work.call(|| self.inner_queue().open_inbox(client, limit))
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.at_work.call(|| self.inner_queue().check_inbox(client, key, limit))
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        self.inner_queue().hears(client, key)
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.at_work.call(|| self.inner_queue().get_ready_to_hear(client, key, limit))
    }
}
