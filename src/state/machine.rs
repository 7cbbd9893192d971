//! The state machine of one key in one client: who asks, who waits, who holds.
//!
//! ```text
//!                arrive              acquired                  unlock, local
//!         Idle ─────────▶  Asking  ────────────▶   Held  ◀──┐ threads wait:
//!          ▲              │   ▲  ▲                │ │  ▲ └──┘ passed on
//!          │              │   │  │ turn           │ │  │
//!          │        busy, │   │  │ passed  unlock │ │  │ arrive
//!          │   nobody     │   │  │ on             │ │  │
//!          │   waits      │   │  └─ Releasing ◀───┘ │  │
//!          │◀─────────────┤   │      │  ▲           ▼  │
//!          │         busy │   │ due  │  └────── Lingering
//!          │              ▼   │      │      over, or others want it
//!          │◀────────── Waiting ─────┼───────────────────▶ Held
//!          │  the last               │           granted by a message
//!          │  gives up               │ nobody waits
//!          └─────────────────────────┘
//! ```
//!
//! | phase | in the store | who may leave it | threads parked |
//! |---|---|---|---|
//! | `Idle` | nothing of ours | an arriving thread | none |
//! | `Asking` | possibly a request in flight | the asker: the thread whose turn it is, or the retry thread | any |
//! | `Waiting` | nothing, or a locker whose outcome is unsettled | the retry thread, when the key is due; the listener, on a grant; the last waiter, when it gives up | at least one |
//! | `Held` | our locker, unless lost | the owner's last unlock | any |
//! | `Lingering` | our locker | an arriving thread, unless others want the key while its lease runs; the retry thread, once the linger is over or others want the key; the thread that notices its loss; the thread that closes the client | threads that arrived after others wanted the key |
//! | `Releasing` | possibly a release in flight, or one that a task has ordered | the releasing thread; the retry thread for a task | any |
//!
//! Invariants, all under the key's mutex. The numbers continue those of the protocol, in ARCHITECTURE.md.
//!
//! * **S7** Only one thread may leave `Asking` or `Releasing`, and it does no I/O while it holds the mutex. No other
//!   thread can change the phase meanwhile, so a reply is always handled in the phase that sent the request.
//! * **S8** A thread or a [`Hold`](crate::Hold) owns the hold if and only if the phase is `Held`.
//! * **S9** A thread is parked, or a task waits, only while the phase is not `Idle`, or while the client is closed and the thread is about
//!   to leave.
//! * **S10** In `Waiting` and `Lingering` the key is in the retry thread's schedule. Phase and schedule change together
//!   under the key's mutex, except that the retry thread takes a due key out of its schedule first. In `Held` the
//!   key is in that schedule only if the tenure says so (`watched`), and the retry thread then only clears that
//!   flag.
//! * **S11** `Asking` says who asks. A thread whose turn it is is not in the queue. The asker is never a task: a turn that comes to a task
//!   becomes `Waiting`, and the key is due at once.
//! * **S12** Each locker is sent by only one acquire. A locker that ends while the outcome of that acquire is unknown
//!   goes on the clean-up list.
//! * **S13** A lost tenure stays `Held` until its owner unlocks: a stale hold still keeps the local threads out. A tenure
//!   that is lost while it lingers has no owner, and ends at once.
//! * **S14** A tenure in `Lingering` has a token left for the next hold.

use crate::clock::Moment;
use crate::config::{DEFAULT_LEASE, DLockConfig};
use crate::error::Error;
use crate::port::Grant;
use crate::state::task::{Task, Watcher};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, MutexGuard};
use crate::timing;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The locker of a request that may put it in the store's queue, and what the inbox has heard of that locker before
/// the reply.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) locker: Arc<str>,
    pub(crate) heard: Option<Grant>,
    /// Whether a message said that others wait for this locker's tenure. The message overtook the grant or the reply,
    /// or those were lost.
    pub(crate) contended: bool,
    /// Whether a message said that this locker's tenure was broken.
    pub(crate) broken: bool,
    /// Whether a message said that something has changed since the request was sent: the reply may be outdated.
    pub(crate) changed: bool,
}

/// A tenure that has ended, kept until its release is answered, or is sent ahead of every later request.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) locker: Arc<str>,
    /// Whether a message of its grant arrived since. If so, the release is repeated.
    pub(crate) heard: bool,
    /// Whether a task has left the release to the retry thread.
    pub(crate) is_ordered: bool,
}

/// The phase of a key. See the table in the module's documentation.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    Asking { by: AskedBy, about: Option<About> },
    Waiting { unsettled: Option<Unsettled> },
    // In a box: a tenure is long, and passes through many hands.
    Held(Box<Tenure>),
    Lingering { tenure: Box<Tenure>, until: Moment },
    Releasing { ended: Option<Ended>, about: Option<About> },
}

/// Who asks the store for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// A thread that has not parked.
    Arriving,
    /// The thread that waited for this owner, and whose turn it is now.
    Waiter(u64),
    /// The retry thread, for those that wait, as long as some do.
    Client,
}

/// What the mutex of a key protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The threads of this client that wait for the key, in order of arrival. The first one is given the hold or the turn to ask.
    pub(crate) queue: VecDeque<Arc<Waiter>>,
    /// The error of the last request if it was not answered; `None` if it was.
    pub(crate) failure: Option<Error>,
    /// Busy replies since this client last had the key or last had no waiter. The first pause is shorter than the
    /// others.
    busy_replies: u32,
    /// The number of consecutive failed requests.
    pub(crate) failures: u32,
    /// When this client last asked the store to leave the key free for pollers.
    gap_at: Option<Moment>,
    /// Who is told of the loss of the current hold.
    pub(crate) watchers: Vec<Watcher>,
    /// The locker of the tenure that was released last, whether or not the release was answered.
    pub(crate) released: Option<Arc<str>>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            queue: VecDeque::new(),
            failure: None,
            busy_replies: 0,
            failures: 0,
            gap_at: None,
            watchers: Vec::new(),
            released: None,
        }
    }

    /// Gives the turn to the first waiter, or returns to `Idle` if nobody waits. Call it in `Asking` or `Releasing`.
    pub(crate) fn pass_turn(&mut self) -> NextTurn {
        debug_assert!(matches!(self.phase, Phase::Asking { .. } | Phase::Releasing { .. }));
        match self.queue.front() {
            None => {
                self.phase = Phase::Idle;
                self.forget_requests();
                return NextTurn::Nobody;
            }
            Some(first) if first.task.is_some() => {
                self.phase = Phase::Waiting { unsettled: None };
                return NextTurn::Client;
            }
            Some(first) => self.phase = Phase::Asking { by: AskedBy::Waiter(first.owner), about: None },
        }
        self.queue.pop_front().map_or(NextTurn::Nobody, NextTurn::Thread)
    }

    /// Returns the task that waits as the first one, if the first waiter is a task.
    pub(crate) fn first_task(&self) -> Option<&Task> {
        self.queue.front().and_then(|first| first.task.as_ref())
    }

    /// Returns whether nobody in this process wants the key, and the client itself gives it back, or asks for a waiter that has left.
    pub(crate) fn is_unwanted(&self) -> bool {
        let is_clients = match &self.phase {
            Phase::Asking { by, .. } => *by == AskedBy::Client,
            Phase::Releasing { ended, .. } => ended.as_ref().is_none_or(|ended| ended.is_ordered),
            _ => false,
        };
        is_clients && self.queue.is_empty()
    }

    /// Takes all tasks out of the queue. If nobody waits then, and only the retry thread would still ask, returns to `Idle`.
    pub(crate) fn take_tasks(&mut self) -> (Vec<Arc<Waiter>>, Departure) {
        let waiters = std::mem::take(&mut self.queue).into_iter();
        let (tasks, threads): (Vec<_>, Vec<_>) = waiters.partition(|waiter| waiter.task.is_some());
        self.queue = threads.into();
        (tasks, self.leave_waiting())
    }

    /// Takes the first waiter, a task, out of the queue, and ends its wait. The caller must count the task out, and wake it.
    pub(crate) fn end_first(&mut self, end: Result<(), Error>) -> Option<Arc<Waiter>> {
        let first = self.queue.pop_front()?;
        if let Some(task) = &first.task {
            task.end(end);
        }
        Some(first)
    }

    /// Notes that messages about the key may have been missed. A holder assumes that others wait.
    pub(crate) fn note_missed(&mut self, now: Moment) {
        if let Some(tenure) = self.tenure_mut() {
            tenure.others.note(1, now);
        } else if let Some(about) = self.about_mut() {
            about.contended = true;
        }
    }

    /// Notes that something unknown may have changed for the key in the store. A reply that is on its way counts as outdated.
    pub(crate) fn note_change(&mut self) {
        if let Some(about) = self.about_mut() {
            about.changed = true;
        }
    }

    /// Sets, when a hold or a linger ends, for how long the release of the tenure leaves the key free for pollers. Returns whether it does.
    pub(crate) fn set_gap(&mut self, now: Moment) -> bool {
        let others_wait = !self.queue.is_empty();
        let (Phase::Held(tenure) | Phase::Lingering { tenure, .. }) = &mut self.phase else { return false };
        tenure.gap = tenure.gap_due(self.gap_at, others_wait, now);
        let leaves_gap = tenure.gap.is_some();
        if leaves_gap {
            self.gap_at = Some(now);
        }
        leaves_gap
    }

    /// Puts a waiter at the end of the queue.
    pub(crate) fn push_back(&mut self, waiter: Arc<Waiter>) {
        waiter.set_place(self.queue.back().map_or(MIDDLE, |last| last.place() + 1));
        self.queue.push_back(waiter);
    }

    /// Puts a waiter at the front of the queue.
    pub(crate) fn push_front(&mut self, waiter: Arc<Waiter>) {
        waiter.set_place(self.queue.front().map_or(MIDDLE, |first| first.place() - 1));
        self.queue.push_front(waiter);
    }

    /// Removes a waiter that gives up. If nobody waits then, and only the retry thread would still ask, returns to `Idle`.
    pub(crate) fn give_up(&mut self, waiter: &Waiter) -> Departure {
        // Thousands of tasks may leave at once, so none looks at all the others.
        let found = self.queue.binary_search_by_key(&waiter.place(), |other| other.place());
        // If the waiter was taken out before, another one may have its place by now.
        if let Some(at) = found.ok().filter(|at| self.queue[*at].owner == waiter.owner) {
            self.queue.remove(at);
        }
        self.leave_waiting()
    }

    fn leave_waiting(&mut self) -> Departure {
        let (true, Phase::Waiting { unsettled }) = (self.queue.is_empty(), &mut self.phase) else {
            return Departure::Stays;
        };
        let unsettled = unsettled.take();
        self.phase = Phase::Idle;
        self.forget_requests();
        Departure::Idle { unsettled }
    }

    /// Returns whether the store has said that the key is busy since this client last had it or last had no waiter.
    pub(crate) fn was_busy(&self) -> bool {
        self.busy_replies > 0
    }

    /// Returns the lease of the first waiter.
    pub(crate) fn lease_wanted(&self) -> Duration {
        self.queue.front().map_or(DEFAULT_LEASE, |head| head.settings.lease())
    }

    /// Notes that another client has the key. Returns the pause before the next question: at most what is `left` of the holder's lease, if that is
    /// known.
    pub(crate) fn note_busy(&mut self, left: Option<Duration>, place: Option<&Unsettled>) -> Duration {
        // A place in the store's queue expires by the lease with which it was asked for. A thread with a
        // longer lease may have taken the place over from one that gave up.
        let wanted = self.lease_wanted();
        let lease = place.map_or(wanted, |place| wanted.min(place.settings.lease()));
        let pause = timing::ask_pause(lease, self.busy_replies);
        self.busy_replies = self.busy_replies.saturating_add(1);
        self.failures = 0;
        self.failure = None;
        pause.min(left.unwrap_or(timing::LONGEST_BLIND_PAUSE))
    }

    /// Notes that a request was not answered. Returns how many in succession were not.
    pub(crate) fn note_failure(&mut self, error: Error) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.failure = Some(error);
        self.failures
    }

    /// Returns the tenure of a locker that the inbox has heard of since its reply was read, and takes the first waiter out for it.
    pub(crate) fn heard_meanwhile(&mut self, unsettled: Option<&Unsettled>) -> Option<(Box<Tenure>, Arc<Waiter>)> {
        let (unsettled, About { locker, heard: Some(grant), .. }) = (unsettled?, self.about()?) else { return None };
        if unsettled.locker != *locker {
            return None;
        }
        let tenure = unsettled.clone().heard(*grant);
        self.queue.pop_front().map(|waiter| (tenure, waiter))
    }

    /// Returns whether it is the turn to ask of the thread that waits for this owner.
    pub(crate) fn is_turn_of(&self, owner: u64) -> bool {
        matches!(self.phase, Phase::Asking { by: AskedBy::Waiter(turn), .. } if turn == owner)
    }

    /// Notes the locker of a request, because the inbox may hear of it before the reply arrives.
    pub(crate) fn ask_about(&mut self, locker: &Arc<str>) {
        if let Phase::Asking { about, .. } | Phase::Releasing { about, .. } = &mut self.phase
            && about.as_ref().is_none_or(|about| about.locker != *locker)
        {
            *about = Some(About {
                locker: Arc::clone(locker),
                heard: None,
                contended: false,
                broken: false,
                changed: false,
            });
        }
    }

    /// Returns the grant that the inbox has heard for the request in flight. The grant is not taken out: more may be
    /// heard until the phase changes.
    pub(crate) fn heard(&self) -> Option<Grant> {
        self.about().and_then(|about| about.heard)
    }

    /// Returns what the request in flight is about.
    pub(crate) fn about(&self) -> Option<&About> {
        match &self.phase {
            Phase::Asking { about, .. } | Phase::Releasing { about, .. } => about.as_ref(),
            _ => None,
        }
    }

    fn about_mut(&mut self) -> Option<&mut About> {
        match &mut self.phase {
            Phase::Asking { about, .. } | Phase::Releasing { about, .. } => about.as_mut(),
            _ => None,
        }
    }

    /// Returns what the request in flight is about, if it is about this locker.
    pub(crate) fn about_locker(&mut self, locker: &str) -> Option<&mut About> {
        self.about_mut().filter(|about| *about.locker == *locker)
    }

    /// Notes that the release in flight is answered, or is sent ahead of every later request. Returns its locker if
    /// the release must be repeated.
    #[must_use]
    pub(crate) fn take_release_to_repeat(&mut self) -> Option<Arc<str>> {
        let Phase::Releasing { ended, .. } = &mut self.phase else { return None };
        match ended.take() {
            Some(Ended { locker, heard: true, .. }) => Some(locker),
            _ => None,
        }
    }

    /// Returns the tenure that is held or lingers.
    pub(crate) fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match &mut self.phase {
            Phase::Held(tenure) | Phase::Lingering { tenure, .. } => Some(tenure),
            _ => None,
        }
    }

    /// Returns whether this locker holds the key, waits for it, or asks for it.
    pub(crate) fn has(&self, locker: &str) -> bool {
        let known = match &self.phase {
            Phase::Held(tenure) | Phase::Lingering { tenure, .. } => Some(&tenure.locker),
            Phase::Waiting { unsettled } => unsettled.as_ref().map(|unsettled| &unsettled.locker),
            Phase::Asking { .. } | Phase::Releasing { .. } => self.about().map(|about| &about.locker),
            Phase::Idle => None,
        };
        known.is_some_and(|known| **known == *locker)
    }

    /// Returns the tenure with this locker if it is held or lingers and is not lost.
    pub(crate) fn live_tenure(&mut self, locker: &str) -> Option<&mut Tenure> {
        self.tenure_mut().filter(|tenure| !tenure.is_lost() && &*tenure.locker == locker)
    }

    /// Returns whether the tenure lingers while others want the key.
    pub(crate) fn is_recalled(&self) -> bool {
        matches!(&self.phase, Phase::Lingering { tenure, .. } if tenure.others.wait())
    }

    /// Forgets how the last requests have ended. Call it when the key is ours, or when no thread wants it any more.
    pub(crate) fn forget_requests(&mut self) {
        self.failure = None;
        self.busy_replies = 0;
        self.failures = 0;
    }
}

/// An owner that gets a hold, with the settings of the handle that was called for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker<'a> {
    /// The number of a thread, or of a [`Hold`](crate::Hold).
    pub(crate) owner: u64,
    pub(crate) settings: &'a DLockConfig,
}

impl<'a> From<&'a Arc<Waiter>> for Taker<'a> {
    fn from(waiter: &'a Arc<Waiter>) -> Self {
        Self { owner: waiter.owner, settings: &waiter.settings }
    }
}

/// Who asks next, after a turn has ended.
#[must_use]
#[derive(Debug)]
pub(crate) enum NextTurn {
    /// Nobody waits.
    Nobody,
    /// This thread, which must be woken.
    Thread(Arc<Waiter>),
    /// The retry thread, because a task waits, and tasks ask nothing themselves. The key must be put into its schedule, before the key's mutex
    /// is given up.
    Client,
}

/// What the departure of waiters has made of the phase.
#[must_use]
#[derive(Debug)]
pub(crate) enum Departure {
    /// Others wait, or a thread still leaves the phase: it stays.
    Stays,
    /// Nobody waits, and the phase was `Waiting`: it is `Idle` now. The locker, if there is one, must be cleaned up.
    Idle { unsettled: Option<Unsettled> },
}

/// One parked thread, or one task that waits. One thread at a time asks the store for the key, for the whole client; the others wait.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// For whom the thread waits: for itself, or for a [`Hold`](crate::Hold). A thread waits in only one place at a time, and for one owner.
    pub(crate) owner: u64,
    /// The settings of the handle through which it waits.
    pub(crate) settings: Arc<DLockConfig>,
    /// When the thread began to wait, or to wait again after its turn.
    pub(crate) since: Moment,
    /// What a task has. `None` for a thread.
    pub(crate) task: Option<Task>,
    /// The condition variable on which the thread is parked, with the key's mutex.
    parked: Condvar,
    // ORDERING: Relaxed: it is written and read with the key's mutex held.
    parked_until: AtomicU64,
    // ORDERING: Relaxed: the same.
    place: AtomicU64,
}

/// The place of a waiter that finds nobody in the queue. Others have places before and behind it.
const MIDDLE: u64 = 1 << 63;

impl Waiter {
    pub(crate) fn new(owner: u64, settings: Arc<DLockConfig>, since: Moment) -> Arc<Self> {
        Arc::new(Self::with(owner, settings, since, None))
    }

    /// Creates the waiter of a task that waits for a hold with this number.
    #[cfg(feature = "async")]
    pub(crate) fn of_task(owner: u64, settings: Arc<DLockConfig>, since: Moment, task: Task) -> Arc<Self> {
        Arc::new(Self::with(owner, settings, since, Some(task)))
    }

    fn with(owner: u64, settings: Arc<DLockConfig>, since: Moment, task: Option<Task>) -> Self {
        Self {
            owner,
            settings,
            since,
            task,
            parked: Condvar::new(),
            parked_until: AtomicU64::new(0),
            place: AtomicU64::new(0),
        }
    }

    /// Returns where it stands in the queue, as a number that rises along the queue. Call it with the key's mutex held.
    fn place(&self) -> u64 {
        self.place.load(Ordering::Relaxed) // ORDERING: under the key's mutex.
    }

    fn set_place(&self, place: u64) {
        self.place.store(place, Ordering::Relaxed); // ORDERING: under the key's mutex.
    }

    /// Wakes the thread or the task, so that it looks what has changed. Call it with no mutex held.
    pub(crate) fn wake(&self) {
        match &self.task {
            Some(task) => task.waker.wake(),
            None => {
                self.parked.notify_one();
            }
        }
    }

    /// Returns the moment until which the thread sleeps at most. If the thread does not sleep yet, this is a moment that has come. Call it
    /// with the key's mutex held.
    pub(crate) fn parked_until(&self) -> Moment {
        Moment::from_nanos(self.parked_until.load(Ordering::Relaxed)) // ORDERING: under the key's mutex.
    }

    /// Parks the calling thread until it is woken, for `sleep` at most. `until` is the moment, by the client's clock, at which `sleep` ends
    /// at the latest.
    pub(crate) fn park<T>(&self, state: &mut MutexGuard<'_, T>, until: Moment, sleep: Duration) {
        self.parked_until.store(until.as_nanos(), Ordering::Relaxed); // ORDERING: under the key's mutex.
        self.parked.wait_for(state, sleep);
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/machine.rs"]
mod tests;
