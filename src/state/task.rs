//! A task that waits: where it leaves its waker, and what the client's threads leave for it.
//!
//! A task is polled on a thread of the program's runtime, and must not block that thread. So it asks the store nothing itself: the thread
//! `dlock-retry` asks for it, as for all that wait. A task differs from a parked thread in three points: it has a waker in place of a condition
//! variable, it never takes the turn to ask, and a client's thread may end its wait.
//!
//! A waker is code of the program's runtime. It is called, and dropped, while no mutex of the client is held: dropping the last waker of a task
//! may drop the task, and with it a future that needs the mutex of its key.

use crate::clock::Moment;
use crate::error::Error;
use crate::event::How;
use crate::sync::{Mutex, catch_panic, thread_local};
use crate::timing::{FIRST_RECALL_PAUSE, MOST_RECALLS, RECALL, RECALL_TRIPS};
use crossbeam_channel::Sender;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

thread_local! {
    /// How many wakers the calling thread is running.
    static WAKING: Cell<usize> = const { Cell::new(0) };
}

/// Wakes a task. Whatever a runtime does here, the work of the calling thread goes on.
pub(crate) fn wake(waker: Waker) {
    WAKING.with(|waking| waking.set(waking.get() + 1));
    let _ = catch_panic(|| waker.wake());
    WAKING.with(|waking| waking.set(waking.get() - 1));
}

/// Returns whether a runtime runs a task on the calling thread that this thread is waking. The thread may then be in the middle of any work of a
/// client, so it must not wait for the end of such work.
pub(crate) fn is_waking() -> bool {
    WAKING.with(Cell::get) > 0
}

/// The place for the waker of the task that waits for something. Only the last waker counts, as with every [`Future`].
#[derive(Debug, Default)]
pub(crate) struct WakerCell(Mutex<Option<Waker>>);

impl WakerCell {
    /// Keeps the waker. Call it before you look at what the task waits for, and with no other mutex held.
    pub(crate) fn keep(&self, waker: &Waker) {
        if self.0.lock().as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            return;
        }
        let new = waker.clone();
        let old = self.0.lock().replace(new);
        drop(old);
    }

    /// Wakes the task whose waker is kept, if there is one. Call it after a change, and with no mutex held.
    pub(crate) fn wake(&self) {
        let waker = self.0.lock().take();
        waker.into_iter().for_each(wake);
    }
}

/// Whether a task that waits for an answer of the store is polled again at once.
///
/// The thread that polls it would otherwise sleep, and a server on the same machine has answered by the time at which that thread can be woken. The task
/// wakes itself, so other tasks of the thread run in between, and no thread waits.
#[derive(Debug, Default)]
pub(crate) struct TaskPolling {
    /// Since when it waits. `None` if no answer is expected soon.
    since: Option<Instant>,
}

impl TaskPolling {
    /// Begins now.
    pub(crate) fn begin() -> Self {
        Self { since: Some(Instant::now()) }
    }

    /// Ends, because no answer is expected soon any more.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Has the task polled again at once, and returns `true`, if `is_expected_soon` says so, which is given the moment since which the task waits.
    pub(crate) fn again(&mut self, waker: &Waker, is_expected_soon: impl FnOnce(Instant) -> bool) -> bool {
        self.since = self.since.filter(|since| is_expected_soon(*since));
        if self.since.is_some() {
            waker.wake_by_ref();
        }
        self.since.is_some()
    }
}

/// What the waiter of a task has, beside what every waiter has.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pub(crate) waker: WakerCell,
    /// Whether the task makes a single attempt, and does not wait.
    pub(crate) is_one_attempt: bool,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    /// How the wait has ended, if a thread of the client has ended it.
    end: Option<Result<(), Error>>,
    /// Whether the store was asked for this task.
    was_asked: bool,
    /// How the store has granted the hold, if the answer to a request says that.
    granted: Option<How>,
    extension: ConfirmingExtension,
    attempt: AskProgress,
}

/// The extension that confirms the hold, if the hold needs one.
#[derive(Debug, Default)]
pub(crate) enum ConfirmingExtension {
    #[default]
    NotOrdered,
    /// A thread of the client has been told to send it, for this locker.
    Ordered(Arc<str>),
    /// It has ended for this locker: with a failure, or without one.
    Over(Arc<str>, Option<Error>),
}

/// What a caller that asks the store knows so far: see the table in [`steps`](crate::client). A thread keeps this for one turn, and a task with a
/// single attempt for all of its turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskProgress {
    /// Whether a reply said that another client has the key.
    pub(crate) is_busy: bool,
    /// The error of an acquire whose outcome was polled.
    pub(crate) unanswered: Option<Error>,
    /// Whether a reply to a single attempt was compared with the released locker.
    pub(crate) was_compared: bool,
    /// The recall of a lock that only lingers elsewhere. The attempt stands in the store's queue meanwhile.
    pub(crate) recall: Option<Recall>,
    /// Whether the next request for a task asks for a place in the queue.
    pub(crate) wants_place: bool,
}

impl AskProgress {
    /// Returns whether no reply has told of the key, and none to an acquire of the caller's own is missing.
    pub(crate) fn knows_nothing(&self) -> bool {
        !self.is_busy && self.unanswered.is_none()
    }
}

/// The time limit and the pauses of one recall.
#[derive(Clone, Debug)]
pub(crate) struct Recall {
    until: Moment,
    pause: Duration,
    tries: u32,
}

impl Recall {
    /// Begins a recall now. `trip` is how long a round trip takes.
    pub(crate) fn begin(now: Moment, trip: Duration) -> Self {
        Self {
            until: now + RECALL.max(trip.saturating_mul(RECALL_TRIPS)),
            pause: FIRST_RECALL_PAUSE,
            tries: MOST_RECALLS,
        }
    }

    /// Returns how long to wait before the next request, or `None` if the time is over.
    pub(crate) fn pause(&mut self, now: Moment) -> Option<Duration> {
        self.tries = self.tries.checked_sub(1)?;
        let left = self.until.since(now);
        let pause = self.pause.min(left);
        self.pause = self.pause.saturating_mul(2);
        (!left.is_zero()).then_some(pause)
    }
}

impl Task {
    /// Creates what the waiter of a single attempt has.
    pub(crate) fn of_one_attempt() -> Self {
        Self { is_one_attempt: true, ..Self::default() }
    }

    /// Ends the wait: with an error, or because the lock is busy. The caller has taken the waiter out of the queue, and wakes it.
    pub(crate) fn end(&self, end: Result<(), Error>) {
        self.answers.lock().end = Some(end);
    }

    /// Returns how the wait has ended, if it has.
    pub(crate) fn take_end(&self) -> Option<Result<(), Error>> {
        self.answers.lock().end.take()
    }

    /// Notes that the store is asked for this task.
    pub(crate) fn note_asked(&self) {
        self.answers.lock().was_asked = true;
    }

    pub(crate) fn was_asked(&self) -> bool {
        self.answers.lock().was_asked
    }

    /// Notes how the answer to a request grants the hold.
    pub(crate) fn note_granted(&self, how: How) {
        self.answers.lock().granted = Some(how);
    }

    pub(crate) fn granted(&self) -> How {
        self.answers.lock().granted.unwrap_or(How::Granted)
    }

    /// Notes how the confirming extension for the hold of this locker has ended.
    pub(crate) fn note_extended(&self, locker: Arc<str>, failure: Option<Error>) {
        self.answers.lock().extension = ConfirmingExtension::Over(locker, failure);
    }

    /// Returns how far the confirming extension for the hold of this locker is, and forgets one that is over. One that was not ordered
    /// counts as ordered from now on: the caller must order it.
    pub(crate) fn take_or_order_extension(&self, locker: &Arc<str>) -> ConfirmingExtension {
        let mut answers = self.answers.lock();
        let ordered = ConfirmingExtension::Ordered(Arc::clone(locker));
        match std::mem::replace(&mut answers.extension, ordered) {
            ConfirmingExtension::Over(of, failure) if of == *locker => {
                answers.extension = ConfirmingExtension::NotOrdered;
                ConfirmingExtension::Over(of, failure)
            }
            ConfirmingExtension::Ordered(of) if of == *locker => ConfirmingExtension::Ordered(of),
            // The extension for an earlier hold says nothing about this one.
            _ => ConfirmingExtension::NotOrdered,
        }
    }

    pub(crate) fn attempt(&self) -> AskProgress {
        self.answers.lock().attempt.clone()
    }

    pub(crate) fn set_attempt(&self, attempt: AskProgress) {
        self.answers.lock().attempt = attempt;
    }
}

/// A value that a thread of the client leaves for a task.
#[derive(Debug)]
pub(crate) struct TaskReply<T> {
    value: Mutex<Option<T>>,
    waker: WakerCell,
}

impl<T> Default for TaskReply<T> {
    fn default() -> Self {
        Self { value: Mutex::new(None), waker: WakerCell::default() }
    }
}

impl<T> TaskReply<T> {
    /// Leaves the value, and wakes the task. Call it with no mutex held.
    pub(crate) fn set(&self, value: T) {
        *self.value.lock() = Some(value);
        self.waker.wake();
    }

    /// Takes the value. If there is none yet, the task is woken when there is.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<T> {
        self.waker.keep(waker);
        self.value.lock().take()
    }
}

/// Who is told of the loss of a hold.
#[derive(Debug)]
pub(crate) enum Watcher {
    Channel(Sender<()>),
    /// A task. Its future may be gone.
    Task(Weak<TaskReply<()>>),
}

impl Watcher {
    /// Returns whether nobody is there any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Task(reply) if reply.strong_count() == 0)
    }

    /// Tells it. Call it with no mutex held.
    pub(crate) fn tell(self) {
        match self {
            Self::Channel(channel) => {
                // There is room for it, and the receiver may be gone.
                let _ = channel.try_send(());
            }
            Self::Task(reply) => {
                if let Some(reply) = reply.upgrade() {
                    reply.set(());
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/task.rs"]
mod tests;
