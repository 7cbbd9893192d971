//! The receivers of a client's events: the functions of the program, and the recorder of metrics.

use super::hook::{Failing, FollowUp, Function, Hook};
use super::metrics::Sample;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::{Event, StoreBack, StoreFailing};
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
        let is_metered = self.metrics;
        #[cfg(not(feature = "metrics"))]
        let is_metered = false;
        let has_events = self.on_event.is_some();
        let wants_slow_waits = has_events || self.on_slow_wait.is_some();
        let slow_after = wants_slow_waits.then(|| self.slow_after.unwrap_or(timing::SLOW_WAIT));
        let hook = Hook::of(self.on_lost, [self.on_event, self.on_slow_wait].into_iter().flatten());
        if hook.is_none() && !is_metered {
            return None;
        }
        #[cfg(feature = "metrics")]
        if is_metered {
            super::metrics::describe();
        }
        Some(Observer { hook, has_events, is_metered, slow_after })
    }
}

pub(super) struct Observer {
    /// The functions, if there are any.
    hook: Option<Arc<Hook>>,
    /// Whether there is a function for all events.
    has_events: bool,
    /// Whether metrics are recorded.
    pub(super) is_metered: bool,
    /// How long a wait must last to be told of, if anybody wants that.
    pub(super) slow_after: Option<Duration>,
}

impl Observer {
    /// Returns whether anybody wants to know how long threads wait and hold.
    pub(super) fn times_holds(&self) -> bool {
        self.has_events || self.is_metered
    }

    /// Queues an event for all functions that want it. It may be called with mutexes held.
    pub(super) fn queue(&self, event: &Event, sample: Option<Sample>) -> Queued {
        let told = self.hook.as_ref().map(|hook| hook.queue(event));
        Queued(Some(Box::new(Rest { told, sample: sample.filter(|_| self.is_metered) })))
    }

    /// Tells an event. No mutex may be held.
    pub(super) fn tell(&self, event: &Event) {
        self.queue(event, None).finish();
    }

    /// Records a figure. No mutex may be held.
    pub(super) fn record(&self, sample: Sample) {
        if self.is_metered {
            sample.record();
        }
    }

    /// Notes how a request about a key ended. In a store of several servers, some may fail while others answer: so the store counts as back
    /// when a request about the same key is answered, or any request after a time without failures.
    pub(super) fn note_answer(&self, key: &str, error: Option<&Error>, now: impl FnOnce() -> Moment) {
        let Some(hook) = self.hook.as_ref().filter(|_| self.has_events) else { return };
        let mut queue = hook.queue.lock();
        let event = match (error, &mut queue.failing) {
            (Some(Error::Backend { .. }), Some(failing)) => {
                failing.last = now();
                key.clone_into(&mut failing.key);
                return;
            }
            (Some(error @ Error::Backend { .. }), none) => {
                let since = now();
                *none = Some(Failing { since, last: since, key: key.to_owned() });
                Event::StoreFailing(StoreFailing { error: error.clone() })
            }
            (_, Some(Failing { since, last, key: failed })) => {
                let now = now();
                if failed != key && now.since(*last) < timing::STORE_QUIET {
                    return;
                }
                let after = now.since(*since);
                queue.failing = None;
                Event::StoreBack(StoreBack { after })
            }
            (_, None) => return,
        };
        let told = hook.queue_in(&mut queue, &event);
        drop(queue);
        told.finish();
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
    }
}

/// An event that is in the queue. What remains to be done may block.
#[must_use]
pub(crate) struct Queued(Option<Box<Rest>>);

/// What remains to be done: for the functions, and for the recorder of metrics.
struct Rest {
    told: Option<FollowUp>,
    sample: Option<Sample>,
}

impl Queued {
    /// Nothing was queued, and there is only a figure to record.
    pub(super) fn of(observer: &Observer, sample: Sample) -> Self {
        Self(observer.is_metered.then(|| Box::new(Rest { told: None, sample: Some(sample) })))
    }

    /// Nothing was queued.
    pub(crate) const NOTHING: Self = Self(None);

    /// Call it with no mutex held: it may start a thread, write to the log and call the recorder of metrics.
    pub(crate) fn finish(self) {
        if let Some(rest) = self.0 {
            rest.told.into_iter().for_each(FollowUp::finish);
            rest.sample.into_iter().for_each(Sample::record);
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
