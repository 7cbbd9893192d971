//! The tenures that a client keeps: how one begins and ends, when the thread `dlock-lease` must look at each, and how long an attempt to renew
//! may take. What that thread does stands in [`lease_thread`](super::lease_thread).

use super::core::Core;
use super::worker::{Schedule, Worker};
use crate::clock::{Moment, Timer};
use crate::port::StoreLimits;
use crate::state::key::Key;
use crate::state::machine::{Ended, Phase, State, Taker};
use crate::state::task::Watcher;
use crate::state::tenure::{Pace, Tenure};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Renewals {
    clock: Timer,
    limits: StoreLimits,
    beats_from: Option<Moment>,
    tenures: Mutex<Tenures>,
    pub(super) thread: Worker,
    /// The slowest recent round trip, in nanoseconds.
    // ORDERING: Relaxed: a statistic.
    trip: AtomicU64,
    /// When another server than before answered last, in nanoseconds; zero if none did.
    // ORDERING: SeqCst. `doubt_until` stores it before the keys are looked at; `grant` loads it with the key's mutex held. So if a grant and
    // such a change happen at the same time, either the grant sees the moment, or the thread that looks at the keys finds the tenure.
    doubted_until: AtomicU64,
}

struct Tenures {
    /// The keys, by when each must be looked at.
    looks: Schedule<Arc<Key>>,
    /// The deadlines of the live tenures.
    deadlines: Schedule<()>,
}

impl Renewals {
    pub(super) fn new(core: &Core, thread: Worker) -> Self {
        Self {
            clock: core.clock.clone(),
            limits: core.limits,
            beats_from: core.limits.asks_together.then(|| core.clock.now()),
            tenures: Mutex::new(Tenures { looks: Schedule::new(), deadlines: Schedule::new() }),
            thread,
            trip: AtomicU64::new(0),
            doubted_until: AtomicU64::new(0),
        }
    }

    /// Gives the hold of a new tenure to a thread. The caller must have the turn, or the phase must be `Waiting`.
    pub(super) fn grant(&self, key: &Arc<Key>, state: &mut State, mut tenure: Box<Tenure>, to: Taker<'_>, now: Moment) {
        tenure.begin(now);
        if let Some(about) = state.about_locker(&tenure.locker) {
            if about.contended {
                tenure.others.note(1, now);
            }
            if about.broken {
                tenure.lease.told_broken(now);
            }
        }
        state.forget_requests();
        // An earlier server may have granted the key, while its reply was on its way.
        let doubted_until = self.doubted_until.load(Ordering::SeqCst);
        if doubted_until != 0 && tenure.lease.renewed_at.as_nanos() <= doubted_until {
            tenure.lease.doubt(now);
        }
        key.hold.begin(to, &tenure);
        self.put(key, &tenure);
        state.phase = Phase::Held(tenure);
    }

    /// Gives the next hold of a tenure that was kept to a thread. Call it with the key's mutex held.
    pub(super) fn grant_next(&self, key: &Arc<Key>, tenure: &mut Tenure, to: Taker<'_>, now: Moment) {
        tenure.begin_next(now);
        if tenure.times_holds() {
            // A limit or a report of this hold may be due before the lease thread would look.
            self.put(key, tenure);
        }
        key.hold.begin(to, tenure);
    }

    /// Ends the current hold and enters `phase`. Returns the tenure and the loss channels of the hold, or `None` if
    /// there is no hold. Call it with the key's mutex held.
    pub(super) fn end_hold(&self, key: &Key, state: &mut State, phase: Phase) -> Option<(Box<Tenure>, Vec<Watcher>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false, is_ordered: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
                self.forget(key);
                key.hold.end();
                Some((tenure, std::mem::take(&mut state.watchers)))
            }
            other => {
                state.phase = other;
                None
            }
        }
    }

    /// Notes that another server than before answers. What was requested by this moment may have been answered by an earlier one.
    pub(super) fn doubt_until(&self, now: Moment) {
        self.doubted_until.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Adds a new tenure, or notes that it is due at another moment.
    pub(super) fn put(&self, key: &Arc<Key>, tenure: &Tenure) {
        self.look_at(key, tenure, tenure.due(self.pace()));
    }

    /// Sets when the thread must look at a kept tenure.
    pub(super) fn look_at(&self, key: &Arc<Key>, tenure: &Tenure, due: Moment) {
        let mut tenures = self.tenures.lock();
        tenures.looks.put(key.id, due, Arc::clone(key));
        tenures.deadlines.put(key.id, tenure.deadline(), ());
        drop(tenures);
        self.thread.wake_by(due);
    }

    /// Stops renewing a tenure that was lost. Its key stays until the hold ends. This keeps the key alive, so that the thread of the
    /// stale hold finds it again, and the lease thread checks from time to time whether that thread has ended.
    pub(super) fn stop_renewing(&self, key: &Arc<Key>, tenure: &Tenure) {
        let look = self.clock.now() + timing::stale_look_pause(tenure.lease());
        let mut tenures = self.tenures.lock();
        tenures.deadlines.remove(key.id);
        tenures.looks.put(key.id, look, Arc::clone(key));
        drop(tenures);
        self.thread.wake_by(look);
    }

    /// Removes the tenure of a hold that ends.
    pub(super) fn forget(&self, key: &Key) {
        let mut tenures = self.tenures.lock();
        tenures.deadlines.remove(key.id);
        let removed = tenures.looks.remove(key.id);
        drop(tenures);
        drop(removed);
    }

    /// Makes every tenure due now.
    pub(super) fn hasten(&self, now: Moment) {
        self.tenures.lock().looks.hasten(now);
        self.thread.wake_by(now);
    }

    pub(super) fn take_due(&self, now: Moment) -> Vec<Arc<Key>> {
        self.tenures.lock().looks.take_due(now, usize::MAX)
    }

    /// Returns when the next tenure must be looked at.
    pub(super) fn next(&self) -> Moment {
        self.tenures.lock().looks.next()
    }

    /// Returns the earliest deadline of a live tenure; [`Moment::NEVER`] if there is none.
    pub(super) fn first_deadline(&self) -> Moment {
        self.tenures.lock().deadlines.next()
    }

    /// Notes how long the store took to reply.
    pub(super) fn note_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // ORDERING: Relaxed: a statistic. If two threads update it at once, one update is lost; that costs only
        // precision.
        let before = self.trip.load(Ordering::Relaxed);
        self.trip.store(took.max(before - before / timing::TRIP_DECAY), Ordering::Relaxed);
    }

    /// Returns the slowest recent round trip. A lease that is short for it is renewed earlier.
    pub(super) fn trip(&self) -> Duration {
        Duration::from_nanos(self.trip.load(Ordering::Relaxed)) // ORDERING: Relaxed: a statistic.
    }

    /// Returns what the times of asking depend on.
    pub(super) fn pace(&self) -> Pace {
        Pace { trip: self.trip(), beats_from: self.beats_from }
    }

    /// Returns how long the lease thread may ask what no lease depends on: a quarter of what the most urgent lease has left, and never
    /// long, because another lease may begin meanwhile.
    pub(super) fn side_limit(&self) -> Duration {
        let urgent = self.first_deadline().since(self.clock.now());
        let most = timing::SIDE_LIMIT.max(self.trip() * 4).min(self.limits.command);
        most.min(urgent / 4).max(timing::SHORTEST_COMMAND)
    }

    /// Returns how long an attempt may take that is sent now and renews tenures whose deadlines are `first` and `last` or between these. It should
    /// leave time for further attempts, for these tenures and for the one with the deadline `other`.
    pub(super) fn limit(&self, first: Moment, last: Moment, other: Moment, now: Moment) -> Duration {
        let urgent = other.min(first).since(now);
        timing::attempt_limit(urgent, last.since(now), self.trip())
            .min(self.limits.command)
            .max(timing::SHORTEST_COMMAND)
    }
}
