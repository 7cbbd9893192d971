//! The receivers of a client's events: the functions of the program, and the recorder of metrics.

use super::Queued;
use super::hook::{Function, Hook};
use super::metrics::{Meters, Sample};
use super::outage::Outage;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::Event;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// What the builder has been given.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) on_event: Option<Function>,
    pub(crate) on_lost: Option<Function>,
    pub(crate) on_slow_wait: Option<Function>,
    /// How long a wait must last to count as slow.
    pub(crate) slow_after: Option<Duration>,
    /// Whether metrics are recorded.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the feature sets it"))]
    pub(crate) metrics: bool,
}

impl Hooks {
    /// Returns the observer, if anybody wants to be told anything.
    pub(super) fn into_observer(self) -> Option<Observer> {
        #[cfg(feature = "metrics")]
        let meters = if self.metrics { Meters::new() } else { None };
        #[cfg(not(feature = "metrics"))]
        let meters = None;
        let has_events = self.on_event.is_some();
        let wants_slow_waits = has_events || self.on_slow_wait.is_some();
        let slow_after = wants_slow_waits.then(|| self.slow_after.unwrap_or(timing::SLOW_WAIT));
        let others = [self.on_event, self.on_slow_wait].into_iter().flatten();
        let hooks: Vec<_> = [Hook::of(self.on_lost), Hook::of(others)].into_iter().flatten().collect();
        if hooks.is_empty() && meters.is_none() {
            return None;
        }
        Some(Observer { hooks, has_events, meters, slow_after, outage: Outage::default() })
    }
}

pub(super) struct Observer {
    /// The functions: that for losses, and the others.
    hooks: Vec<Arc<Hook>>,
    /// Whether there is a function for all events.
    has_events: bool,
    /// The series that are recorded, if metrics are.
    pub(super) meters: Option<Arc<Meters>>,
    /// How long a wait must last to be told of, if anybody wants that.
    pub(super) slow_after: Option<Duration>,
    /// Whether the store fails. Nothing is noted unless somebody is told.
    outage: Outage,
}

impl Observer {
    /// Returns whether anybody wants to know how long threads wait and hold.
    pub(super) fn times_holds(&self) -> bool {
        self.has_events || self.meters.is_some()
    }

    /// Queues an event for all functions that want it. It may be called with mutexes held.
    pub(super) fn queue(&self, event: &Event, sample: Option<Sample>) -> Queued {
        let told = self.hooks.iter().filter_map(|hook| hook.queue(event)).collect();
        Queued { told, figure: self.meters.clone().map(|meters| (meters, sample)) }
    }

    /// Tells an event. No mutex may be held.
    pub(super) fn tell(&self, event: &Event) {
        self.queue(event, None).finish();
    }

    /// Records a figure. No mutex may be held.
    pub(super) fn record(&self, sample: Sample) {
        if let Some(meters) = &self.meters {
            meters.record(sample);
        }
    }

    /// Notes how a request about a key ended. No mutex may be held.
    pub(super) fn note_answer(&self, key: &str, error: Option<&Error>, now: impl FnOnce() -> Moment) {
        if !self.times_holds() {
            return;
        }
        let told = self.outage.note(key, error, now, |event, sample| self.queue(event, Some(sample)));
        if let Some(told) = told {
            told.finish();
        }
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(super) fn dropped(&self) -> u64 {
        self.hooks.iter().map(|hook| hook.dropped()).sum()
    }

    /// Lets the threads of the functions end once they have delivered all events. No thread waits for it.
    pub(super) fn end(&self) {
        self.hooks.iter().for_each(|hook| hook.end());
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.end();
        #[cfg(feature = "metrics")]
        if let Some(since) = self.outage.end() {
            self.record(Sample::StoreBack { since });
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/white_box/client/events/observer.rs"]
mod tests;
