//! A worker process: threads that lock, hold, look, reenter, update a fenced store and unlock, and record all of it.

use crate::beside::BESIDE;
use crate::consensus::ConsensusStore;
use crate::consensus::Consul;
use crate::consensus::Etcd;
use crate::fenced;
use crate::history::{Actor, Event, Nanos, Op, What};
use crate::pulse;
use crate::support::cluster::client_of;
use crate::support::crew::answered;
use crate::support::dice::Dice;
use crate::support::process::{descriptors, threads_named};
use crate::support::worker;
use crate::taken::{Form, Taken};
use crate::work::{KEY, Other, Work};
use futures_lite::future::block_on;
use parking_lot::Mutex;
use redis_dlock::port::LockProcessor;
use redis_dlock::{
    BackendFailure, CancelToken, Clock, DLockConfig, DLockGenerator, DistributedReentrantLock, Error,
    Event as LockEvent, Leader, RedisLockProcessor, SystemClock,
};
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How often a holder looks at its hold.
const LOOK: Duration = Duration::from_millis(15);

pub(crate) fn now() -> Nanos {
    SystemClock.now().as_nanos()
}

/// Where the events of one process go.
struct Recorder(Mutex<File>);

impl Recorder {
    fn to(file: &str) -> Arc<Self> {
        Arc::new(Self(Mutex::new(File::options().append(true).create(true).open(file).unwrap())))
    }

    fn note(&self, at: Nanos, actor: Actor, what: What) {
        let line = format!("{}\n", Event { at, actor, what });
        // One write: a kill leaves whole lines.
        self.0.lock().write_all(line.as_bytes()).unwrap();
    }
}

/// A lock that a thread uses, and the recorder of its history.
#[derive(Clone)]
struct Used {
    lock: DistributedReentrantLock,
    recorder: Arc<Recorder>,
}

/// A thread of the process.
struct Hand {
    generator: DLockGenerator,
    /// The locks. The first one is that of `leader`.
    used: Vec<Used>,
    /// The places in `used` of the locks that the thread has, or asks for.
    chosen: Vec<usize>,
    actor: Actor,
    leader: Leader,
    work: Work,
    /// How long the store may take for a command, in milliseconds.
    command: u64,
    dice: Dice,
    stop: Arc<AtomicBool>,
    /// Whether a hold goes on for as long as this is set, unless it is lost.
    holds_on: Arc<AtomicBool>,
}

/// The store of a worker.
fn store(work: &Work) -> Arc<dyn LockProcessor> {
    match work.url.split_once(':') {
        Some(("etcd", _)) => return Etcd::processor(&work.url),
        Some(("consul", _)) => return Consul::processor(&work.url),
        _ => {}
    }
    let ports = work.ports.clone();
    let store = RedisLockProcessor::builder(&work.url).unwrap().io_timeout(Duration::from_millis(work.io));
    let store = store.address_map(move |host, port| (host.to_owned(), ports.get(port)));
    Arc::new(store.replica_acks(u32::from(work.acks), Duration::from_millis(work.io / 3)).build().unwrap())
}

#[test]
#[ignore = "the worker process of the tests beside it"]
fn process() {
    let Some(settings) = worker::settings() else { return };
    let work: Work = settings.parse().unwrap();
    // With RUST_LOG set, the library tells on stderr what it does.
    let _ = env_logger::builder()
        .format(|line, record| {
            writeln!(line, "{} {} {:?} {}", now(), std::process::id(), thread::current().id(), record.args())
        })
        .try_init();
    let store = store(&work);
    let command = store.limits().command.as_millis() as u64;
    // Only the last pointer closes the store.
    let weak_store = Arc::downgrade(&store);
    let recorder = Recorder::to(&work.file);
    let actor = Actor { process: work.process, thread: u32::MAX };
    let noting = Arc::clone(&recorder);
    let generator = DLockGenerator::builder().listener(work.listener).on_event(move |event| match event {
        LockEvent::StoreFailing(failing) => {
            noting.note(now(), actor, What::StoreFails { why: failing.error.to_string() });
        }
        LockEvent::StoreBack(_) => noting.note(now(), actor, What::StoreAnswers),
        _ => {}
    });
    let generator = generator.build(store).unwrap();
    let config = DLockConfig::new(KEY.0, KEY.1).with_lease(Duration::from_millis(work.lease));
    // What is made at the first use is no part of any scenario.
    let lock = generator.generate_with(config.clone()).unwrap();
    while lock.is_locked().is_err() {}
    let mut used = vec![Used { lock, recorder: Arc::clone(&recorder) }];
    for (target, _) in BESIDE.iter().filter(|_| work.together) {
        let config = DLockConfig::new(KEY.0, target).with_lease(Duration::from_millis(work.lease));
        used.push(Used {
            lock: generator.generate_with(config).unwrap(),
            recorder: Recorder::to(&work.file_beside(target)),
        });
    }
    let (stop, holds_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let noting = recorder;
    // By way of the test's process, whose threads are the network.
    let mut there = fenced::Access::open(work.fenced);
    let pulse = pulse::keep(move || there.beat(), move |since, at| noting.note(at, actor, What::Away { since }));
    let hands = (0..work.threads).map(|thread| {
        let hand = Hand {
            generator: generator.clone(),
            used: used.clone(),
            chosen: vec![0],
            actor: Actor { process: work.process, thread },
            leader: generator.leader_with(config.clone()).unwrap(),
            dice: Dice::new(work.seed ^ (u64::from(work.process) << 32 | u64::from(thread) << 16)),
            work: work.clone(),
            command,
            stop: Arc::clone(&stop),
            holds_on: Arc::clone(&holds_on),
        };
        thread::spawn(move || hand.run())
    });
    let hands: Vec<_> = hands.collect();
    let elsewhere = work.elsewhere.0.iter().enumerate().filter(|(_, other)| other.is_for_all || work.process == 0);
    let elsewhere: Vec<_> =
        elsewhere.map(|(n, other)| elsewhere_hand(&generator, &work, command, n, other, &stop)).collect();
    worker::answer("runs");
    for order in worker::orders() {
        if order == "stop" {
            break;
        }
        if order == "client" {
            worker::answer(&format!("client {}", client(&generator, work.process)));
            continue;
        }
        if let Some((client, key)) = order.strip_prefix("hears ").and_then(|words| words.split_once(' ')) {
            let store = weak_store.upgrade().expect("the generator has it");
            let hears = store.queue().is_some_and(|queue| queue.hears(client, key));
            worker::answer(&format!("hears {hears}"));
            continue;
        }
        assert!(["hold on", "let go"].contains(&order.as_str()), "{order}");
        holds_on.store(order == "hold on", Ordering::SeqCst);
        worker::answer("told");
    }
    holds_on.store(false, Ordering::SeqCst);
    stop.store(true, Ordering::SeqCst);
    generator.close();
    let stopped = hands.into_iter().chain(elsewhere).all(|hand| hand.join().is_ok());
    drop((generator, pulse));
    // In a Cluster, a thread that asks for the map ends by itself; so does one that connects, in a Cluster or by way of Sentinels.
    let waits = ["+cluster:", "+sentinel:"].iter().any(|kind| work.url.contains(kind));
    // A thread that is joined may be listed until the system has taken it off a busy core.
    let limit = now() + if waits { 3_000_000_000 } else { 1_000_000_000 };
    while threads_named("dlock-") > 0 && now() < limit {
        thread::sleep(Duration::from_millis(5));
    }
    let sockets = descriptors().iter().filter(|target| target.starts_with("socket:")).count();
    worker::answer(&format!("rests {stopped} {} {sockets}", threads_named("dlock-")));
}

/// The name of the process's client, by a lock that nobody else wants.
fn client(generator: &DLockGenerator, process: u32) -> String {
    let lock = generator.generate("FAULTS", format!("client{process}")).unwrap();
    let _guard = lock.lock().unwrap();
    // A connection to a server that was restarted may break only now.
    client_of(&answered(|| lock.inspect()).holder.expect("it is held").locker).to_owned()
}

/// Starts the thread that wants a lock on another node.
fn elsewhere_hand(
    generator: &DLockGenerator,
    work: &Work,
    command: u64,
    n: usize,
    other: &Other,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let config = DLockConfig::new(KEY.0, &other.target).with_lease(Duration::from_millis(other.lease));
    let Other { fenced, lease, hold, .. } = *other;
    let thread = 10 + u32::try_from(n).unwrap();
    let leader = generator.leader_with(config).unwrap();
    let hand = Hand {
        generator: generator.clone(),
        used: vec![Used { lock: leader.lock().clone(), recorder: Recorder::to(&work.file_of_other(n)) }],
        chosen: vec![0],
        actor: Actor { process: work.process, thread },
        leader,
        dice: Dice::new(work.seed ^ (u64::from(work.process) << 32 | u64::from(thread) << 16)),
        work: Work {
            fenced,
            lease,
            hold,
            tries: 20,
            reentries: 30,
            delays: (0, 0),
            pause: 20,
            together: false,
            ..work.clone()
        },
        command,
        stop: Arc::clone(stop),
        holds_on: Arc::default(),
    };
    thread::spawn(move || hand.run())
}

impl Hand {
    fn run(mut self) {
        let mut fenced = fenced::Access::open(self.work.fenced);
        while !self.stop.load(Ordering::SeqCst) {
            let lock = self.leader.lock().clone();
            if self.work.together {
                self.choose();
            }
            if self.dice.up_to(99) >= self.work.tries && self.dice.up_to(99) < self.work.leads {
                self.lead(&lock, &mut fenced);
            } else {
                match self.acquire(&lock) {
                    Some(taken) => drop(self.hold(&lock, taken, &mut fenced)),
                    None => thread::sleep(Duration::from_millis(5)),
                }
            }
            self.pause();
        }
    }

    /// Draws which locks to take next: two of three, or all, in any order.
    fn choose(&mut self) {
        let mut places = vec![0, 1, 2];
        places.rotate_left(usize::try_from(self.dice.up_to(2)).unwrap());
        if self.dice.up_to(1) == 0 {
            places.swap(0, 1);
        }
        if self.dice.up_to(3) > 0 {
            places.pop();
        }
        self.chosen = places;
    }

    fn pause(&mut self) {
        let pause = self.dice.up_to(self.work.pause);
        thread::sleep(Duration::from_millis(pause));
    }

    /// Campaigns, and leads for some terms: until the dice say that it is enough, and at least until one ends that is not lost.
    fn lead(&mut self, lock: &DistributedReentrantLock, fenced: &mut fenced::Access) {
        let leader = self.leader.clone();
        let (recorder, actor) = (Arc::clone(&self.used[0].recorder), self.actor);
        let begin = |at| recorder.note(at, actor, What::Begin(Op::Lead));
        // The earliest beginning of the present campaign, if it is not noted yet. After a loss a campaign begins with a pause.
        let mut unnoted = None;
        begin(now());
        let led = leader.run(|term| {
            if let Some(at) = unnoted.take() {
                begin(at);
            }
            let taken = Taken::Term(term);
            self.note_got(&taken, self.count() + 1);
            let is_lost = self.hold(lock, taken, fenced);
            if self.stop.load(Ordering::SeqCst) || !is_lost && self.dice.up_to(1) == 0 {
                return ControlFlow::Break(());
            }
            if is_lost {
                unnoted = Some(now() + self.work.lease / 6 * 1_000_000);
            } else {
                self.pause();
                begin(now());
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = led {
            if let Some(at) = unnoted {
                begin(at.min(now()));
            }
            self.note(&failed(&error, self.count()));
        }
    }

    fn note(&self, what: &What) {
        self.note_at(now(), |_| what.clone());
    }

    /// Notes an event of each chosen lock. `what` returns the event for the lock's place among the chosen ones.
    fn note_at(&self, at: Nanos, what: impl Fn(usize) -> What) {
        for (n, place) in self.chosen.iter().enumerate() {
            self.used[*place].recorder.note(at, self.actor, what(n));
        }
    }

    /// Returns the greatest of the thread's hold counts of the chosen locks.
    fn count(&self) -> u32 {
        let counts = self.chosen.iter().map(|place| u32::try_from(self.used[*place].lock.hold_count()).unwrap());
        counts.max().unwrap_or(0)
    }

    /// Takes the lock for the thread, or, each in one of eight draws, for a [`Hold`] and for one that a task awaits. A thread that waits with a limit
    /// does so until it is cancelled, in one of two draws.
    fn acquire<'a>(&mut self, lock: &'a DistributedReentrantLock) -> Option<Taken<'a>> {
        let op = match self.dice.up_to(99) {
            n if n >= self.work.tries => Op::Lock,
            n if n % 2 == 0 => Op::Try,
            _ => Op::TryFor(self.work.lease / 2),
        };
        let form = match self.dice.up_to(7) {
            0 => Form::Hold,
            1 => Form::Awaited,
            _ => Form::Guard,
        };
        if matches!((op, form), (Op::TryFor(_), Form::Guard | Form::Hold)) && self.dice.up_to(1) == 0 {
            return self.acquire_until_cancelled(lock, form);
        }
        self.acquire_by(op, lock, form)
    }

    fn acquire_by<'a>(&self, op: Op, lock: &'a DistributedReentrantLock, form: Form) -> Option<Taken<'a>> {
        self.note(&What::Begin(op));
        let limit = |limit| Duration::from_millis(limit);
        let got = match (op, form) {
            _ if self.work.together => self.take_together(op, form),
            (Op::Try, Form::Hold) => lock.try_hold().map(|got| got.map(Taken::Hold)),
            (Op::TryFor(ms), Form::Hold) => lock.try_hold_for(limit(ms)).map(|got| got.map(Taken::Hold)),
            (_, Form::Hold) => lock.hold().map(|hold| Some(Taken::Hold(hold))),
            (Op::Try, Form::Awaited) => block_on(lock.try_hold_async()).map(|got| got.map(Taken::Awaited)),
            (Op::TryFor(ms), Form::Awaited) => {
                block_on(lock.try_hold_async_for(limit(ms))).map(|got| got.map(Taken::Awaited))
            }
            (_, Form::Awaited) => block_on(lock.hold_async()).map(|hold| Some(Taken::Awaited(hold))),
            (Op::Try, Form::Guard) => lock.try_lock().map(|got| got.map(Taken::Guard)),
            (Op::TryFor(ms), Form::Guard) => lock.try_lock_for(limit(ms)).map(|got| got.map(Taken::Guard)),
            (_, Form::Guard) => lock.lock().map(|guard| Some(Taken::Guard(guard))),
        };
        self.note_outcome(got)
    }

    /// Takes what it wants, unless a token is cancelled before. That may be at any moment: while the hand waits, or while the lock is given to it.
    fn acquire_until_cancelled<'a>(&mut self, lock: &'a DistributedReentrantLock, form: Form) -> Option<Taken<'a>> {
        let after = self.dice.up_to(self.work.lease / 2);
        // A command that is under way is answered first, or its own limit ends.
        self.note(&What::Begin(Op::TryFor(after + self.command)));
        let got = cancelled_after(Duration::from_millis(after), |cancel| match form {
            _ if self.work.together => self.take_together_until(cancel, form),
            Form::Hold => lock.hold_cancellable(cancel).map(|got| got.map(Taken::Hold)),
            _ => lock.lock_cancellable(cancel).map(|got| got.map(Taken::Guard)),
        });
        self.note_outcome(got)
    }

    /// Notes what became of a call that asked for the lock.
    fn note_outcome<'a>(&self, got: Result<Option<Taken<'a>>, Error>) -> Option<Taken<'a>> {
        let is_beside = matches!(&got, Ok(Some(taken)) if !taken.is_of_thread());
        let count = self.count() + u32::from(is_beside);
        match got {
            Ok(Some(taken)) => {
                self.note_got(&taken, count);
                Some(taken)
            }
            Ok(None) => {
                self.note(&What::Fail { count, why: "busy".to_owned() });
                None
            }
            Err(error) => {
                self.note(&failed(&error, count));
                None
            }
        }
    }

    /// Takes all chosen locks, or none.
    fn take_together(&self, op: Op, form: Form) -> Result<Option<Taken<'static>>, Error> {
        let limit = match op {
            Op::Try => Duration::ZERO,
            Op::TryFor(limit) => Duration::from_millis(limit),
            _ => Duration::MAX,
        };
        let locks = self.wanted();
        match form {
            Form::Guard => self.generator.lock_all(locks, limit).map(|got| got.map(Taken::Guards)),
            Form::Hold => self.generator.hold_all(locks, limit).map(|got| got.map(Taken::Holds)),
            Form::Awaited => {
                block_on(self.generator.hold_all_async(locks, limit)).map(|got| got.map(Taken::AwaitedHolds))
            }
        }
    }

    /// Takes all locks that are chosen, or none, unless the token is cancelled before.
    fn take_together_until(&self, cancel: &CancelToken, form: Form) -> Result<Option<Taken<'static>>, Error> {
        let (generator, locks, limit) = (&self.generator, self.wanted(), Duration::MAX);
        match form {
            Form::Hold => generator.hold_all_cancellable(locks, limit, cancel).map(|got| got.map(Taken::Holds)),
            _ => generator.lock_all_cancellable(locks, limit, cancel).map(|got| got.map(Taken::Guards)),
        }
    }

    /// The locks that are chosen.
    fn wanted(&self) -> impl Iterator<Item = DLockConfig> {
        self.chosen.iter().map(|place| self.used[*place].lock.config().clone())
    }

    fn note_got(&self, taken: &Taken<'_>, count: u32) {
        let ((at, until), tokens) = (taken.known(), taken.tokens());
        self.note_at(at, |n| What::Got { token: tokens[n], count, until });
    }

    /// Holds for a while: reads the fenced store at the beginning and writes it at the end. Returns whether the hold was lost.
    fn hold(&mut self, lock: &DistributedReentrantLock, taken: Taken<'_>, fenced: &mut fenced::Access) -> bool {
        let (shortest, longest) = self.work.hold;
        let end = now() + (shortest + self.dice.up_to(longest - shortest)) * 1_000_000;
        let of_key = self.chosen.iter().position(|place| *place == 0);
        let read = of_key.map(|n| taken.tokens()[n]).and_then(|token| Some((token, fenced.read(token)?)));
        // Nobody enters a `Hold` again.
        let reenters = self.dice.up_to(99) < self.work.reentries && matches!(taken, Taken::Guard(_));
        let inner = reenters.then(|| self.acquire_by(Op::Lock, lock, Form::Guard)).flatten();
        let lost = taken.lost();
        let mut holds_on = false;
        loop {
            match lost.recv_timeout(LOOK) {
                Ok(()) => break self.note(&What::Lost),
                Err(_) => self.look(&taken),
            }
            if now() >= end {
                if !self.holds_on.load(Ordering::SeqCst) {
                    break;
                }
                if !std::mem::replace(&mut holds_on, true) {
                    worker::answer("holds on");
                }
            }
        }
        if let Some((token, value)) = read {
            // A holder that has lost its hold writes, too: the token is there to refuse that.
            fenced.write(token, value);
        }
        // A scene that has a hold go on waits for the lock to be given on.
        if let Some(inner) = inner {
            self.release(inner, !holds_on);
        }
        self.release(taken, !holds_on)
    }

    fn look(&self, taken: &Taken<'_>) {
        // What was left when it was looked at may be over by now: that is not what a loss is.
        match taken.known() {
            (_, 0) => self.note(&What::Lost),
            (at, until) => self.note_at(at, |_| What::Valid { until }),
        }
    }

    /// Unlocks. By the dice, the lock is kept from everybody for a while, if it may be. Returns whether the hold was lost.
    fn release(&mut self, taken: Taken<'_>, may_keep: bool) -> bool {
        let (share, longest) = self.work.delays;
        // A task has no way to do that, and a term ends as its leader wants.
        let can_keep = may_keep && matches!(taken, Taken::Guard(_) | Taken::Hold(_));
        let keeps = can_keep && self.dice.up_to(99) < share && !self.stop.load(Ordering::SeqCst);
        let delay = if keeps { 1 + self.dice.up_to(longest) } else { 0 };
        if keeps {
            self.note(&What::Keeps { until: now() + delay * 1_000_000 });
        }
        self.note(&What::Begin(Op::Unlock));
        let left = if keeps { taken.unlock_after(Duration::from_millis(delay)) } else { taken.unlock() };
        let count = self.count();
        let is_lost = matches!(left, Err(Error::LeaseLost(_)));
        match left {
            Ok(()) => self.note(&What::Left { count }),
            Err(error) => {
                if is_lost {
                    self.note(&What::Lost);
                }
                self.note(&failed(&error, count));
            }
        }
        is_lost
    }
}

/// Calls with a token that is cancelled after this time, if the call is not over by then.
fn cancelled_after<T>(time: Duration, call: impl FnOnce(&CancelToken) -> T) -> T {
    let cancel = &CancelToken::new();
    let (over, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                cancel.cancel();
            }
        });
        let result = call(cancel);
        drop(over);
        result
    })
}

fn failed(error: &Error, count: u32) -> What {
    let why = error.to_string();
    match error {
        Error::Backend { failure: BackendFailure::Unknown, .. } => What::Unknown { count, why },
        // After an unlock that was not confirmed, the store still has the key, for a while.
        Error::Backend { .. } | Error::Denied { .. } => What::Unknown { count, why },
        _ => What::Fail { count, why },
    }
}
