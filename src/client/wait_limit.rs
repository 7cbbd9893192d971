//! How long a thread is willing to wait, and how another thread can end the wait.

use crate::clock::{Moment, Registration, Sleeper, Sleepers};
use crate::error::Error;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timing::{SHORTEST_COMMAND, next_trip};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Ends the waiting of threads in [`lock_cancellable`](crate::DistributedReentrantLock::lock_cancellable), as
/// `Thread.interrupt` ends `lockInterruptibly` on the JVM.
///
/// Cancelling is permanent: a cancelled token stays cancelled, and so do its clones.
///
/// ```
/// use redis_dlock::{CancelToken, DLockGenerator, MemoryLockProcessor};
///
/// # fn main() -> Result<(), redis_dlock::Error> {
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let lock = generator.generate("ORDER", "4711")?;
/// let held = lock.lock()?;
/// let cancel = CancelToken::new();
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| lock.lock_cancellable(&cancel).map(|guard| guard.is_some()));
///     cancel.cancel();
///     assert!(!waiter.join().expect("the waiter does not panic")?);
///     Ok::<_, redis_dlock::Error>(())
/// })?;
/// drop(held);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Cancel>);

// A panic leaves the flag and the lists intact, as `cancel` changes each in one step.
impl UnwindSafe for CancelToken {}
impl RefUnwindSafe for CancelToken {}

#[derive(Debug, Default)]
struct Cancel {
    cancelled: AtomicBool,
    parked: Arc<Sleepers>,
    /// The channels that are told.
    watchers: Mutex<Vec<Sender<()>>>,
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the waiting of all threads that wait with this token, now and later. Does not wait for them.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Returns a channel that receives one message when the token is cancelled, or immediately if it is cancelled
    /// already. Use it in a `select!`, beside [`DLockGuard::lost`](crate::DLockGuard::lost).
    ///
    /// When the token and its clones are dropped, the channel is disconnected without a message. Each call creates a
    /// new channel, which lives as long as the token: call this once, outside a loop, and keep the result. A second
    /// watcher needs a second call. Does not block.
    #[must_use]
    pub fn cancelled(&self) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        let mut watchers = self.0.watchers.lock();
        // Check under the mutex: `cancel` stores the flag first and then looks for watchers.
        if self.is_cancelled() {
            let _ = sender.try_send(());
        } else {
            watchers.push(sender);
        }
        receiver
    }

    /// Returns whether the token is cancelled. Does not block.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Returns a waker that cancels the token.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }
}

impl Cancel {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.parked.wake();
        let watchers = std::mem::take(&mut *self.watchers.lock());
        for watcher in watchers {
            let _ = watcher.try_send(());
        }
    }
}

impl Wake for Cancel {
    fn wake(self: Arc<Self>) {
        self.cancel();
    }
}

/// A token that is cancelled with another one.
impl Sleeper for Cancel {
    fn wake(&self) {
        self.cancel();
    }

    fn sleeps_until(&self) -> Moment {
        Moment::NEVER
    }
}

/// How long a thread is willing to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit<'a> {
    /// Whether the thread makes one attempt, and does not wait.
    pub(crate) is_one_attempt: bool,
    /// The moment until which it waits. `None` without such a limit.
    pub(crate) until: Option<Moment>,
    /// The token that can end the wait earlier. A single attempt is not cancelled, because it does not wait.
    cancel: Option<&'a CancelToken>,
}

impl<'a> WaitLimit<'a> {
    pub(crate) const ONE_ATTEMPT: Self = Self { is_one_attempt: true, until: None, cancel: None };
    pub(crate) const FOREVER: Self = Self { is_one_attempt: false, until: None, cancel: None };

    pub(crate) fn until(moment: Moment) -> Self {
        Self { until: (moment < Moment::NEVER).then_some(moment), ..Self::FOREVER }
    }

    /// Returns the limit of a wait that begins `now`. Without any time it is a single attempt.
    pub(crate) fn within(limit: Duration, now: Moment) -> Self {
        if limit.is_zero() { Self::ONE_ATTEMPT } else { Self::until(now + limit) }
    }

    /// Lets the token end the waiting, too.
    pub(crate) fn or_cancelled(self, cancel: &'a CancelToken) -> Self {
        if self.is_one_attempt { self } else { Self { cancel: Some(cancel), ..self } }
    }

    /// Returns the limit of a part of the wait, which this token ends, too. As long as the registration lives, cancelling the wait cancels this
    /// token.
    pub(crate) fn part(self, token: &'a CancelToken) -> (Self, Option<Registration>) {
        let registration = self.register(|| Arc::clone(&token.0) as Arc<dyn Sleeper>);
        if self.is_cancelled() {
            token.cancel();
        }
        (self.or_cancelled(token), registration)
    }

    pub(crate) fn is_cancelled(self) -> bool {
        self.cancel.is_some_and(CancelToken::is_cancelled)
    }

    /// Returns whether no time is left to wait, or the wait is cancelled.
    pub(crate) fn is_over(self, now: Moment) -> bool {
        self.is_cancelled() || self.until.is_some_and(|until| now >= until)
    }

    /// Returns the outcome of a call whose limit has ended: the failure that kept it from a reply, or nothing. A
    /// cancelled caller gets no failure.
    pub(crate) fn outcome(self, failure: Option<Error>) -> Result<(), Error> {
        match failure {
            Some(error) if !self.is_cancelled() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns how long a single command may take.
    pub(crate) fn of_command(self, now: Moment, command_limit: Duration) -> Duration {
        self.until.map_or(command_limit, |until| until.since(now).min(command_limit).max(SHORTEST_COMMAND))
    }

    /// Returns whether another request can be answered in the time left, judging by one that was sent at `sent_at`
    /// and has just been answered. Always `false` for a single attempt.
    pub(crate) fn has_time_for_another(self, now: Moment, sent_at: Moment) -> bool {
        let trip = now.since(sent_at);
        !self.is_one_attempt && self.until.is_none_or(|until| until.since(now) > next_trip(trip))
    }

    /// Registers the thread to be woken by the token, if there is one. After this, the thread must check whether the
    /// token is cancelled.
    pub(crate) fn register(self, sleeper: impl FnOnce() -> Arc<dyn Sleeper>) -> Option<Registration> {
        let token = self.cancel?;
        Some(token.0.parked.register(sleeper()))
    }
}
