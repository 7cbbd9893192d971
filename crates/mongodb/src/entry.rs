//! What the document of a key says, and the outcomes that follow from it.

use mongodb::bson::{DateTime, Document, de};
use redis_dlock::Error;
use redis_dlock::port::{
    AcquireOutcome, BreakOutcome, Broken, Busy, DelayReleaseOutcome, ExtendOutcome, Extension, Grant, Inspection,
    NotOurs, Parties, PollOutcome, ProbeOutcome, ReleaseOutcome,
};
use serde::Deserialize;
use std::time::Duration;

use crate::operation::RANGE;

/// How many waiting lockers are named.
const MOST_NAMED: usize = 100;

/// The document of a key at its time `at`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Entry {
    state: i32,
    who: Option<String>,
    until: Option<DateTime>,
    ts: i64,
    at: DateTime,
    #[serde(default)]
    queue: Vec<Waiter>,
    #[serde(default)]
    breaks: Vec<BrokenHold>,
    #[serde(default)]
    was: bool,
    /// By how many milliseconds the clock was ahead at the operation before.
    #[serde(default)]
    behind: i64,
}

#[derive(Clone, Debug, Deserialize)]
struct Waiter {
    who: String,
    lease: i64,
    seen: DateTime,
}

#[derive(Clone, Debug, Deserialize)]
struct BrokenHold {
    who: String,
    by: String,
    reason: String,
    until: DateTime,
}

impl Entry {
    /// A key without a document: nobody holds it, and nobody waits.
    pub(crate) fn free() -> Self {
        let at = DateTime::from_millis(0);
        let (queue, breaks) = (Vec::new(), Vec::new());
        Self { state: 0, who: None, until: None, ts: 0, at, queue, breaks, was: false, behind: 0 }
    }

    /// Reads a document. What has ended at its time is not in the entry: an operation has ended it, and a look has not.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if it is not a document of this store.
    pub(crate) fn read(key: &str, found: Option<Document>) -> Result<Option<Self>, Error> {
        let Some(document) = found else { return Ok(None) };
        let mut entry: Self = de::deserialize_from_document(document).map_err(|error| {
            Error::conflict(key, format!("its document in the collection locks is not a lock: {error}"))
        })?;
        let at = entry.at;
        if entry.until.is_some_and(|until| until <= at) {
            entry.state = 0;
        }
        entry
            .queue
            .retain(|waiter| waiter.seen.timestamp_millis().saturating_add(waiter.lease) > at.timestamp_millis());
        entry.breaks.retain(|told| told.until > at);
        Ok(Some(entry))
    }

    fn holder(&self) -> Option<&str> {
        self.who.as_deref().filter(|_| self.state == 2)
    }

    fn holds(&self, locker: &str) -> bool {
        self.holder() == Some(locker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holder().is_none() && self.queue.is_empty()
    }

    /// By how much the clock of the server is behind that of the operation before.
    pub(crate) fn behind(&self) -> Duration {
        Duration::from_millis(self.behind.try_into().unwrap_or_default())
    }

    fn remaining(&self) -> Option<Duration> {
        let left = self.until?.timestamp_millis().saturating_sub(self.at.timestamp_millis());
        Some(Duration::from_millis(left.try_into().unwrap_or_default()))
    }

    fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    fn grant(&self) -> Grant {
        Grant::new(self.ts.cast_unsigned(), self.waiting())
    }

    fn busy(&self) -> Busy {
        match self.holder() {
            Some(holder) => Busy::new(holder, self.remaining()),
            None => Busy::free(None),
        }
    }

    fn not_ours(&self) -> NotOurs {
        NotOurs::new(self.holder().map(str::to_owned))
    }

    pub(crate) fn acquired(&self, locker: &str) -> AcquireOutcome {
        if self.was && self.holds(locker) {
            AcquireOutcome::Acquired(self.grant())
        } else {
            AcquireOutcome::Busy(self.busy())
        }
    }

    pub(crate) fn polled(&self, locker: &str) -> PollOutcome {
        if self.holds(locker) {
            PollOutcome::Acquired(self.grant())
        } else if self.queue.iter().any(|waiter| waiter.who == locker) {
            PollOutcome::Waiting(self.busy())
        } else {
            PollOutcome::Gone
        }
    }

    pub(crate) fn extended(&self, locker: &str) -> ExtendOutcome {
        if !self.holds(locker) {
            return ExtendOutcome::NotOurs(self.not_ours());
        }
        ExtendOutcome::Extended(Extension::while_waiting(self.waiting()).with_number(self.ts.cast_unsigned()))
    }

    pub(crate) fn extended_with_numbers(&self, locker: &str) -> ExtendOutcome {
        let last = self.ts.cast_unsigned();
        match self.extended(locker) {
            ExtendOutcome::Extended(extension) => {
                ExtendOutcome::Extended(extension.with_numbers(Some(last + 1 - RANGE.cast_unsigned()..=last)))
            }
            other => other,
        }
    }

    pub(crate) fn released(&self, next: Option<&str>) -> ReleaseOutcome {
        match next {
            _ if !self.was => ReleaseOutcome::NotOurs(self.not_ours()),
            None => ReleaseOutcome::Released { waiting: self.waiting() },
            Some(next) if self.holds(next) => ReleaseOutcome::Passed(self.grant()),
            Some(_) => ReleaseOutcome::Queued(self.busy()),
        }
    }

    pub(crate) fn delayed(&self) -> DelayReleaseOutcome {
        if self.was { DelayReleaseOutcome::Delayed } else { DelayReleaseOutcome::NotOurs(self.not_ours()) }
    }

    pub(crate) fn probed(&self, locker: &str) -> ProbeOutcome {
        if self.holds(locker) { ProbeOutcome::Ours } else { ProbeOutcome::NotOurs(self.not_ours()) }
    }

    pub(crate) fn taken(&self) -> BreakOutcome {
        let holder = self.holder().map(str::to_owned);
        if self.was {
            BreakOutcome::Broken { next: holder, waiting: self.waiting() }
        } else {
            BreakOutcome::NotHeldBy { holder }
        }
    }

    /// By whom and why the last hold of a locker was broken.
    pub(crate) fn told(&self, locker: &str) -> Option<Broken> {
        let told = self.breaks.iter().rev().find(|told| told.who == locker)?;
        Some(Broken::new(&*told.by, &*told.reason))
    }

    pub(crate) fn inspection(&self) -> Inspection {
        let found = match self.holder() {
            Some(holder) => Inspection::held_by(holder, self.remaining()),
            None => Inspection::free(),
        };
        found.with_waiting(self.waiting())
    }

    pub(crate) fn parties(&self) -> Parties {
        let Inspection { holder, remaining, waiting, .. } = self.inspection();
        let lockers = self.queue.iter().take(MOST_NAMED).map(|waiter| waiter.who.clone()).collect();
        Parties::new(holder, remaining).with_waiting(lockers, waiting)
    }
}
