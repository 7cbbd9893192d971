//! The receivers of a client's events: the functions of the program, and the recorder of metrics.

use super::hook::{FollowUp, Function, Hook};
use super::metrics::{Meters, Sample};
use super::outage::{Change, Outage};
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
        let hook = Hook::of(self.on_lost, [self.on_event, self.on_slow_wait].into_iter().flatten());
        if hook.is_none() && meters.is_none() {
            return None;
        }
        Some(Observer { hook, has_events, meters, slow_after, outage: Outage::default() })
    }
}

pub(super) struct Observer {
    /// The functions, if there are any.
    hook: Option<Arc<Hook>>,
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
        let told = self.hook.as_ref().map(|hook| Box::new(hook.queue(event)));
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
        let told = self.outage.note(key, error, now, |event, change| {
            let sample = match change {
                Change::Fails(since) => Sample::StoreFailing { since },
                Change::Back(since) => Sample::StoreBack { since },
            };
            self.queue(event, Some(sample))
        });
        if let Some(told) = told {
            told.finish();
        }
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(super) fn dropped(&self) -> u64 {
        self.hook.as_ref().map_or(0, |hook| hook.dropped())
    }

    /// Lets the thread of the functions end once it has delivered all events. No thread waits for it.
    pub(super) fn end(&self) {
        if let Some(hook) = &self.hook {
            hook.end();
        }
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

/// An event that is in the queue. What remains to be done may block.
#[must_use]
pub(crate) struct Queued {
    /// What remains to be done for the functions.
    told: Option<Box<FollowUp>>,
    /// What is to be recorded.
    figure: Option<(Arc<Meters>, Option<Sample>)>,
}

impl Queued {
    /// Nothing was queued, and there is only a figure to record.
    pub(super) fn of(observer: &Observer, sample: Sample) -> Self {
        Self { told: None, figure: observer.meters.clone().map(|meters| (meters, Some(sample))) }
    }

    /// Nothing was queued.
    pub(crate) const NOTHING: Self = Self { told: None, figure: None };

    /// Call it with no mutex held: it may start a thread, write to the log and call the recorder of metrics.
    pub(crate) fn finish(self) {
        let dropped = self.told.as_ref().map_or(0, |told| told.dropped);
        if let Some(told) = self.told {
            told.finish();
        }
        if let Some((meters, sample)) = self.figure {
            sample.into_iter().for_each(|sample| meters.record(sample));
            if dropped > 0 {
                meters.record(Sample::Dropped { events: dropped });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BackendFailure;

    /// Of two servers one is dead: its key fails again and again while the other key is answered.
    #[test]
    fn an_answer_about_another_key_does_not_end_an_outage_at_once() {
        let (say, events) = crossbeam_channel::unbounded();
        let told = move |event: &Event| say.send(format!("{event:?}")).expect("the test listens");
        let hooks = Hooks { on_event: Some(Function::Events(Box::new(told))), ..Hooks::default() };
        let observer = hooks.into_observer().expect("a function");
        let at = |ms| Moment::from_nanos(0) + Duration::from_millis(ms);
        let failed = Error::backend(BackendFailure::NotExecuted, "the test wants it so");
        observer.note_answer("lives", None, || at(0));
        for second in 1..10 {
            observer.note_answer("dead", Some(&failed), || at(1000 * second));
            observer.note_answer("lives", None, || at(1000 * second + 500));
        }
        // Nobody asks about the dead key any more.
        observer.note_answer("lives", None, || at(11_999));
        observer.note_answer("lives", None, || at(12_000));
        // A refusal is an answer.
        observer.note_answer("dead", Some(&failed), || at(20_000));
        observer.note_answer("dead", Some(&Error::ShutDown), || at(20_100));
        drop(observer);
        let told: Vec<_> = events.iter().collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("StoreFailing") && told[2].starts_with("StoreFailing"), "{told:?}");
        assert_eq!(
            [&*told[1], &*told[3]],
            ["StoreBack(StoreBack { after: 11s })", "StoreBack(StoreBack { after: 100ms })"]
        );
    }

    #[test]
    fn without_a_function_there_is_no_observer() {
        assert!(Hooks::default().into_observer().is_none());
        let hooks = Hooks { slow_after: Some(Duration::ZERO), ..Hooks::default() };
        assert!(hooks.into_observer().is_none());
    }
}
