//! Calls with a limit end with it, whichever server of the store stands still.
//!
//! A time alone would say little on a busy machine, so the calls are compared with one another: calls with a longer limit begin first and
//! must end last. A step that a limit does not bound lets a call end with the longer ones, or not at all. No call may give up before its limit.

use crate::support::RedisServer;
use crate::support::crew::{HANG, Member, eventually, spawn};
use crossbeam_channel::{Receiver, Sender, unbounded};
use redis_dlock::{
    CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, OwnedDLockGuard, RedisLockProcessor,
};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The limit of the calls that are to end first. It is shorter than the store's own limits.
const SHORT: Duration = Duration::from_millis(500);

/// The limit of the calls that begin before them, and are to end after them. So are a connect's and a command's.
const LONG: Duration = Duration::from_secs(3);

/// So long that nothing is renewed or probed meanwhile.
const LEASE: Duration = Duration::from_secs(3600);

/// The client that has never connected.
const NEW: &str = "new";

/// A single attempt, which has the limits of the store alone. It ends at once if others of its process ask or wait.
const ZERO: &str = "try_lock_for zero";

type Call = fn(&DistributedReentrantLock, Duration) -> Result<bool, Error>;

fn is_got<G>(guard: Option<G>) -> bool {
    let is_got = guard.is_some();
    drop(guard);
    is_got
}

fn owned(guard: Result<Option<OwnedDLockGuard>, Error>) -> Result<bool, Error> {
    guard.map(is_got)
}

/// Every call with a limit.
const CALLS: [(&str, Call); 12] = [
    ("try_lock_for", |lock, limit| lock.try_lock_for(limit).map(is_got)),
    ("try_lock_until", |lock, limit| lock.try_lock_until(Instant::now() + limit).map(is_got)),
    ("try_lock_cancellable_for", |lock, limit| lock.try_lock_cancellable_for(limit, &CancelToken::new()).map(is_got)),
    ("try_lock_cancellable_until", |lock, limit| {
        lock.try_lock_cancellable_until(Instant::now() + limit, &CancelToken::new()).map(is_got)
    }),
    ("try_lock_owned_for", |lock, limit| owned(lock.try_lock_owned_for(limit))),
    ("try_lock_owned_until", |lock, limit| owned(lock.try_lock_owned_until(Instant::now() + limit))),
    ("try_lock_owned_cancellable_for", |lock, limit| {
        owned(lock.try_lock_owned_cancellable_for(limit, &CancelToken::new()))
    }),
    ("try_lock_owned_cancellable_until", |lock, limit| {
        owned(lock.try_lock_owned_cancellable_until(Instant::now() + limit, &CancelToken::new()))
    }),
    ("try_with_for", |lock, limit| lock.try_with_for(limit, |_| ()).map(is_got)),
    ("unguarded try_lock_for", |lock, limit| lock.unguarded().try_lock_for(limit)),
    ("unguarded try_lock_until", |lock, limit| lock.unguarded().try_lock_until(Instant::now() + limit)),
    (ZERO, |lock, _| lock.try_lock_for(Duration::ZERO).map(is_got)),
];

/// Locks that somebody holds, and clients that want them: one that has never connected, one that is connected, and one whose threads wait.
pub(crate) struct Scene {
    url: String,
    targets: Vec<String>,
    _held: Vec<OwnedDLockGuard>,
}

/// A call that has ended: whether it had the longer limit, what it was, how long it took, and its result.
type Ended = (bool, String, Duration, Result<bool, Error>);

/// Calls that have begun, whose ends come in their order.
struct Begun {
    calls: Vec<Member<()>>,
    sender: Sender<Ended>,
    ended: Receiver<Ended>,
}

impl Default for Begun {
    fn default() -> Self {
        let (sender, ended) = unbounded();
        Self { calls: Vec::new(), sender, ended }
    }
}

impl Scene {
    /// The locks have these targets, and are of the type `LIMIT`.
    pub(crate) fn new(url: String, targets: Vec<String>) -> Self {
        let holder = DLockGenerator::connect(&url).unwrap();
        let held = targets.iter().map(|target| lock(&holder, target).lock_owned().unwrap()).collect();
        Self { url, targets, _held: held }
    }

    /// Makes all calls, stops servers by `stop`, and lets them go on by `go_on` after the last call has ended.
    pub(crate) fn play(&self, stop: impl FnOnce(), go_on: impl FnOnce()) {
        let clients = [(); 3].map(|()| {
            let builder = RedisLockProcessor::builder(&self.url).unwrap().connect_timeout(LONG).io_timeout(LONG);
            DLockGenerator::new(builder.build().unwrap()).unwrap()
        });
        let [new, connected, waiting] = &clients;
        for client in [connected, waiting] {
            for target in &self.targets {
                assert!(lock(client, target).try_lock().unwrap().is_none());
            }
        }
        let mut begun = Begun::default();
        self.begin(&mut begun, "waiting", waiting);
        for target in &self.targets {
            let seen = lock(connected, target);
            eventually("somebody waits", || seen.inspect().unwrap().waiting > 0);
        }
        stop();
        let mut later = Begun::default();
        self.begin(&mut later, "connected", connected);
        // Until a client has had an answer, its calls fail when its connect does. That may be long before their limit.
        self.begin(&mut later, NEW, new);
        [begun, later].into_iter().for_each(Begun::assert_in_order);
        go_on();
    }

    /// Begins all calls of a client: those with the longer limit first.
    fn begin(&self, begun: &mut Begun, name: &'static str, client: &DLockGenerator) {
        let (has_begun, begins) = unbounded();
        let Begun { calls, sender, .. } = begun;
        let mut begin = |target: &str, is_long: bool, (what, call): (&str, Call)| {
            let limit = if is_long { LONG } else { SHORT };
            let what = format!("{name}: {what} on {target}, {limit:?}");
            calls.push(began(&has_begun, sender, lock(client, target), call, (is_long, what, limit)));
            begins.recv_timeout(HANG).unwrap();
        };
        // Two, because one asks while the other waits.
        for target in &self.targets {
            CALLS[..2].iter().for_each(|call| begin(target, true, *call));
        }
        for target in &self.targets {
            for call in CALLS {
                if call.0 == ZERO && name != NEW {
                    let lock = lock(client, target);
                    eventually("others of its process come first", || lock.queue_length() > 0);
                }
                begin(target, false, call);
            }
        }
    }
}

fn lock(client: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    client.generate_with(DLockConfig::new("LIMIT", target).with_lease(LEASE)).unwrap()
}

/// Makes a call on a thread of its own.
fn began(
    has_begun: &Sender<()>,
    ended: &Sender<Ended>,
    lock: DistributedReentrantLock,
    call: Call,
    (is_long, what, limit): (bool, String, Duration),
) -> Member<()> {
    let (has_begun, ended) = (has_begun.clone(), ended.clone());
    spawn(move || {
        has_begun.send(()).unwrap();
        let begun = Instant::now();
        let result = call(&lock, limit);
        ended.send((is_long, what, begun.elapsed(), result)).unwrap();
    })
}

impl Begun {
    /// Waits until all have ended, while the servers stand still.
    #[track_caller]
    fn assert_in_order(self) {
        let mut ends: Vec<Ended> =
            self.calls.iter().map(|_| self.ended.recv_timeout(HANG).expect("a call does not end")).collect();
        self.calls.into_iter().for_each(Member::join);
        assert!(ends.iter().all(|(.., result)| !matches!(result, Ok(true))), "somebody has the lock: {ends:#?}");
        // Until it has had an answer, a client fails as soon as its connect does. The first request of a new client may be that of a single attempt.
        let has_limit = |what: &str| !what.starts_with(NEW) && !what.contains(ZERO);
        let gave_up =
            |(is_long, what, took, _): &&Ended| has_limit(what) && *took < if *is_long { LONG } else { SHORT };
        let early: Vec<_> = ends.iter().filter(gave_up).collect();
        assert!(early.is_empty(), "they gave up before their limits: {early:#?}");
        ends.retain(|(is_long, what, _, result)| {
            !(what.starts_with(NEW) && (what.contains(ZERO) || *is_long && result.is_err()))
        });
        assert!(ends.iter().any(|(is_long, ..)| *is_long), "there is nothing to compare with: {ends:#?}");
        assert!(
            ends.is_sorted_by_key(|(is_long, ..)| *is_long),
            "a longer limit ended before a shorter one: {ends:#?}"
        );
    }
}

/// Shows: G12, L3.
#[test]
fn calls_end_with_their_limits_while_the_server_stands_still() {
    let server = RedisServer::start();
    let scene = Scene::new(server.url(), vec!["one".to_owned(), "two".to_owned()]);
    scene.play(|| server.signal(Signal::STOP), || server.signal(Signal::CONT));
}
