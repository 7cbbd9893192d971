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
//! | `Asking` | perhaps a question under way | the asker: the thread whose turn it is, or the retry thread | any |
//! | `Waiting` | nothing, or a locker whose outcome is unsettled | the retry thread when due; the listener, by a grant; the last waiter that gives up | at least one |
//! | `Held` | our locker, unless lost | the owner's last unlock | any |
//! | `Lingering` | our locker | an arriving thread, unless others want the key; the retry thread, when it is over or others want the key; who notices its loss; who closes the client | those that arrived after others wanted the key |
//! | `Releasing` | perhaps a release under way | who released | any |
//!
//! Invariants, all under the key's mutex:
//!
//! 1. Exactly one thread may leave `Asking` and `Releasing`, and it does no I/O while it has the mutex. So no answer can be late: it finds the phase it left.
//! 2. A thread owns the hold if and only if the phase is `Held`.
//! 3. A thread is parked only while the phase is not `Idle`, or the client is closed and it is about to leave.
//! 4. In `Waiting` and `Lingering` the retry thread has the key in its book; both change under the key's mutex, but that the
//!    retry thread takes the key out first. In `Held` it has it only if the tenure says so (`watched`), and does nothing about it.
//! 5. `turn` names a thread only in `Asking`; that thread is not in the queue. Without a name, `Asking` is the asking of a thread that never
//!    parked, or of the retry thread.
//! 6. A locker is sent by one acquire. It ends on the clean-up list when it ends while the outcome of that acquire is unknown.
//! 7. A lost tenure stays `Held` until its owner unlocks: a stale hold still keeps the local threads out. One that is lost while it
//!    lingers has no owner, and ends at once.
//! 8. In `Lingering` there is a token for the next hold.

use crate::clock::Moment;
use crate::error::Error;
use crate::state::queue::{Queue, Waiter};
use crate::state::tenure::{Tenure, Unsettled};
use crate::store::processor::{Gap, Grant};
use crate::sync::mutant;
use crossbeam_channel::Sender;
use std::sync::Arc;

/// What a question that may lead to the store's queue is about, and what was heard of it before its answer.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) locker: Arc<str>,
    pub(crate) heard: Option<Grant>,
    /// Whether others were heard to wait for it: the message of the grant, or the answer, was overtaken or lost.
    pub(crate) contended: bool,
}

/// A tenure that has ended, until its release is answered or sent.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) locker: Arc<str>,
    /// Whether its grant was heard since: then the release is repeated.
    pub(crate) heard: bool,
}

/// See the module's table.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    Asking { turn: Option<u64>, about: Option<About> },
    Waiting { unsettled: Option<Unsettled> },
    Held(Tenure),
    Lingering { tenure: Tenure, until: Moment },
    Releasing { ended: Option<Ended>, about: Option<About> },
}

/// What the mutex of a key protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) queue: Queue,
    /// Why the last question had no answer; `None` when it had one.
    pub(crate) failure: Option<Error>,
    /// Questions since the key was last ours or nobody waited: the first wait is shorter than the others.
    pub(crate) asked: u32,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// When this client last asked to leave the key free for pollers.
    gap_at: Option<Moment>,
    /// Who is told of the loss of the current hold.
    pub(crate) watchers: Vec<Sender<()>>,
    /// The locker of the tenure that was released last, answered or not.
    pub(crate) released: Option<Arc<str>>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            queue: Queue::default(),
            failure: None,
            asked: 0,
            failures: 0,
            gap_at: None,
            watchers: Vec::new(),
            released: None,
        }
    }

    /// Gives the turn to the first waiter, who is to be woken, or rests when nobody waits. From `Asking` or `Releasing`.
    #[must_use]
    pub(crate) fn pass_turn(&mut self) -> Option<Arc<Waiter>> {
        debug_assert!(matches!(self.phase, Phase::Asking { .. } | Phase::Releasing { .. }));
        let next = self.queue.pop();
        self.phase = match &next {
            Some(waiter) => Phase::Asking { turn: Some(waiter.thread), about: None },
            None => Phase::Idle,
        };
        if next.is_none() {
            self.rest();
        }
        next
    }

    /// Whether it is time to leave the key free for pollers, at the end of the tenure that is kept.
    pub(crate) fn gap_is_due(&self, now: Moment) -> bool {
        match &self.phase {
            Phase::Held(tenure) => self.gap(tenure, now).is_some(),
            _ => false,
        }
    }

    /// Lets the release of a tenure that ends leave the key free for pollers, if it is time to.
    pub(crate) fn tenure_ends(&mut self, tenure: &mut Tenure, now: Moment) {
        tenure.gap = self.gap(tenure, now);
        if tenure.gap.is_some() {
            self.gap_at = Some(now);
        }
    }

    fn gap(&self, tenure: &Tenure, now: Moment) -> Option<Gap> {
        tenure.gap(self.gap_at, !self.queue.is_empty(), now)
    }

    /// Takes a waiter that gives up out of the queue. When it was the last one and only the retry thread would still
    /// ask, returns to `Idle`; the second value then is the locker that must be cleaned up.
    pub(crate) fn give_up(&mut self, thread: u64) -> (bool, Option<Unsettled>) {
        self.queue.remove(thread);
        if !self.queue.is_empty() || !matches!(self.phase, Phase::Waiting { .. }) {
            return (false, None);
        }
        self.rest();
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Waiting { unsettled } => (true, unsettled),
            _ => (true, None),
        }
    }

    /// Whether it is this thread's turn to ask.
    pub(crate) fn is_turn_of(&self, thread: u64) -> bool {
        matches!(self.phase, Phase::Asking { turn: Some(t), .. } if t == thread)
    }

    /// Notes that a question is about this locker, of which the inbox may hear before the answer comes.
    pub(crate) fn ask_about(&mut self, locker: &Arc<str>) {
        if let Phase::Asking { about, .. } | Phase::Releasing { about, .. } = &mut self.phase
            && about.as_ref().is_none_or(|about| about.locker != *locker)
        {
            *about = Some(About { locker: Arc::clone(locker), heard: None, contended: false });
        }
    }

    /// What the inbox has heard of the question that is under way. It stays there: more may be heard until the phase
    /// changes.
    pub(crate) fn heard(&self) -> Option<Grant> {
        self.about().and_then(|about| about.heard)
    }

    /// What the question under way is about.
    pub(crate) fn about(&self) -> Option<&About> {
        match &self.phase {
            Phase::Asking { about, .. } | Phase::Releasing { about, .. } => about.as_ref(),
            _ => None,
        }
    }

    /// Notes that the release that is under way is answered, or sent before whatever is sent from now on. Returns its locker if the
    /// release is to be repeated.
    #[must_use]
    pub(crate) fn release_ends(&mut self) -> Option<Arc<str>> {
        let Phase::Releasing { ended, .. } = &mut self.phase else { return None };
        ended.take().filter(|ended| ended.heard).map(|ended| ended.locker)
    }

    /// The tenure that is kept, for a hold or for the next one.
    pub(crate) fn kept(&mut self) -> Option<&mut Tenure> {
        match &mut self.phase {
            Phase::Held(tenure) | Phase::Lingering { tenure, .. } => Some(tenure),
            _ => None,
        }
    }

    /// The tenure with this locker, if it is kept and not lost.
    pub(crate) fn live_tenure(&mut self, locker: &str) -> Option<&mut Tenure> {
        self.kept().filter(|tenure| !tenure.is_lost() && (&*tenure.locker == locker || mutant!(ExtendsAnyTenure)))
    }

    /// Whether the tenure is kept for nobody while others want it.
    pub(crate) fn is_recalled(&self) -> bool {
        matches!(&self.phase, Phase::Lingering { tenure, .. } if tenure.is_contended() && !mutant!(IgnoresRecall))
    }

    fn rest(&mut self) {
        self.failure = None;
        self.asked = 0;
        self.failures = 0;
    }
}
