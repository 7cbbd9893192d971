//! The schedules of the two workers: when the retry thread must ask for which key, and which tenures the lease thread
//! must renew.

use super::core::Core;
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::state::key::Key;
use crate::state::tenure::Tenure;
use crate::sync::atomic::Ordering;
use crate::sync::mutant;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// The retry thread's schedule.
impl Core {
    pub(crate) fn start_retry_thread(&self) -> Result<(), Error> {
        if !self.retry_thread.is_started() {
            self.check_process()?;
        }
        self.retry_thread.start(&self.this, self.rounds.retry)
    }

    pub(crate) fn retry_at(&self, key: &Arc<Key>, at: Moment) {
        self.waiting.lock().put(key.id, at, Arc::clone(key));
        self.retry_thread.wake_by(at);
    }

    /// Removes a key for which nobody waits any more. Call it with the key's mutex held.
    pub(crate) fn forget_retry(&self, key: &Key) {
        let removed = self.waiting.lock().remove(key.id);
        drop(removed);
    }

    /// Makes every waited-for key due now.
    pub(crate) fn hasten_retries(&self, now: Moment) {
        self.waiting.lock().hasten(now);
        self.retry_thread.wake_by(now);
    }

    pub(crate) fn take_due_retries(&self, now: Moment) -> Vec<Arc<Key>> {
        self.waiting.lock().take_due(now, usize::MAX)
    }

    pub(crate) fn next_retry(&self) -> Moment {
        self.waiting.lock().next().min(self.cleanup.next()).min(self.releases.next_collection())
    }

    /// Makes sure that the retry thread wakes when something is due.
    pub(crate) fn wake_retry_thread(&self) {
        self.retry_thread.wake_by(self.next_retry());
    }

    /// Wakes the retry thread for the clean-up list.
    pub(crate) fn wake_cleanup(&self) {
        match self.start_retry_thread() {
            Ok(()) => self.retry_thread.wake_by(self.cleanup.next()),
            Err(Error::ShutDown) => {}
            Err(error) => log::error!(CLIENT, "cannot start the retry thread, clean-up is delayed: {error}"),
        }
    }
}

/// The lease thread's schedule.
impl Core {
    pub(super) fn start_lease_thread(&self) -> Result<(), Error> {
        if self.lease_thread.is_started() {
            return Ok(());
        }
        self.check_process()?;
        self.lease_thread.start(&self.this, self.rounds.renew)?;
        self.begin_record();
        Ok(())
    }

    /// Adds a new tenure to the lease thread's schedule.
    pub(crate) fn schedule_renewal(&self, key: &Arc<Key>, tenure: &Tenure) {
        self.schedule_look(key, tenure, tenure.due(self.trip()));
    }

    /// Sets when the lease thread must look at a kept tenure.
    pub(crate) fn schedule_look(&self, key: &Arc<Key>, tenure: &Tenure, due: Moment) {
        let mut renewals = self.renewals.lock();
        renewals.schedule.put(key.id, due, Arc::clone(key));
        renewals.deadlines.put(key.id, tenure.deadline(), ());
        drop(renewals);
        self.lease_thread.wake_by(due);
    }

    /// Stops renewing a tenure that was lost. Its key stays in the schedule until the hold ends. This keeps the key
    /// alive, so that the thread of the stale hold finds it again, and the lease thread checks from time to time
    /// whether that thread has ended.
    pub(crate) fn stop_renewing(&self, key: &Arc<Key>, look: Moment) {
        let mut renewals = self.renewals.lock();
        renewals.deadlines.remove(key.id);
        renewals.schedule.put(key.id, look, Arc::clone(key));
        drop(renewals);
        self.lease_thread.wake_by(look);
    }

    /// Removes the tenure of a hold that ends.
    pub(crate) fn forget_renewal(&self, key: &Key) {
        let mut renewals = self.renewals.lock();
        renewals.deadlines.remove(key.id);
        let removed = renewals.schedule.remove(key.id);
        drop(renewals);
        drop(removed);
    }

    pub(crate) fn take_due_leases(&self, now: Moment) -> Vec<Arc<Key>> {
        self.renewals.lock().schedule.take_due(now, usize::MAX)
    }

    pub(crate) fn next_lease(&self) -> Moment {
        self.renewals.lock().schedule.next()
    }

    /// Returns the number of the last server that is known to have answered.
    pub(crate) fn server_seen(&self) -> u64 {
        self.server.load(Ordering::SeqCst)
    }

    /// Returns `true` if the request sent at that moment may have been answered by an earlier server than the last one that is known.
    pub(crate) fn is_of_earlier_server(&self, sent_at: Moment) -> bool {
        let rose_at = self.server_rose_at.load(Ordering::SeqCst);
        rose_at != 0 && sent_at.as_nanos() <= rose_at
    }

    /// Checks, after a request, whether another server has answered than before. If so, makes every wait, every tenure
    /// and every release that is to be repeated due now: the other server may not know of them, or know of them alone.
    /// The listener does not wait any longer either: until it has subscribed, waiters may lose their places.
    pub(crate) fn notice_server(&self) {
        let server = self.processor.status().server;
        if mutant!(IgnoresNewServers)
            || self.server_seen() >= server
            || self.server.fetch_max(server, Ordering::SeqCst) >= server
        {
            return;
        }
        log::info!(CLIENT, "another server answers than before: asking about every lock that is held or waited for");
        self.tell_new_server(server);
        let now = self.clock.now();
        self.server_rose_at.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
        for key in self.keys.all() {
            if let Some(tenure) = key.state().kept() {
                tenure.lease.doubt(now);
            }
        }
        self.cleanup.hasten(now);
        self.hasten_retries(now);
        self.renewals.lock().schedule.hasten(now);
        self.lease_thread.wake_by(now);
        self.listener.hasten();
    }

    /// Notes how long the store took to reply.
    pub(crate) fn note_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // ORDERING: Relaxed: a statistic. If two threads update it at once, one update is lost; that costs only
        // precision.
        let before = self.trip.load(Ordering::Relaxed);
        self.trip.store(took.max(before - before / timing::TRIP_DECAY), Ordering::Relaxed);
    }

    /// Returns the slowest recent round trip. A lease that is short for it is renewed earlier.
    pub(crate) fn trip(&self) -> Duration {
        Duration::from_nanos(self.trip.load(Ordering::Relaxed)) // ORDERING: Relaxed: a statistic.
    }

    /// Returns how long the lease thread may ask what no lease depends on: a quarter of what the most urgent lease has left, and never
    /// long, because another lease may begin meanwhile.
    pub(crate) fn side_limit(&self) -> Duration {
        let urgent = self.renewals.lock().deadlines.next().since(self.clock.now());
        let most = timing::SIDE_LIMIT.max(self.trip() * 4).min(self.limits.command);
        most.min(urgent / 4).max(timing::SHORTEST_COMMAND)
    }

    /// Returns how long a renewal of tenures may take whose deadlines are `first` and `last` or between these. It should leave time for
    /// further attempts, for these tenures and for every other one that the lease thread renews. Once some are renewed apart, only
    /// `first` and `last` count: the ends of leases whose servers keep others waiting must not shorten the time of others, nor the
    /// other way round.
    pub(crate) fn renewal_limit(&self, first: Moment, last: Moment, now: Moment, is_apart: bool) -> Duration {
        let counts_all = !is_apart && !self.apart.renews();
        let others = if counts_all { self.renewals.lock().deadlines.next() } else { Moment::NEVER };
        let urgent = others.min(first).since(now);
        timing::attempt_limit(urgent, last.since(now), self.trip())
            .min(self.limits.command)
            .max(timing::SHORTEST_COMMAND)
    }
}
