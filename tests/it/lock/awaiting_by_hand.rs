//! Holds that tasks await, on the embedded store: polls, wakes and answers come in an order that the test decides.

use crate::support::cause;
use crate::support::crew::{HANG, eventually, spawn};
use crate::support::fork::in_child;
use crate::support::lab::{Lab, config};
use crate::support::process::alone;
use crate::support::watched::{Kind, Watch, When};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use futures_lite::future::block_on;
use parking_lot::Mutex;
use redis_dlock::port::{
    Claim, Limit, Operations, Outcome, Posting, ReleaseDone, Request, StoreLimits, WaitQueue, on_own_thread,
};
use redis_dlock::{
    BackendFailure, DLockGenerator, DistributedReentrantLock, Error, Event, GeneratorBuilder, Hold, HoldFuture, Holds,
    LockProcessor, LossCause, Term,
};
use rustix::time::{ClockId, clock_gettime};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// Calls of a store at which a test does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    HasAnswered,
    KeepsWaiting,
    Posting,
    Close,
}

/// What a store is asked when it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Panics {
    /// For the cause of a loss, in a batch.
    TheCause,
    /// Whether a key's server keeps others waiting.
    IsSlow,
    /// For its posting, once, between the requests of a round and their replies.
    Posting,
}

/// A store with what no embedded one has.
struct Odd {
    inner: Arc<dyn LockProcessor>,
    extends_heard_grants: bool,
    keeps_waiting: bool,
    posts: bool,
    keeps_posts_back: bool,
    panics: Option<Panics>,
    /// What is done at the next call of a kind.
    planned: Arc<Mutex<Option<(At, Work)>>>,
    ended_on: Arc<Mutex<Option<ThreadId>>>,
}

impl Odd {
    fn come(&self, at: At) {
        let planned = self.planned.lock().take_if(|(planned, _)| *planned == at);
        if let Some((_, work)) = planned {
            work();
        }
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Odd").finish_non_exhaustive()
    }
}

impl LockProcessor for Odd {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let asks_for_a_cause = requests.iter().any(|request| matches!(request, Request::Broken { .. }));
        assert!(!asks_for_a_cause || self.panics != Some(Panics::TheCause), "the test wants it so");
        self.inner.run(requests, limit)
    }

    fn keeps_waiting(&self, _: &str) -> bool {
        self.come(At::KeepsWaiting);
        assert_ne!(self.panics, Some(Panics::IsSlow), "the test wants it so");
        self.keeps_waiting
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = self.inner.limits();
        limits.extends_heard_grants |= self.extends_heard_grants;
        limits
    }

    fn has_answered(&self) -> bool {
        self.come(At::HasAnswered);
        self.inner.has_answered()
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.inner.queue()
    }

    fn posting(&self) -> Option<&dyn Posting> {
        self.come(At::Posting);
        self.posts.then_some(self)
    }

    fn close(&self) {
        *self.ended_on.lock() = Some(thread::current().id());
        self.come(At::Close);
        self.inner.close();
    }
}

impl Posting for Odd {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        done(self.inner.release(claim, limit));
        false
    }

    fn keeps_back(&self) -> bool {
        self.keeps_posts_back
    }

    fn collect(&self) -> bool {
        false
    }
}

/// What four tasks leave to the retry thread while it asks for another lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// They drop their holds.
    Releases,
    /// The same; the wake closes the client.
    ReleasesAndClosing,
    /// The same; the store panics when it posts them.
    ReleasesAndPanic,
    /// The same; the store may wait when it posts them.
    ReleasesToWaitFor,
    /// One keeps its hold.
    OneLess,
    /// One awaits its release.
    OneAwaited,
    /// Another task waits for one of the locks.
    OneWantedHere,
    /// One hold was lost to an operator.
    OneLost,
}

struct Scene {
    lab: Lab,
    watch: Arc<Watch>,
    planned: Arc<Mutex<Option<(At, Work)>>>,
    /// The thread on which the client has ended.
    ended_on: Arc<Mutex<Option<ThreadId>>>,
    generator: DLockGenerator,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Odd)) -> Self {
        Self::made(change, |builder| builder)
    }

    fn built(build: impl FnOnce(GeneratorBuilder) -> GeneratorBuilder) -> Self {
        Self::made(|_| (), build)
    }

    fn made(change: impl FnOnce(&mut Odd), build: impl FnOnce(GeneratorBuilder) -> GeneratorBuilder) -> Self {
        let lab = Lab::memory();
        let (processor, watch) = lab.watched();
        let mut odd = Odd {
            inner: Arc::new(processor),
            extends_heard_grants: false,
            keeps_waiting: false,
            posts: false,
            keeps_posts_back: false,
            panics: None,
            planned: Arc::default(),
            ended_on: Arc::default(),
        };
        change(&mut odd);
        let (planned, ended_on) = (Arc::clone(&odd.planned), Arc::clone(&odd.ended_on));
        // It always hears of grants.
        let generator = build(lab.time.builder()).build(odd).unwrap();
        Self { lab, watch, planned, ended_on, generator }
    }

    /// A scene whose store wants to extend a lease that a waiter knows from a message alone.
    fn of_extended_grants() -> Self {
        Self::with(|odd| odd.extends_heard_grants = true)
    }

    /// Does something at the next call of a kind.
    fn plan(&self, at: At, work: impl FnOnce() + Send + 'static) {
        *self.planned.lock() = Some((at, Box::new(work)));
    }

    #[track_caller]
    fn is_done(&self) {
        assert!(self.planned.lock().is_none(), "there was no such call");
    }

    fn lock(&self, target: &str) -> DistributedReentrantLock {
        self.generator.generate_with(config(target, 30_000)).unwrap()
    }

    /// A lock that lingers.
    fn lingering(&self, target: &str) -> DistributedReentrantLock {
        let config = config(target, 30_000).with_linger(Duration::from_secs(3600));
        let lock = self.generator.generate_with(config).unwrap();
        eventually("it lingers", || {
            drop(lock.lock().unwrap());
            self.lab.holder(lock.key()).is_some()
        });
        lock
    }

    /// A lock, and a hold of it that a task has got.
    fn held(&self) -> (DistributedReentrantLock, Hold) {
        let lock = self.lock("x");
        let hold = awaited(lock.hold_async()).unwrap();
        (lock, hold)
    }

    /// A hold of another client.
    fn held_elsewhere(&self) -> Hold {
        self.lab.generator().generate_with(config("x", 30_000)).unwrap().hold().unwrap()
    }

    /// A waker that drops something and closes the client, and what says that it has.
    fn closer(&self, dropped: impl Send + 'static) -> (Waker, Closed) {
        let (close_it, closed) = bounded(1);
        let generator = self.generator.clone();
        let waker = Once::waker(move || {
            drop(dropped);
            generator.close();
            close_it.send(()).unwrap();
        });
        (waker, Closed(closed))
    }

    /// Lets a task hear of its grant, and does not poll it.
    fn grant_by_a_message<F: Future>(&self, task: &mut Pin<Box<F>>) {
        let (held, bell) = (self.held_elsewhere(), Bell::new());
        assert!(poll(task, &bell.waker).is_pending());
        eventually("it waits in the store", || self.lab.waiting(held.lock().key()) == 1);
        held.release().unwrap();
        bell.wait();
    }
}

struct Closed(Receiver<()>);

impl Closed {
    #[track_caller]
    fn wait(self) {
        self.0.recv_timeout(HANG).expect("it is closed");
    }
}

fn poll<F: Future>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Polls once, and does not want to be woken.
fn look<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    poll(future, Waker::noop())
}

/// Polls once what is not ready yet.
#[track_caller]
fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(look(&mut future).is_pending());
    future
}

/// Awaits it, with a hang guard.
#[track_caller]
fn awaited<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    spawn(move || block_on(future)).join()
}

/// Closes the client, with a hang guard.
#[track_caller]
fn close(generator: DLockGenerator) {
    spawn(move || generator.close()).join();
}

/// A waker that does something the first time.
struct Once(Mutex<Option<Work>>);

impl Once {
    fn waker(work: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(Box::new(work))))))
    }
}

impl Wake for Once {
    fn wake(self: Arc<Self>) {
        let work = self.0.lock().take();
        if let Some(work) = work {
            work();
        }
    }
}

/// A waker that says when it is used.
struct Ring(Sender<()>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        // The test may be over.
        let _ = self.0.send(());
    }
}

struct Bell {
    waker: Waker,
    rung: Receiver<()>,
}

impl Bell {
    fn new() -> Self {
        let (ring, rung) = unbounded();
        Self { waker: Waker::from(Arc::new(Ring(ring))), rung }
    }

    /// Waits for a wake.
    #[track_caller]
    fn wait(&self) {
        self.rung.recv_timeout(HANG).expect("a wake");
    }
}

/// The one that has joined the queue has decided on the lease, and another one gets the hold.
/// Shows: G1, G5.
#[test]
fn a_grant_is_extended_by_the_lease_that_the_client_counts_on() {
    let scene = Scene::of_extended_grants();
    let held = scene.held_elsewhere();
    let [long, short] = [30_000, 1000].map(|lease| scene.generator.generate_with(config("x", lease)).unwrap());
    let (mut first, mut second) = (Box::pin(long.hold_async()), Box::pin(short.hold_async()));
    let bell = Bell::new();
    assert!(look(&mut first).is_pending());
    eventually("it waits in the store", || scene.lab.waiting(long.key()) == 1);
    assert!(poll(&mut second, &bell.waker).is_pending());
    drop(first);
    held.release().unwrap();
    bell.wait();
    let hold = awaited(second).unwrap();
    assert_eq!(scene.watch.count_of(Kind::Extend), 1);
    let kept = scene.lab.holder(long.key()).unwrap().remaining.unwrap();
    assert!(hold.remaining() > Duration::from_secs(1) && hold.remaining() <= kept, "{:?}, {kept:?}", hold.remaining());
}

/// The thread that shuts the client down waits for the one that wakes.
/// Shows: L6.
#[test]
fn an_alarm_may_drop_the_last_handle_or_close_the_client_during_the_shutdown() {
    let ends: [fn(DLockGenerator); 2] = [drop, |last| last.close()];
    for end in ends {
        let scene = Scene::new();
        let (lock, hold) = scene.held();
        let (wake, woken) = bounded(1);
        let (go, may_go) = bounded::<()>(1);
        let (end_it, ended) = bounded(1);
        let last = scene.generator.clone();
        let waker = Once::waker(move || {
            wake.send(()).unwrap();
            may_go.recv_timeout(HANG).unwrap();
            end(last);
            end_it.send(()).unwrap();
        });
        let mut waits = Box::pin(lock.try_hold_async_for(Duration::from_millis(50)));
        assert!(poll(&mut waits, &waker).is_pending());
        scene.lab.time.recv(&woken);
        drop(waits);
        scene.generator.close();
        drop((scene.generator, lock));
        drop(hold);
        eventually("it is given back", || scene.lab.leftovers().is_empty());
        // The shutdown follows. Nothing tells that it has begun.
        thread::sleep(Duration::from_millis(100));
        go.send(()).unwrap();
        ended.recv_timeout(HANG).expect("it has ended");
    }
}

/// Also on the thread for servers that keep others waiting.
/// Shows: L6.
#[test]
fn the_wake_of_a_release_may_drop_the_last_handle_of_a_closed_client() {
    for keeps_waiting in [false, true] {
        let scene = Scene::with(|odd| odd.keeps_waiting = keeps_waiting);
        let (lock, hold) = scene.held();
        let (drop_it, dropped) = bounded(1);
        let waker = Once::waker(move || {
            drop(lock);
            drop_it.send(()).unwrap();
        });
        scene.generator.close();
        drop(scene.generator);
        let releasing = scene.watch.stop_next(Kind::Release, When::Going);
        let mut release = Box::pin(hold.release_async());
        assert!(poll(&mut release, &waker).is_pending());
        releasing.open();
        dropped.recv_timeout(HANG).expect("the last handle is gone");
        assert!(matches!(look(&mut release), Poll::Ready(Ok(()))));
        assert!(scene.lab.leftovers().is_empty());
    }
}

/// Shows: L6.
#[test]
fn a_wake_may_drop_everything_in_the_middle_of_a_round() {
    let scene = Scene::new();
    let asking = scene.watch.stop_next(Kind::Acquire, When::Going);
    let [x, y, z] = ["x", "y", "z"].map(|target| scene.lock(target));
    let [mut of_x, mut of_y, mut of_z] = [&x, &y, &z].map(|lock| Box::pin(lock.hold_async()));
    assert!(look(&mut of_z).is_pending());
    asking.wait();
    let (leave, left) = bounded::<Box<dyn Any + Send>>(1);
    let (drop_it, dropped) = bounded(1);
    let waker = Once::waker(move || {
        drop(left.recv_timeout(HANG).unwrap());
        drop_it.send(()).unwrap();
    });
    // The next round asks for both.
    assert!(poll(&mut of_x, &waker).is_pending());
    assert!(poll(&mut of_y, &waker).is_pending());
    leave.send(Box::new((of_x, of_y, of_z, x, y, z, scene.generator))).unwrap();
    asking.open();
    dropped.recv_timeout(HANG).expect("all is dropped");
    eventually("nothing is left", || scene.lab.leftovers().is_empty());
    assert_eq!(scene.watch.count_of(Kind::Acquire), 3);
}

/// The server carries them out while the client tells the task, unless they need more than that, are few, or could keep the task waiting.
/// The wake drops everything.
/// Shows: L3, L6.
#[test]
fn releases_that_are_left_during_a_round_are_posted_before_it_tells_a_task() {
    // With how many of them are posted before.
    for (left, posted) in [
        (Left::Releases, 4),
        (Left::ReleasesAndClosing, 4),
        (Left::ReleasesAndPanic, 1),
        (Left::ReleasesToWaitFor, 0),
        (Left::OneLess, 0),
        (Left::OneAwaited, 0),
        (Left::OneWantedHere, 0),
        (Left::OneLost, 0),
    ] {
        let scene = Scene::made(
            |odd| (odd.posts, odd.keeps_posts_back) = (true, left != Left::ReleasesToWaitFor),
            // A client that polls passes no lock on by itself.
            |builder| builder.listener(left != Left::OneWantedHere),
        );
        let [locks @ .., lock] = ["a", "b", "c", "d", "e"].map(|target| scene.lock(target));
        let [holds @ .., last] = locks.each_ref().map(|lock| awaited(lock.hold_async()).unwrap());
        if left == Left::OneLost {
            scene.lab.delete(locks[3].key());
            scene.lab.time.until("it is lost", || !last.is_valid());
        }
        let asking = scene.watch.stop_next(Kind::Acquire, When::Coming);
        let (leave, others) = bounded::<Box<dyn Any + Send>>(1);
        let (tell, told) = bounded(1);
        let (watch, generator) = (Arc::clone(&scene.watch), scene.generator.clone());
        let waker = Once::waker(move || {
            let released = watch.count_of(Kind::Release);
            if left == Left::ReleasesAndClosing {
                generator.close();
            }
            drop((generator, others.recv_timeout(HANG).unwrap()));
            tell.send(released).unwrap();
        });
        let mut asks = Box::pin(lock.hold_async());
        assert!(poll(&mut asks, &waker).is_pending());
        asking.wait();
        let waits = (left == Left::OneWantedHere).then(|| begun(locks[3].hold_async()));
        drop(holds);
        let kept: Option<Box<dyn Any + Send>> = match left {
            Left::OneLess => Some(Box::new(last)),
            Left::OneAwaited => Some(Box::new(begun(last.release_async()))),
            _ => {
                drop(last);
                None
            }
        };
        if left == Left::ReleasesAndPanic {
            scene.watch.panic_at_next(Kind::Release);
        }
        let Scene { lab, watch, generator, .. } = scene;
        leave.send(Box::new((asks, waits, kept, lock, locks, generator))).unwrap();
        asking.open();
        assert_eq!(told.recv_timeout(HANG).expect("it is told"), posted, "{left:?}");
        // What such a store does not report stays until its lease ends.
        let stay = if left == Left::ReleasesAndPanic { 4 } else { 0 };
        eventually("the rest is given back", || lab.leftovers().len() == stay);
        if left != Left::OneWantedHere {
            assert_eq!(watch.count_of(Kind::Acquire), 5, "{left:?}");
        }
    }
}

/// It does not say that the lock is busy.
#[test]
fn a_limit_that_ends_before_anybody_has_asked_is_an_error() {
    let scene = Scene::new();
    let (lock, other) = (scene.lock("x"), scene.lock("other"));
    let asking = scene.watch.stop_next(Kind::Acquire, When::Going);
    let _asks = begun(other.hold_async());
    asking.wait();
    let limit = Duration::from_millis(100);
    let mut waits = begun(lock.try_hold_async_for(limit));
    scene.lab.time.jump(limit);
    let ended = look(&mut waits);
    assert!(matches!(ended, Poll::Ready(Err(Error::Backend { failure: BackendFailure::Unknown, .. }))), "{ended:?}");
    assert_eq!(scene.watch.count(), 1);
    asking.open();
}

/// Shows: L6.
#[test]
fn the_wake_of_a_release_may_close_the_client() {
    let scene = Scene::new();
    let (_lock, hold) = scene.held();
    let (waker, closed) = scene.closer(());
    let releasing = scene.watch.stop_next(Kind::Release, When::Going);
    let mut release = Box::pin(hold.release_async());
    assert!(poll(&mut release, &waker).is_pending());
    releasing.open();
    closed.wait();
    assert!(matches!(look(&mut release), Poll::Ready(Ok(()))));
}

/// One round releases a lock and gets another one. The thread wakes for the latter before it is done with the former, or is left another release
/// by that wake.
/// Shows: L6.
#[test]
fn a_wake_may_close_the_client_while_its_thread_has_work_that_the_closing_waits_for() {
    for has_begun in [true, false] {
        let scene = Scene::new();
        let [x, y, z] = ["x", "y", "z"].map(|target| scene.lock(target));
        let held = awaited(x.hold_async()).unwrap();
        let asking = scene.watch.stop_next(Kind::Acquire, When::Going);
        let [mut of_y, mut of_z] = [&y, &z].map(|lock| Box::pin(lock.hold_async()));
        assert!(look(&mut of_z).is_pending());
        asking.wait();
        let (release, held) = if has_begun { (Some(held.release_async()), None) } else { (None, Some(held)) };
        let (waker, closed) = scene.closer(held);
        assert!(poll(&mut of_y, &waker).is_pending());
        asking.open();
        closed.wait();
        assert!(release.is_none_or(|release| awaited(release).is_ok()));
        assert!(matches!(look(&mut of_y), Poll::Ready(Ok(_))));
        drop(of_z);
        eventually("nothing is left", || scene.lab.leftovers().is_empty());
        eventually("the client has ended", || scene.ended_on.lock().is_some());
    }
}

/// The client has another hold, which goes on.
/// Shows: L2, L6.
#[test]
fn a_wake_that_closes_the_client_ends_what_lingers() {
    let scene = Scene::new();
    let (lingers, lock) = (scene.lingering("x"), scene.lock("y"));
    let hold = awaited(lock.hold_async()).unwrap();
    let (waker, closed) = scene.closer(());
    let mut waits = Box::pin(lock.try_hold_async_for(Duration::from_millis(50)));
    assert!(poll(&mut waits, &waker).is_pending());
    scene.lab.time.recv(&closed.0);
    eventually("it is given back", || scene.lab.holder(lingers.key()).is_none());
    assert!(hold.is_valid());
    drop(hold);
    eventually("nothing is left", || scene.lab.leftovers().is_empty());
    eventually("the client has ended", || scene.ended_on.lock().is_some());
}

/// The thread that unlocks wakes the task that comes next. A shutdown on that thread would wait for the other client's threads, and one of them may wait
/// for the executor.
/// Shows: L6.
#[test]
fn a_wake_on_a_programs_thread_ends_no_client_there() {
    let (scene, other) = (Scene::new(), Scene::new());
    drop(other.held());
    let Scene { generator, ended_on, lab: _lab, .. } = other;
    let (tell, told) = bounded(1);
    let waker = Once::waker(move || {
        drop(generator);
        tell.send(thread::current().id()).unwrap();
    });
    let lock = scene.lock("x");
    let guard = lock.lock().unwrap();
    let mut waits = Box::pin(lock.hold_async());
    assert!(poll(&mut waits, &waker).is_pending());
    guard.unlock().unwrap();
    let here = thread::current().id();
    assert_eq!(told.recv_timeout(HANG), Ok(here));
    eventually("the other client has ended", || ended_on.lock().is_some());
    assert_ne!(*ended_on.lock(), Some(here));
    assert!(look(&mut waits).is_ready());
}

/// A thread of the client leaves its end to another. No thread of a program is one by its name.
/// Shows: L6.
#[test]
fn a_programs_thread_of_any_name_ends_the_client_with_the_last_handle() {
    let scene = Scene::new();
    drop(scene.held());
    let Scene { generator, ended_on, lab: _lab, .. } = scene;
    let end = move || {
        drop(generator);
        thread::current().id()
    };
    let on = thread::Builder::new().name("dlock-import".to_owned()).spawn(end).unwrap().join().unwrap();
    assert_eq!(*ended_on.lock(), Some(on));
}

/// Shows: L6.
#[test]
fn a_stores_thread_leaves_the_end_of_the_client_to_another() {
    let scene = Scene::new();
    drop(scene.held());
    let Scene { generator, ended_on, lab: _lab, .. } = scene;
    let end = move || {
        on_own_thread(|| drop(generator));
        thread::current().id()
    };
    let on = spawn(end).join();
    eventually("the client has ended", || ended_on.lock().is_some());
    assert_ne!(*ended_on.lock(), Some(on));
}

/// The thread that notices the loss is in `try_lock()`, and the closing waits for those.
/// Shows: L6.
#[test]
fn the_wake_of_a_loss_may_close_the_client() {
    let scene = Scene::new();
    let (lock, hold) = scene.held();
    let (waker, closed) = scene.closer(());
    let mut lost = Box::pin(hold.lost_async());
    assert!(poll(&mut lost, &waker).is_pending());
    let mine = scene.lab.holder(lock.key()).unwrap().holder;
    assert!(matches!(meet_a_twin(&scene, &mine), Error::ShutDown));
    closed.wait();
    assert!(look(&mut lost).is_ready());
    drop(hold);
    eventually("the client has ended", || scene.ended_on.lock().is_some());
}

#[test]
fn the_last_hold_of_a_task_goes_without_waiting_for_the_store() {
    fn one(scene: &Scene) -> Hold {
        awaited(scene.lock("x").hold_async()).unwrap()
    }
    fn several(scene: &Scene) -> Holds {
        let both = ["x", "y"].map(|target| config(target, 30_000));
        let generator = scene.generator.clone();
        awaited(async move { generator.hold_all_async(both, HANG).await }).unwrap().unwrap()
    }
    fn ends<T: Send + 'static>(hold: T, end: fn(T)) -> Work {
        Box::new(move || end(hold))
    }
    let works: [fn(&Scene) -> Work; 4] = [
        |scene| ends(one(scene), drop),
        |scene| ends(one(scene), |hold| drop(hold.release_async())),
        |scene| ends(several(scene), drop),
        |scene| ends(several(scene), |holds| drop(holds.release_async())),
    ];
    for work in works {
        let scene = Scene::new();
        let end = work(&scene);
        drop(scene.generator);
        let releasing = scene.watch.stop_next(Kind::Release, When::Going);
        let (say, gone) = bounded(1);
        let task = spawn(move || {
            end();
            say.send(()).unwrap();
        });
        releasing.wait();
        // The gate opens by itself after `HANG`.
        gone.recv_timeout(HANG / 2).expect("it has gone before the store has answered");
        releasing.open();
        task.join();
        eventually("it is given back", || scene.lab.leftovers().is_empty());
    }
}

/// Whichever of two handles is the last one, its task does not end the client.
#[test]
fn tasks_that_drop_the_last_handles_at_once_go_without_waiting_for_the_store() {
    let works: [fn(&DistributedReentrantLock) -> Work; 2] = [
        |lock| {
            let hold = awaited(lock.hold_async()).unwrap();
            Box::new(move || drop(hold))
        },
        |lock| {
            let future = lock.hold_async();
            Box::new(move || drop(future))
        },
    ];
    for round in 0..400 {
        let scene = Scene::new();
        let handles = ["x", "y"].map(|target| works[round % 2](&scene.lock(target)));
        drop(scene.generator);
        let start = Arc::new(Barrier::new(2));
        let tasks = handles.map(|handle| {
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                handle();
            })
        });
        let threads = tasks.map(|task| {
            let thread = task.thread().id();
            task.join().unwrap();
            thread
        });
        eventually("the client has ended", || scene.ended_on.lock().is_some());
        let ended_on = scene.ended_on.lock().unwrap();
        assert!(!threads.contains(&ended_on), "round {round}");
    }
}

/// A waker that panics when it is cloned.
#[expect(unsafe_code, reason = "no safe waker runs code of its own when it is cloned")]
fn unclonable() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        panic!("the test wants it so")
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| (), |_| (), |_| ());
    // SAFETY: no function of the table uses the pointer.
    unsafe { Waker::new(std::ptr::null(), &TABLE) }
}

/// Shows: L3, L6.
#[test]
fn a_waker_that_panics_strands_nobody() {
    for has_waited in [false, true] {
        let scene = Scene::new();
        let (lock, hold) = scene.held();
        let mut waits = Box::pin(lock.hold_async());
        assert!(!has_waited || look(&mut waits).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut waits, &unclonable()))).is_err());
        drop(waits);
        assert_eq!(lock.queue_length(), 0);
        drop(hold);
        drop(awaited(lock.hold_async()).unwrap());
        close(scene.generator);
        eventually("the client has ended", || scene.ended_on.lock().is_some());
    }
}

/// How much of the processor this thread needs for something.
fn effort(work: impl FnOnce()) -> Duration {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = used();
    work();
    used() - before
}

/// If each of them looked at all, it would take sixty-four times as much for eight times as many.
#[test]
fn the_effort_of_sending_tasks_away_grows_as_their_number() {
    type Leave = fn(Vec<Pin<Box<HoldFuture>>>, DLockGenerator) -> Duration;
    let ways: [Leave; 4] = [
        |tasks, _| effort(|| drop(tasks)),
        |mut tasks, _| {
            // All but the first and the last, which stay until the others have left.
            let last = tasks.split_off(tasks.len() - 1);
            let (middle, first) = (tasks.split_off(1), tasks);
            let effort = effort(|| drop(middle));
            drop((first, last));
            effort
        },
        |tasks, _| effort(|| tasks.into_iter().rev().for_each(drop)),
        |_tasks, generator| effort(|| generator.close()),
    ];
    for leave in ways {
        let of = |count: usize| {
            let scene = Scene::new();
            let lock = scene.lock("x");
            let _hold = awaited(lock.hold_async()).unwrap();
            let mut tasks: Vec<_> = (0..count).map(|_| Box::pin(lock.hold_async())).collect();
            assert!(tasks.iter_mut().all(|task| look(task).is_pending()));
            assert_eq!(lock.queue_length(), count);
            let effort = leave(tasks, scene.generator);
            assert_eq!(lock.queue_length(), 0);
            effort
        };
        let least = |count| (0..3).map(|_| of(count)).min().unwrap();
        let (few, many) = (least(1000), least(8000));
        assert!(many < few * 24, "{few:?}, {many:?}");
    }
}

#[test]
fn a_dropped_future_that_waited_for_a_loss_keeps_no_waker() {
    let scene = Scene::new();
    let hold = awaited(scene.lock("x").hold_async()).unwrap();
    let ring = Arc::new(Ring(unbounded().0));
    let waker = Waker::from(Arc::clone(&ring));
    for _ in 0..100 {
        assert!(poll(&mut Box::pin(hold.lost_async()), &waker).is_pending());
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&ring), 1);
}

/// Shows: G3.
#[test]
fn a_child_that_polls_gets_nothing_of_what_its_parent_was_granted() {
    alone(concat!(module_path!(), "::a_child_that_polls_gets_nothing_of_what_its_parent_was_granted"), || {
        let scene = Scene::new();
        let lock = scene.lock("x");
        let (mut waits, bell) = (Some(Box::pin(lock.hold_async())), Bell::new());
        assert!(poll(waits.as_mut().unwrap(), &bell.waker).is_pending());
        bell.wait();
        // Until the threads are at rest.
        scene.lab.time.pass(Duration::ZERO);
        // The child takes it out of its own copy of the memory.
        assert!(in_child(|| {
            let mut waits = waits.take().unwrap();
            assert!(matches!(look(&mut waits), Poll::Ready(Err(Error::Forked))));
        }));
        let Some(Poll::Ready(Ok(hold))) = waits.as_mut().map(look) else { panic!("it is the parent's") };
        assert!(hold.is_valid());
        awaited(hold.release_async()).unwrap();
        assert_eq!(scene.lab.leftovers(), [""; 0]);
    });
}

/// Its parent's threads ring no alarm for it, and tell it no outcome.
/// Shows: G3.
#[test]
fn a_child_that_polls_a_pause_or_a_release_is_told_that_it_was_forked() {
    alone(concat!(module_path!(), "::a_child_that_polls_a_pause_or_a_release_is_told_that_it_was_forked"), || {
        let scene = Scene::new();
        let hold = awaited(scene.lock("x").hold_async()).unwrap();
        let leader = scene.generator.leader("TEST", "leader").unwrap();
        let mut leads = Some(Box::pin(leader.run_async(async |term: Term| {
            scene.lab.delete("DLOCK_TEST_leader");
            scene.lab.time.until("it is lost", || !term.is_valid());
            term.lost().recv_timeout(HANG).unwrap();
            ControlFlow::<()>::Continue(())
        })));
        let bell = Bell::new();
        assert!(poll(leads.as_mut().unwrap(), &bell.waker).is_pending());
        bell.wait();
        assert!(look(leads.as_mut().unwrap()).is_pending(), "it pauses");
        let releasing = scene.watch.stop_next(Kind::Release, When::Going);
        let mut release = Some(Box::pin(hold.release_async()));
        assert!(look(release.as_mut().unwrap()).is_pending());
        releasing.wait();
        assert!(in_child(|| {
            assert!(matches!(look(&mut leads.take().unwrap()), Poll::Ready(Err(Error::Forked))));
            assert!(matches!(look(&mut release.take().unwrap()), Poll::Ready(Err(Error::Forked))));
        }));
        releasing.open();
        awaited(release.unwrap()).unwrap();
    });
}

/// The round goes on, or its orders and keys are those of the next one.
/// Shows: G3, L1, L2.
#[test]
fn a_panic_of_the_store_in_a_round_loses_nothing() {
    for panics in [Panics::TheCause, Panics::IsSlow, Panics::Posting] {
        let scene = Scene::with(|odd| odd.panics = Some(panics));
        let [w, x, y, z] = ["w", "x", "y", "z"].map(|target| scene.lock(target));
        let [lost, kept] = [&x, &y].map(|lock| awaited(lock.hold_async()).unwrap());
        let locker = scene.lab.holder(x.key()).unwrap().holder;
        scene.lab.generator().break_lock("TEST", "x", &locker, "the test wants it so").unwrap();
        scene.lab.time.until("it is lost", || !lost.is_valid());
        let held_elsewhere = scene.lab.generator().generate_with(config("w", 30_000)).unwrap().hold().unwrap();
        let asking = scene.watch.stop_next(Kind::Acquire, When::Going);
        let asks = begun(z.hold_async());
        asking.wait();
        // One round carries both out, and asks for the lock.
        let (of_lost, of_kept, of_w) = (lost.release_async(), kept.release_async(), begun(w.hold_async()));
        if panics == Panics::Posting {
            // The round that is under way asks for it first.
            let planned = Arc::clone(&scene.planned);
            scene.plan(At::Posting, move || {
                *planned.lock() = Some((At::Posting, Box::new(|| panic!("the test wants it so"))));
            });
        }
        asking.open();
        assert!(awaited(of_lost).is_err());
        assert_eq!(awaited(of_kept).is_err(), panics == Panics::Posting);
        held_elsewhere.release().unwrap();
        let of_w = scene.lab.time.join(spawn(move || block_on(of_w))).unwrap();
        let of_z = awaited(asks).unwrap();
        scene.lab.time.pass(Duration::from_secs(100));
        assert!(of_w.is_valid() && of_z.is_valid(), "both are renewed");
        drop((of_w, of_z));
        close(scene.generator);
        assert!(scene.lab.leftovers().is_empty());
    }
}

/// It is between two looks at the closing, and those that waited have been sent away.
/// Shows: L6.
#[test]
fn a_task_that_goes_back_into_the_queue_while_the_client_is_closed_is_sent_away() {
    let scene = Scene::of_extended_grants();
    let lock = scene.lock("x");
    // It keeps the closed client from its end.
    let _kept = awaited(scene.lock("other").hold_async()).unwrap();
    let (mut waits, bell) = (Box::pin(lock.hold_async()), Bell::new());
    scene.grant_by_a_message(&mut waits);
    scene.watch.fail(BackendFailure::NotExecuted);
    assert!(poll(&mut waits, &bell.waker).is_pending());
    bell.wait();
    let generator = scene.generator.clone();
    scene.plan(At::HasAnswered, move || close(generator));
    let ended = look(&mut waits);
    scene.is_done();
    assert!(matches!(ended, Poll::Ready(Err(Error::ShutDown))), "{ended:?}");
    scene.watch.heal();
}

#[test]
fn a_single_attempt_does_not_wait_for_the_release_of_a_thread() {
    let scene = Scene::new();
    let lock = scene.lock("x");
    let hold = lock.hold().unwrap();
    let releasing = scene.watch.stop_next(Kind::Release, When::Going);
    let releaser = spawn(move || hold.release().unwrap());
    releasing.wait();
    assert!(lock.try_hold().unwrap().is_none());
    assert!(matches!(look(&mut Box::pin(lock.try_hold_async())), Poll::Ready(Ok(None))));
    releasing.open();
    releaser.join();
}

/// It is dropped before the client has the store's answer, before the client has given back what came of that, or after it was given the lock.
#[test]
fn a_single_attempt_gets_what_its_client_gives_back_for_a_dropped_future() {
    for (is_given, is_released) in [(false, false), (false, true), (true, true)] {
        let scene = Scene::new();
        let lock = scene.lock("x");
        let mut asking = Some(scene.watch.stop_next(Kind::Acquire, When::Coming));
        let releasing = scene.watch.stop_next(Kind::Release, When::Going);
        let (mut given, bell) = (Box::pin(lock.hold_async()), Bell::new());
        assert!(poll(&mut given, &bell.waker).is_pending());
        asking.as_ref().unwrap().wait();
        if is_given {
            drop(asking.take());
            bell.wait();
        }
        drop(given);
        if is_released {
            drop(asking.take());
            releasing.wait();
        }
        let mut attempt = Box::pin(lock.try_hold_async());
        assert!(look(&mut attempt).is_pending(), "{is_given}, {is_released}");
        drop((asking, releasing));
        assert!(awaited(attempt).unwrap().is_some(), "{is_given}, {is_released}");
    }
}

/// Another client has taken the lock since the one before was told that it is busy, and has released it.
#[test]
fn a_single_attempt_is_not_told_what_was_asked_before_it_came() {
    let scene = Scene::new();
    let (lock, held) = (scene.lock("x"), scene.held_elsewhere());
    let asking = scene.watch.stop_next(Kind::Question, When::Coming);
    let asks = begun(lock.try_hold_async());
    asking.wait();
    held.release().unwrap();
    drop(asks);
    let attempt = begun(lock.try_hold_async());
    asking.open();
    assert!(awaited(attempt).unwrap().is_some());
}

/// The request of the task before it has got lost, so the store does not know the locker that it asks about first.
#[test]
fn a_single_attempt_is_not_told_that_the_place_of_another_is_gone() {
    let scene = Scene::new();
    let lock = scene.lock("x");
    let (asking, polling) =
        (scene.watch.stop_next(Kind::Question, When::Going), scene.watch.stop_next(Kind::Question, When::Going));
    let asks = begun(lock.hold_async());
    asking.wait();
    drop(asks);
    let attempt = begun(lock.try_hold_async());
    scene.watch.fail(BackendFailure::Unknown);
    asking.open();
    polling.wait();
    scene.watch.heal();
    polling.open();
    assert!(awaited(attempt).unwrap().is_some());
}

/// It was given the lock by the store, or by a thread that held it.
#[test]
fn a_hold_that_nobody_was_told_of_is_no_event() {
    for is_passed_on in [false, true] {
        let (tell, told) = unbounded();
        let scene = Scene::built(|builder| builder.on_event(move |event| tell.send(event.clone()).unwrap()));
        let lock = scene.lock("x");
        let held = is_passed_on.then(|| lock.hold().unwrap());
        let (mut given, bell) = (Box::pin(lock.hold_async()), Bell::new());
        assert!(poll(&mut given, &bell.waker).is_pending());
        drop(held);
        bell.wait();
        drop(given);
        let last = awaited(lock.hold_async()).unwrap().fencing_token();
        let tokens = || {
            told.iter().find_map(|event| match event {
                Event::Acquired(acquired) => Some((acquired.token, true)),
                Event::Released(released) => Some((released.token, false)),
                _ => None,
            })
        };
        let first = is_passed_on.then(|| (tokens().unwrap(), tokens().unwrap()));
        assert!(first.is_none_or(|((acquired, is), (released, is_still))| acquired == released && is && !is_still));
        assert_eq!([tokens().unwrap(), tokens().unwrap()], [(last, true), (last, false)]);
    }
}

/// Lets the client find that another one uses its identity. Returns what it says then.
fn meet_a_twin(scene: &Scene, locker: &str) -> Error {
    let (client, number) = locker.rsplit_once('-').unwrap();
    let theirs = format!("{client}-{}", number.parse::<u64>().unwrap() + 1000);
    let twin = scene.lock("twin");
    scene.lab.overwrite(twin.key(), &theirs, Duration::from_secs(60));
    twin.try_lock().unwrap_err()
}

/// Shows: G1.
#[test]
fn what_a_twin_has_too_is_not_released_for_a_task() {
    let scene = Scene::new();
    let (lock, hold) = scene.held();
    let mine = scene.lab.holder(lock.key()).unwrap().holder;
    assert!(matches!(meet_a_twin(&scene, &mine), Error::Cloned { .. }));
    assert_eq!(cause(awaited(hold.release_async())), LossCause::Cloned);
    assert_eq!(scene.lab.holder(lock.key()).unwrap().holder, mine);
    assert_eq!(scene.watch.count_of(Kind::Release), 0);
}

/// Shows: G1.
#[test]
fn a_release_that_a_task_has_ordered_before_the_client_met_its_twin_is_not_sent() {
    let scene = Scene::new();
    let (lock, other) = (scene.lock("x"), scene.lock("other"));
    let hold = awaited(lock.hold_async()).unwrap();
    let mine = scene.lab.holder(lock.key()).unwrap().holder;
    let asking = scene.watch.stop_next(Kind::Acquire, When::Going);
    let _asks = begun(other.hold_async());
    asking.wait();
    let release = hold.release_async();
    assert!(matches!(meet_a_twin(&scene, &mine), Error::Cloned { .. }));
    asking.open();
    awaited(release).unwrap();
    assert_eq!(scene.lab.holder(lock.key()).unwrap().holder, mine);
    let released = scene.watch.calls_of(Kind::Release).iter().any(|call| call.locker == mine);
    assert!(!released);
}

/// The lease of one waiter is to be extended, and the answer about another key makes the store panic.
/// Shows: L3.
#[test]
fn a_panic_in_a_round_strands_no_task_whose_lease_is_extended() {
    let scene = Scene::of_extended_grants();
    let [x, y, z] = ["x", "y", "z"].map(|target| scene.lock(target));
    let (mut waits, bell) = (Box::pin(x.hold_async()), Bell::new());
    scene.grant_by_a_message(&mut waits);
    let asking = scene.watch.stop_next(Kind::Acquire, When::Coming);
    let [mut of_y, mut of_z] = [&y, &z].map(|lock| Box::pin(lock.hold_async()));
    assert!(look(&mut of_z).is_pending());
    asking.wait();
    // The next round carries both.
    assert!(poll(&mut waits, &bell.waker).is_pending());
    assert!(look(&mut of_y).is_pending());
    scene.watch.fail(BackendFailure::NotExecuted);
    scene.plan(At::HasAnswered, || panic!("the test wants it so"));
    asking.open();
    bell.wait();
    scene.is_done();
    scene.watch.heal();
    assert!(scene.lab.time.join(spawn(move || block_on(waits))).unwrap().is_valid());
}

/// The round that is to shut the client down is also to end a lingering, and the store panics there.
/// Shows: L6, S24.
#[test]
fn a_panic_in_a_round_does_not_lose_the_end_of_the_client() {
    let scene = Scene::new();
    let (_lock, hold) = scene.held();
    let lingers = scene.lingering("y");
    let releasing = scene.watch.stop_next(Kind::Release, When::Going);
    let (waker, closed) = scene.closer(());
    let mut release = Box::pin(hold.release_async());
    assert!(poll(&mut release, &waker).is_pending());
    releasing.wait();
    scene.plan(At::KeepsWaiting, || panic!("the test wants it so"));
    releasing.open();
    closed.wait();
    scene.lab.time.until("the client has ended", || scene.ended_on.lock().is_some());
    scene.is_done();
    assert!(scene.lab.holder(lingers.key()).is_none());
}

/// It is one of a future that the closing has ended.
/// Shows: L6.
#[test]
fn a_task_that_drops_the_last_handle_does_not_wait_for_a_shutdown_that_has_begun() {
    let scene = Scene::new();
    let (lock, hold) = scene.held();
    let waits = begun(lock.hold_async());
    let ((begin, begun), (end, may_end)) = (bounded(1), bounded::<()>(0));
    scene.plan(At::Close, move || {
        begin.send(()).unwrap();
        let _ = may_end.recv_timeout(HANG);
    });
    close(scene.generator);
    drop(lock);
    drop(hold);
    begun.recv_timeout(HANG).expect("a shutdown");
    spawn(move || drop(waits)).join();
    drop(end);
}

/// Shows: G12.
#[test]
fn a_limit_ends_while_the_lease_is_extended() {
    const LIMIT: Duration = Duration::from_millis(700);
    let scene = Scene::of_extended_grants();
    let lock = scene.lock("x");
    let (mut waits, bell) = (Box::pin(lock.try_hold_async_for(LIMIT)), Bell::new());
    scene.grant_by_a_message(&mut waits);
    let extending = scene.watch.stop_next(Kind::Extend, When::Going);
    assert!(poll(&mut waits, &bell.waker).is_pending());
    extending.wait();
    scene.lab.time.jump(LIMIT);
    bell.wait();
    assert!(matches!(poll(&mut waits, &bell.waker), Poll::Ready(Ok(None))));
    extending.open();
    scene.lab.time.until("it is given back", || scene.lab.leftovers().is_empty());
}

/// Its limit counts from its making.
/// Shows: G12.
#[test]
fn a_limit_that_is_over_before_the_first_poll_leaves_one_attempt() {
    const LIMIT: Duration = Duration::from_millis(10);
    let scene = Scene::new();
    let lock = scene.lock("x");
    let mut late = Box::pin(lock.try_hold_async_for(LIMIT));
    scene.lab.time.jump(LIMIT);
    let asking = scene.watch.stop_next(Kind::Acquire, When::Going);
    assert!(look(&mut late).is_pending());
    asking.wait();
    assert!(look(&mut late).is_pending());
    asking.open();
    assert!(awaited(late).unwrap().is_some());
}
