//! The slots whose channels a client has subscribed. The threads that lock and the listening thread share this.
//!
//! | phase of a slot | meaning | next |
//! |---|---|---|
//! | absent | no thread has waited in this slot recently | `Off`, when a tenure is about to wait |
//! | `Off` | the channel will be subscribed when the slot is due | `Asked` |
//! | `Asked(subscriber)` | the subscription was sent on this connection, and has no answer yet | `Heard`; `Off` if it is refused or the connection breaks |
//! | `Heard(subscriber)` | the server has confirmed the subscription: a grant of a key in the slot arrives | `Off` if the server or the connection ends it; absent when nobody needs it |
//!
//! 1. *Only the listening thread subscribes, and moves a slot from phase to phase*; other threads only turn an absent slot into `Off`, and
//!    wait. If another connection than the one of the phase says anything about the slot, that is late, and is ignored.
//! 2. *A slot becomes `Heard` after the confirmation, and stops being `Heard` before the client ends the subscription.* If the server ends
//!    the subscription, the slot stays `Heard` for a moment. A tenure that queues meanwhile keeps its place in the queue for a second, as
//!    every unheard tenure does. The threads that lock look at a slot under the mutex of a key, so no thread sends or waits under the mutex
//!    of the slots.
//! 3. *A thread that could not wait until its slot was `Heard` is told later*: the inbox delivers `ChangedAmong` for the slot.

use super::super::timing::{IDLE_SLOT, READY};
use super::subscriber::SubscriberId;
use super::waker::Waker;
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::address::Place;
use crate::store::redis::net::endpoint::Endpoint;
use crate::store::redis::net::link::Link;
use crate::store::redis::script::keys::{SLOTS, Slot};
use crate::sync::unseen::{Condvar, Mutex};
use crate::sync::{catch_panic, on_own_thread};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// With more slots than this, the client drops those that no tenure needs at once, and not only when they have been idle for a while.
const MANY: usize = 4096;

pub(crate) struct SlotSubscriptions {
    pub(super) client: String,
    pub(super) waker: Waker,
    state: Mutex<SlotsState>,
    /// For each slot whether it is absent, known or heard. The threads that lock read this, so a lock that nobody waits for takes no mutex here.
    // ORDERING: SeqCst. Stored with the mutex of `state` held, and loaded without it, as if the loader had had the mutex for that moment.
    seen: Box<[AtomicU8]>,
    changed: Condvar,
}

/// What `seen` says of a slot.
const ABSENT: u8 = 0;
const KNOWN: u8 = 1;
const HEARD: u8 = 2;

/// The outcome of a connect.
pub(super) struct Opened {
    pub(super) subscriber: SubscriberId,
    pub(super) place: Place,
    pub(super) link: Result<Link, Error>,
}

#[derive(Default)]
struct SlotsState {
    slots: HashMap<Slot, SlotSubscription>,
    /// The slots that are `Off`, so that a message need not look at all slots.
    off: HashSet<Slot>,
    /// The connections that were opened for the listening thread, and the errors of failed connects.
    opened: Vec<Opened>,
    is_closed: bool,
}

struct SlotSubscription {
    phase: SlotPhase,
    /// When the subscription is to be sent, in `Off`.
    due: Instant,
    failures: u32,
    /// Why the last subscription failed.
    failure: Option<Error>,
    /// Until when a tenure may need the slot, as far as its requests tell.
    needed_until: Instant,
    /// How many threads wait until it is heard.
    waiting: usize,
    /// Whether a thread went on without hearing.
    is_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotPhase {
    Off,
    Asked(SubscriberId),
    Heard(SubscriberId),
}

impl SlotPhase {
    fn subscriber(self) -> Option<SubscriberId> {
        match self {
            Self::Off => None,
            Self::Asked(subscriber) | Self::Heard(subscriber) => Some(subscriber),
        }
    }

    fn is_heard(self) -> bool {
        matches!(self, Self::Heard(_))
    }
}

impl SlotsState {
    fn hears(&self, slot: Slot) -> bool {
        self.slots.get(&slot).is_some_and(|subscription| subscription.phase.is_heard())
    }
}

impl SlotSubscriptions {
    pub(super) fn new(client: &str, waker: Waker) -> Self {
        let seen = (0..SLOTS).map(|_| AtomicU8::new(ABSENT)).collect();
        Self { client: client.to_owned(), waker, state: Mutex::default(), seen, changed: Condvar::new() }
    }

    /// Shows the threads that lock what became of a slot, before the mutex is given back.
    fn show(&self, state: &SlotsState, slot: Slot) {
        let seen = match state.slots.get(&slot) {
            None => ABSENT,
            Some(subscription) if subscription.phase.is_heard() => HEARD,
            Some(_) => KNOWN,
        };
        self.seen[usize::from(slot)].store(seen, Ordering::SeqCst); // ORDERING: see `seen`.
    }

    fn sees(&self, slot: Slot) -> u8 {
        self.seen[usize::from(slot)].load(Ordering::SeqCst) // ORDERING: see `seen`.
    }

    /// Opens the connection of a subscriber, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the operating system refuses the thread.
    pub(super) fn open(self: &Arc<Self>, subscriber: SubscriberId, place: Place, endpoint: Endpoint) -> io::Result<()> {
        let subscriptions = Arc::clone(self);
        let open = move || {
            let deadline = Instant::now() + endpoint.connect_timeout;
            // A connect may last for the whole connect time-out. The listening thread must not wait so long, because it delivers the grants of all
            // other nodes. The program's logger may panic.
            let link = catch_panic(|| endpoint.connect(deadline)).unwrap_or_else(|| {
                let message = "opening a connection panicked; please report it";
                Err(Error::backend(BackendFailure::NotExecuted, message))
            });
            // The outcome is handed over in every case. Without an outcome, the slots of the connect would stay `Asked` for ever.
            subscriptions.state.lock().opened.push(Opened { subscriber, place, link });
            subscriptions.waker.wake();
        };
        std::thread::Builder::new().name("dlock-connect".to_owned()).spawn(|| on_own_thread(open)).map(drop)
    }

    /// Takes the connections that were opened.
    pub(super) fn take_opened(&self) -> Vec<Opened> {
        std::mem::take(&mut self.state.lock().opened)
    }

    /// Returns `true` if the slot is heard.
    pub(crate) fn hears(&self, slot: Slot) -> bool {
        self.sees(slot) == HEARD
    }

    /// Notes that a tenure with this lease needs the slot now, unless the slot is absent. The tenure asks again before its lease is over.
    pub(crate) fn note_need(&self, slot: Slot, lease: Duration) {
        if self.sees(slot) != ABSENT
            && let Some(subscription) = self.state.lock().slots.get_mut(&slot)
        {
            subscription.need(lease);
        }
    }

    /// Waits until the slot is heard, for at most `limit`. If it is heard only later, the inbox delivers `ChangedAmong` for its keys.
    ///
    /// # Errors
    ///
    /// The reason why it is not heard yet.
    pub(crate) fn get_ready(&self, slot: Slot, limit: Duration) -> Result<(), Error> {
        let now = Instant::now();
        let deadline = crate::timing::end_of(limit, now);
        let mut state = self.state.lock();
        // The mutex is held from the look at the slot to the wait. So a confirmation that comes in between is not missed.
        let mut is_new = false;
        let subscription = state.slots.entry(slot).or_insert_with(|| {
            is_new = true;
            SlotSubscription {
                phase: SlotPhase::Off,
                due: now,
                failures: 0,
                failure: None,
                needed_until: now,
                waiting: 0,
                is_late: false,
            }
        });
        // This comes before the wait: the look for idle slots must not remove this slot meanwhile.
        subscription.need(READY);
        subscription.waiting += 1;
        if is_new {
            state.off.insert(slot);
            self.show(&state, slot);
            self.waker.wake();
        }
        let failure = loop {
            let subscription = state.slots.get(&slot);
            let failure = match subscription {
                Some(SlotSubscription { phase: SlotPhase::Heard(_), .. }) => break None,
                // The subscription was refused, and is not tried again at once. The thread does not wait for the next try. It polls meanwhile, and is
                // told when the slot is heard (rule 3).
                Some(SlotSubscription { failure: Some(failure), .. }) => Some(failure.clone()),
                None | Some(_) if state.is_closed => Some(Error::ShutDown),
                _ => None,
            };
            if failure.is_some() || self.changed.wait_until(&mut state, deadline).timed_out() {
                let late = || Error::backend(BackendFailure::NotExecuted, "the subscription is not confirmed yet");
                break (!state.hears(slot)).then(|| failure.unwrap_or_else(late));
            }
        };
        if let Some(subscription) = state.slots.get_mut(&slot) {
            subscription.waiting -= 1;
            // This happens under the mutex of the last look, so a later confirmation finds it. The thread then asks once more: a grant in between
            // may have found no subscriber.
            subscription.is_late |= failure.is_some();
        }
        failure.map_or(Ok(()), Err)
    }

    /// Takes the slots that are due to be subscribed. The caller must call [`ask`](Self::ask) or [`lose`](Self::lose) for each.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Slot> {
        let mut state = self.state.lock();
        let SlotsState { slots, off, .. } = &mut *state;
        // A slot that was forgotten meanwhile may be among them. Both calls ignore such a slot.
        off.extract_if(|slot| slots.get(slot).is_none_or(|subscription| subscription.due <= now)).collect()
    }

    /// Returns when the next slot is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.off.iter().filter_map(|slot| Some(state.slots.get(slot)?.due)).min()
    }

    /// Makes the slots due now that could not be subscribed before and whose owner has changed.
    pub(super) fn hasten(&self, has_changed: impl Fn(Slot) -> bool, now: Instant) {
        let mut state = self.state.lock();
        let SlotsState { slots, off, .. } = &mut *state;
        for slot in off.iter().filter(|slot| has_changed(**slot)) {
            if let Some(subscription) = slots.get_mut(slot) {
                (subscription.due, subscription.failures, subscription.failure) = (now, 0, None);
            }
        }
    }

    /// Notes that slots that were due are subscribed on a connection, or will be when it is open.
    pub(super) fn ask(&self, due: &[Slot], subscriber: SubscriberId) {
        let mut state = self.state.lock();
        for slot in due {
            if let Some(subscription) = state.slots.get_mut(slot) {
                subscription.phase = SlotPhase::Asked(subscriber);
            }
            self.show(&state, *slot);
        }
    }

    /// Notes that the server has confirmed the subscription on a connection. Returns whether a thread went on without it; `None` if the slot
    /// is not to be heard on that connection.
    pub(super) fn confirm(&self, slot: Slot, subscriber: SubscriberId) -> Option<bool> {
        let mut state = self.state.lock();
        let subscription =
            state.slots.get_mut(&slot).filter(|subscription| subscription.phase.subscriber() == Some(subscriber))?;
        // Only the connection that was asked counts (rule 1). An earlier one may confirm late, and end a moment later.
        (subscription.phase, subscription.failures, subscription.failure) = (SlotPhase::Heard(subscriber), 0, None);
        let is_late = std::mem::take(&mut subscription.is_late);
        self.show(&state, slot);
        drop(state);
        self.changed.notify_all();
        Some(is_late)
    }

    /// Notes that the slot is not heard on a connection any more, or was not subscribed there, and is to be subscribed at `due`. Without a
    /// connection, notes that a slot that was due is not asked for. Does nothing if the slot belongs to another connection. Returns `true` if it was
    /// heard. With a failure, the threads that wait for the slot go on.
    pub(super) fn lose(
        &self,
        slot: Slot,
        subscriber: Option<SubscriberId>,
        failure: Option<Error>,
        due: impl FnOnce(u32) -> Instant,
    ) -> bool {
        let mut state = self.state.lock();
        let Some(subscription) =
            state.slots.get_mut(&slot).filter(|subscription| subscription.phase.subscriber() == subscriber)
        else {
            return false;
        };
        // The loss of a slot that was heard is news for the client: messages may have been lost. The refusal of a slot that was never heard is not.
        let was_heard = subscription.phase.is_heard();
        subscription.failures =
            if failure.is_some() { subscription.failures.saturating_add(1) } else { subscription.failures };
        (subscription.phase, subscription.due, subscription.failure) =
            (SlotPhase::Off, due(subscription.failures), failure);
        state.off.insert(slot);
        self.show(&state, slot);
        drop(state);
        self.changed.notify_all();
        was_heard
    }

    /// Forgets the slots that no tenure needs any more, and returns them. The caller must unsubscribe those that were heard. Above [`MANY`]
    /// slots, the slots that were needed longest ago go first.
    pub(super) fn take_idle(&self, now: Instant) -> Vec<Slot> {
        let mut state = self.state.lock();
        let may_go = |subscription: &SlotSubscription| {
            // A slot stays while a thread waits for it. It also stays while its confirmation is on the way, because the confirmation of a forgotten
            // slot could not be matched. A tenure says with each request until when it needs the slot, and asks again before that.
            subscription.waiting == 0
                && !matches!(subscription.phase, SlotPhase::Asked(_))
                && subscription.needed_until < now
        };
        let unneeded = state.slots.iter().filter(|(_, subscription)| may_go(subscription));
        let mut unneeded: Vec<_> = unneeded.map(|(slot, subscription)| (subscription.needed_until, *slot)).collect();
        // The slots that were needed longest ago go first, because they are the least likely to be needed again.
        unneeded.sort_unstable();
        let too_many = state.slots.len().saturating_sub(MANY);
        let goes = |(at, (until, _)): &(usize, (Instant, Slot))| *at < too_many || *until + IDLE_SLOT < now;
        let idle: Vec<_> = unneeded.into_iter().enumerate().filter(goes).map(|(_, (_, slot))| slot).collect();
        for slot in &idle {
            state.slots.remove(slot);
            state.off.remove(slot);
            self.show(&state, *slot);
        }
        idle
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
        self.waker.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }
}

impl SlotSubscription {
    fn need(&mut self, lease: Duration) {
        let until = crate::timing::end_of(lease, Instant::now());
        self.needed_until = self.needed_until.max(until);
    }
}

#[cfg(test)]
#[path = "../../../../../tests/white_box/store/redis/cluster/inbox/slot_subscriptions.rs"]
mod tests;
