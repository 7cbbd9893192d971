//! One thread of an execution: what it does with its lock, and what it checks.

use super::shims::{Condvar, Mutex, thread};
use super::time;
use super::world::{LEASE, Party, World};
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{Error, LossCause};
use crate::lock::DLockGenerator;
use crate::lock::DLockGuard;
use crate::lock::DLockGuards;
use crate::lock::DistributedReentrantLock;
use crate::lock::Hold;
use crate::state::machine::Phase;
use crossbeam_channel::TryRecvError;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// For how long `Keep` keeps everybody from the lock.
const KEPT: Duration = LEASE.saturating_mul(2);

/// How often `Break` looks for a holder.
const LOOKS: u32 = 30;

/// One action of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Locks, stays a while, unlocks.
    Lock,
    /// Does as `Lock`, and keeps everybody from the lock for a while.
    Keep,
    /// Takes a [`Hold`], which another thread releases.
    Carry,
    /// Does as `Carry` if the lock is acquired within this time.
    CarryFor(Duration),
    /// Awaits a [`Hold`], which another thread releases.
    Await,
    /// Does as `Await` if the lock is acquired within this time.
    AwaitFor(Duration),
    /// Does as `Await` if the lock is free.
    AwaitTry,
    /// Does as `AwaitTry`. The lock is free, but for what its client gives back.
    AwaitFree,
    /// Begins to await a [`Hold`], and may drop the future at any step.
    AwaitDropped,
    /// Awaits another lock, which the checks do not look at, stays a while, and drops its hold.
    AwaitApart,
    /// Awaits a [`Hold`], and closes the thread's client where its task is woken, on the thread that wakes.
    CloseWhenWoken,
    /// Takes the lock together with another one.
    LockAll,
    /// Does as `LockAll` if both are acquired within this time.
    LockAllFor(Duration),
    /// Begins to await the lock together with another one, and may drop the future at any step. The checks do not look at what it holds.
    AwaitAllDropped,
    /// Does as `Lock`, but stays until all calls that end by themselves have ended.
    Host,
    /// Does as `Lock` if the lock is free.
    Try,
    /// Does as `Lock` if the lock is acquired within this time.
    For(Duration),
    /// Does as `Lock` unless it is cancelled.
    Cancellable,
    /// Cancels all calls of `Cancellable`.
    Cancel,
    /// Closes the thread's client.
    Close,
    /// Closes the thread's client, which others may be closing.
    CloseToo,
    /// Waits until somebody holds the lock, and breaks that hold.
    Break,
    /// Does nothing for this long.
    Nap(Duration),
}

impl Act {
    /// Whether the call ends by itself, whoever holds the lock.
    pub(crate) fn is_guest(self) -> bool {
        matches!(
            self,
            Self::For(_)
                | Self::CarryFor(_)
                | Self::LockAllFor(_)
                | Self::Cancellable
                | Self::AwaitFor(_)
                | Self::AwaitDropped
                | Self::AwaitAllDropped
        )
    }
}

pub(crate) struct Visitor {
    name: String,
    generator: Arc<DLockGenerator>,
    lock: DistributedReentrantLock,
    world: Arc<World>,
    /// The threads that end holds which this one has taken.
    carriers: RefCell<Vec<thread::JoinHandle<()>>>,
}

impl Visitor {
    pub(super) fn new(name: String, Party { generator, lock, .. }: Party, world: Arc<World>) -> Self {
        Self { name, generator, lock, world, carriers: RefCell::default() }
    }

    pub(crate) fn play(&self, script: &[Act]) {
        script.iter().for_each(|act| self.act(*act));
        self.await_carriers();
    }

    fn await_carriers(&self) {
        for carrier in self.carriers.take() {
            let _ = carrier.join();
        }
    }

    /// Shows: G12, L3.
    fn act(&self, act: Act) {
        let began = time::now();
        let recalled = self.recalled();
        let got = match act {
            Act::Carry => return self.carry(act, None, || self.lock.hold().map(Some)),
            Act::CarryFor(limit) => return self.carry(act, Some(limit), || self.lock.try_hold_for(limit)),
            Act::Await => return self.carry(act, None, || block_on(self.lock.hold_async()).map(Some)),
            Act::AwaitFor(limit) => {
                return self.carry(act, Some(limit), || block_on(self.lock.try_hold_async_for(limit)));
            }
            Act::AwaitTry => return self.carry(act, Some(Duration::ZERO), || block_on(self.lock.try_hold_async())),
            Act::AwaitFree => {
                self.await_carriers();
                return self.carry(act, Some(Duration::ZERO), || block_on(self.lock.try_hold_async()));
            }
            Act::CloseWhenWoken => return self.carry(act, Some(Duration::ZERO), || self.close_when_woken()),
            Act::AwaitDropped => {
                return self.carry(act, Some(Duration::ZERO), || poll_for_a_while(self.lock.hold_async()));
            }
            Act::AwaitApart => return self.await_apart(),
            Act::LockAll => return self.lock_all(act, None),
            Act::LockAllFor(limit) => return self.lock_all(act, Some(limit)),
            Act::AwaitAllDropped => return self.await_all(act),
            Act::Lock | Act::Host | Act::Keep => self.lock.lock().map(Some),
            Act::Try => self.lock.try_lock(),
            Act::For(limit) => self.lock.try_lock_for(limit),
            Act::Cancellable => self.lock.lock_cancellable(&self.world.cancel),
            Act::Cancel => return self.world.cancel.cancel(),
            Act::Close => return self.close(),
            Act::CloseToo => return self.generator.close(),
            Act::Break => return self.break_hold(),
            Act::Nap(time) => return thread::sleep(time),
        };
        match (act, got) {
            (_, Ok(Some(guard))) => {
                if recalled.is_some() && self.locker() == recalled {
                    self.object("got what others had asked to be given back");
                }
                self.stay(act, guard, began);
            }
            (Act::Lock | Act::Host | Act::Keep, Ok(None)) => self.object("lock() came back without"),
            (Act::For(limit), Ok(None)) if time::now() < began + limit => self.object("gave up too early"),
            (Act::Cancellable, Ok(None)) if !self.world.cancel.is_cancelled() => self.object("was not cancelled"),
            (_, Ok(None) | Err(Error::ShutDown)) => {}
            (Act::Lock | Act::Host | Act::Keep | Act::Cancellable, Err(error)) => {
                self.object(format!("{error}, without waiting"));
            }
            (_, Err(Error::Backend { .. })) => {}
            (_, Err(error)) => self.object(error.to_string()),
        }
        if self.lock.hold_count() != 0 || self.lock.is_held_by_current_thread() {
            self.object("holds the lock without a guard");
        }
        self.leave(act);
    }

    fn leave(&self, act: Act) {
        if act.is_guest() {
            self.world.guest_leaves();
        }
        self.world.look(&self.lock.handle.key, || self.lock.handle.client.is_closed());
    }

    /// Takes a hold that belongs to no thread, or none if it is not acquired within the `limit`.
    fn carry(&self, act: Act, limit: Option<Duration>, take: impl FnOnce() -> Result<Option<Hold>, Error>) {
        let began = time::now();
        let recalled = self.recalled();
        match (limit, take()) {
            (_, Ok(Some(hold))) => {
                if recalled.is_some() && self.locker() == recalled {
                    self.object("got what others had asked to be given back");
                }
                self.pass_to_another_thread(hold);
            }
            (None, Ok(None)) => self.object("hold() came back without"),
            (_, Ok(None)) if matches!(act, Act::AwaitFree) => self.object("the lock is free"),
            (Some(limit), Ok(None)) if time::now() < began + limit => self.object("gave up too early"),
            (_, Ok(None) | Err(Error::ShutDown)) => {}
            (Some(_), Err(Error::Backend { .. })) => {}
            (_, Err(error)) => self.object(error.to_string()),
        }
        self.leave(act);
    }

    /// Lets another thread stay with a hold, and end it.
    /// Shows: G6.
    fn pass_to_another_thread(&self, hold: Hold) {
        if self.lock.hold_count() != 0 || self.lock.is_held_by_current_thread() {
            self.object("a hold is its thread's");
        }
        if self.locker().is_some_and(|locker| !self.world.network.may_begin(&locker)) {
            self.object("is inside by a message alone");
        }
        self.count_pass();
        let (name, world) = (self.name.clone(), Arc::clone(&self.world));
        let locker = self.locker();
        let carrier = thread::spawn(move || {
            let network = world.network.clone();
            let is_broken = move || locker.as_ref().is_some_and(|locker| network.is_broken(locker));
            let entry = world.journal.enter(&*name, hold.fencing_token()).excused_if(is_broken.clone());
            let lost = hold.lost();
            entry.ask(|| hold.is_valid());
            let is_entered =
                matches!(hold.lock().try_hold(), Ok(Some(_))) || matches!(hold.lock().try_lock(), Ok(Some(_)));
            if is_entered {
                world.journal.object(format!("{name}: a hold is entered again"));
            }
            stay_briefly();
            if thread_rng().gen_ratio(1, 3) {
                // After the drop nobody may take it for valid.
                entry.ask(|| {
                    drop(hold);
                    false
                });
                return;
            }
            let valid = entry.ask(|| hold.is_valid());
            let mut ended = None;
            let release = |hold: Hold| match thread_rng().gen_bool(0.5) {
                true => hold.release(),
                false => block_on(hold.release_async()),
            };
            entry.ask_with(|| ended.insert(release(hold)).is_ok().then_some(()));
            if let Some(why) = wrong_end(valid, ended.as_ref(), lost.try_recv(), is_broken) {
                world.journal.object(format!("{name}: {why}"));
            }
        });
        if thread_rng().gen_bool(0.5) {
            let _ = carrier.join();
        } else {
            self.carriers.borrow_mut().push(carrier);
        }
    }

    /// The settings of another lock, which the checks do not look at.
    fn other(&self) -> DLockConfig {
        DLockConfig::new("OTHER", "").with_lease(LEASE)
    }

    fn await_apart(&self) {
        match self.generator.generate_with(self.other()).and_then(|other| block_on(other.hold_async())) {
            Ok(hold) => {
                stay_briefly();
                drop(hold);
            }
            Err(Error::ShutDown) => {}
            Err(error) => self.object(error.to_string()),
        }
    }

    /// The lock and another one, which the checks do not look at, in any order.
    fn both(&self) -> [DLockConfig; 2] {
        let mut locks = [self.lock.config().clone(), self.other()];
        if thread_rng().gen_bool(0.5) {
            locks.reverse();
        }
        locks
    }

    fn await_all(&self, act: Act) {
        match poll_for_a_while(self.generator.hold_all_async(self.both(), Duration::MAX)) {
            Ok(Some(Some(holds))) => {
                stay_briefly();
                drop(holds);
            }
            Ok(Some(None)) => self.object("hold_all_async() came back without"),
            Ok(None) | Err(Error::ShutDown) => {}
            Err(error) => self.object(error.to_string()),
        }
        self.leave(act);
    }

    fn lock_all(&self, act: Act, limit: Option<Duration>) {
        let began = time::now();
        let got = self.generator.lock_all(self.both(), limit.unwrap_or(Duration::MAX));
        match (limit, got) {
            (_, Ok(Some(guards))) => self.stay_with_all(guards),
            (None, Ok(None)) => self.object("lock_all() came back without"),
            (Some(limit), Ok(None)) if time::now() < began + limit => self.object("gave up too early"),
            (_, Ok(None) | Err(Error::ShutDown)) => {}
            (Some(_), Err(Error::Backend { .. })) => {}
            (_, Err(error)) => self.object(error.to_string()),
        }
        if self.lock.hold_count() != 0 || self.lock.is_held_by_current_thread() {
            self.object("holds the lock without a guard");
        }
        self.leave(act);
    }

    /// Shows: G6.
    fn stay_with_all(&self, guards: DLockGuards) {
        let locker = self.locker();
        let network = self.world.network.clone();
        let is_broken = move || locker.as_ref().is_some_and(|locker| network.is_broken(locker));
        let of_lock = guards.locks().position(|lock| lock.key() == self.lock.key());
        let token = of_lock.and_then(|place| guards.fencing_tokens().nth(place)).unwrap_or_default();
        let entry = self.world.journal.enter(&*self.name, token).excused_if(is_broken.clone());
        let lost = guards.lost();
        entry.ask(|| guards.is_valid());
        if self.lock.hold_count() != 1 {
            self.object(format!("holds {} times", self.lock.hold_count()));
        }
        self.count_pass();
        stay_briefly();
        if thread_rng().gen_ratio(1, 3) {
            entry.ask(|| {
                drop(guards);
                false
            });
            return;
        }
        let valid = entry.ask(|| guards.is_valid());
        let mut ended = None;
        entry.ask_with(|| ended.insert(guards.unlock()).is_ok().then_some(()));
        if let Some(why) = wrong_end(valid, ended.as_ref(), lost.try_recv(), is_broken) {
            self.object(why);
        }
    }

    /// Stays with a guard that a call has got that `began` then.
    /// Shows: G6, G13.
    fn stay(&self, act: Act, guard: DLockGuard<'_>, began: Moment) {
        // A guard may be lost before the call that got it returns: its lease ended, and another holder had the lock kept.
        if self.world.is_kept() && guard.is_valid() {
            self.object("got what was to be kept from everybody");
        }
        log::trace!("{:?}: {} is inside with {}", time::now(), self.name, guard.fencing_token());
        let locker = self.locker();
        let network = self.world.network.clone();
        let is_broken = move || locker.as_ref().is_some_and(|locker| network.is_broken(locker));
        let entry = self.world.journal.enter(&*self.name, guard.fencing_token()).excused_if(is_broken.clone());
        let lost = guard.lost();
        entry.ask(|| guard.is_valid());
        if self.locker().is_some_and(|locker| !self.world.network.may_begin(&locker)) {
            self.object("is inside by a message alone");
        }
        self.count_pass();
        match thread_rng().gen_range(0..6) {
            _ if matches!(act, Act::Host) => self.world.outstay_guests(),
            0 | 1 => {}
            2 | 3 => time::step(),
            4 => thread::sleep(LEASE / 8),
            _ => thread::sleep(LEASE),
        }
        if thread_rng().gen_ratio(1, 4) {
            self.reenter(&guard);
        }
        let valid = entry.ask(|| guard.is_valid());
        if self.lock.hold_count() != 1 {
            self.object(format!("holds {} times", self.lock.hold_count()));
        }
        log::trace!("{:?}: {} unlocks", time::now(), self.name);
        let mut ended = None;
        // Unlocking without an error says that the guard was valid until then.
        entry.ask_with(|| ended.insert(self.unlock(act, guard, began)).is_ok().then_some(()));
        if let Some(why) = wrong_end(valid, ended.as_ref(), lost.try_recv(), is_broken) {
            self.object(why);
        }
    }

    /// Unlocks, perhaps so that the lock is kept from everybody.
    fn unlock(&self, act: Act, guard: DLockGuard<'_>, began: Moment) -> Result<(), Error> {
        if !matches!(act, Act::Keep) {
            return guard.unlock();
        }
        // Each is counted from before the call, and so is not too long.
        let (sent_at, held) = (time::now(), guard.remaining());
        let kept = guard.unlock_after(KEPT);
        match &kept {
            Ok(left) => self.world.keep(sent_at + *left),
            // What is repeated in the background does not make the key free before the lease ends.
            Err(Error::Backend { .. }) => self.world.keep((sent_at + held).min(began + KEPT)),
            Err(_) => {}
        }
        kept.map(drop)
    }

    /// Shows: G9.
    fn reenter(&self, guard: &DLockGuard<'_>) {
        match self.lock.lock() {
            Ok(again) => {
                if again.fencing_token() != guard.fencing_token() || self.lock.hold_count() != 2 {
                    self.object("reentry is another hold");
                }
                drop(again);
            }
            Err(Error::LeaseLost(_)) if !guard.is_valid() => {}
            Err(error) => self.object(format!("reentry: {error}")),
        }
    }

    /// Closes the client. Nobody waits in it after that.
    /// Shows: L6.
    fn close(&self) {
        self.generator.close();
        if self.lock.queue_length() > 0 {
            self.object("somebody waits in a closed client");
        }
    }

    /// Shows: L6.
    fn close_when_woken(&self) -> Result<Option<Hold>, Error> {
        let mut future = pin!(self.lock.hold_async());
        let closer = Arc::new(Closer {
            generator: Arc::clone(&self.generator),
            is_closed: Mutex::default(),
            closed: Condvar::new(),
        });
        let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&closer))));
        let Poll::Ready(held) = polled else {
            let mut is_closed = closer.is_closed.lock();
            while !*is_closed {
                closer.closed.wait(&mut is_closed);
            }
            return Ok(None);
        };
        held.map(Some)
    }

    /// Takes the lock away from whoever is seen to hold it. If nobody holds it for long, there is nothing to do.
    fn break_hold(&self) {
        for _ in 0..LOOKS {
            let found = self.lock.holder().ok().flatten();
            if let Some(holder) = found {
                match self.generator.break_lock(self.lock.lock_type(), self.lock.target(), &holder.locker, "why") {
                    Ok(_) | Err(Error::ShutDown) => {}
                    Err(error) => self.object(format!("a break: {error}")),
                }
                return;
            }
            thread::sleep(LEASE / 24);
        }
    }

    /// Counts the hold if its client has heard that others wait for the key.
    /// Shows: L4.
    fn count_pass(&self) {
        let Some(most) = self.world.passes else { return };
        let holds = self.locker().and_then(|locker| self.world.network.count_hold(&locker));
        // One more hold may have begun before that was heard.
        if holds.is_some_and(|holds| holds > most + 1) {
            self.object("the lock is passed on without end");
        }
    }

    /// The locker of the tenure that the client keeps.
    fn locker(&self) -> Option<Arc<str>> {
        self.lock.handle.key.state.lock().tenure_mut().map(|tenure| Arc::clone(&tenure.locker))
    }

    /// The locker of the lingering tenure, if the client has heard of waiters that will not give up.
    /// Shows: L4.
    fn recalled(&self) -> Option<Arc<str>> {
        self.world.passes?;
        let state = self.lock.handle.key.state.lock();
        let Phase::Lingering { tenure, .. } = &state.phase else { return None };
        let recalled = self.world.network.has_heard_contention(&tenure.locker);
        recalled.then(|| Arc::clone(&tenure.locker))
    }

    fn object(&self, what: impl Into<String>) {
        self.world.journal.object(format!("{}: {}", self.name, what.into()));
    }
}

/// A waker that closes a client.
struct Closer {
    generator: Arc<DLockGenerator>,
    is_closed: Mutex<bool>,
    closed: Condvar,
}

impl Wake for Closer {
    fn wake(self: Arc<Self>) {
        self.generator.close();
        *self.is_closed.lock() = true;
        self.closed.notify_all();
    }
}

/// Polls a future at some steps, whether or not it was woken, and drops it.
fn poll_for_a_while<T>(future: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..thread_rng().gen_range(0..4) {
        if let Poll::Ready(held) = future.as_mut().poll(&mut context) {
            return held.map(Some);
        }
        match thread_rng().gen_range(0..3) {
            0 => time::step(),
            1 => thread::sleep(LEASE / 24),
            _ => thread::sleep(LEASE / 4),
        }
    }
    Ok(None)
}

fn stay_briefly() {
    match thread_rng().gen_range(0..3) {
        0 => {}
        1 => time::step(),
        _ => thread::sleep(LEASE / 8),
    }
}

/// Says what is wrong with the end of a hold: whether it was `valid` just before, what its unlocking has returned, and whether it was told of a loss.
fn wrong_end(
    valid: bool,
    ended: Option<&Result<(), Error>>,
    told: Result<(), TryRecvError>,
    is_broken: impl Fn() -> bool,
) -> Option<String> {
    match (ended, told) {
        (Some(Ok(())), Err(TryRecvError::Disconnected)) if valid => None,
        // Nobody deletes or overwrites keys here: only a break takes one away.
        (Some(Err(Error::LeaseLost(loss))), Ok(())) if loss.cause == LossCause::Deadline || is_broken() => None,
        (Some(Err(Error::Backend { .. })), Err(TryRecvError::Disconnected)) => None,
        _ => Some(format!("valid: {valid}, unlocking: {ended:?}, told of a loss: {told:?}")),
    }
}
