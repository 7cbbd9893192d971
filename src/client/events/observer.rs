//! Who is told what a client does: the functions of the program, and the recorder of metrics.
//!
//! A client has an observer only if its builder was given a function, or was told to record metrics. Without one, each place that would
//! tell something costs a branch, and no clock is read for it.
//!
//! *Order.* What concerns one key is queued under the key's mutex, or by the thread that has the turn. So the events of a key are told in
//! the order in which they happened. The one exception is a loss that shows only in the reply to a release that nobody waited for.

use super::hook::{FollowUp, Function, Hook};
use super::metrics::Sample;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::{Event, StoreBack, StoreFailing};
use crate::sync::Mutex;
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
        let losses = Hook::of("dlock-lost", self.on_lost);
        let events = Hook::of("dlock-events", [self.on_event, self.on_slow_wait].into_iter().flatten());
        let hooks: Vec<_> = losses.into_iter().chain(events).collect();
        if hooks.is_empty() && !is_metered {
            return None;
        }
        #[cfg(feature = "metrics")]
        if is_metered {
            super::metrics::describe();
        }
        Some(Observer { hooks, has_events, is_metered, slow_after, failing: Mutex::new(None) })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Observer {
    /// The queues of the functions, two at most.
    hooks: Vec<Arc<Hook>>,
    /// Whether there is a function for all events.
    has_events: bool,
    /// Whether metrics are recorded.
    is_metered: bool,
    /// How long a wait must last to be told of, if anybody wants that.
    pub(super) slow_after: Option<Duration>,
    /// Since when the store fails.
    failing: Mutex<Option<Failing>>,
}

/// A store that fails.
#[derive(Debug)]
struct Failing {
    since: Moment,
    /// When a request failed last, and the key that it was about.
    last: Moment,
    key: String,
}

impl Observer {
    /// Returns whether anybody wants to know how long threads wait and hold.
    pub(super) fn times_holds(&self) -> bool {
        self.has_events || self.is_metered
    }

    pub(super) fn is_metered(&self) -> bool {
        self.is_metered
    }

    /// Queues an event for all functions that want it. It may be called with mutexes held.
    pub(super) fn queue(&self, event: &Event, sample: Option<Sample>) -> Queued {
        let mut pending = [const { FollowUp::Nothing }; 2];
        for (hook, pending) in self.hooks.iter().zip(&mut pending) {
            *pending = hook.queue(event);
        }
        Queued(Some(Box::new(FollowUps { pending, sample: sample.filter(|_| self.is_metered) })))
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
        if !self.has_events {
            return;
        }
        let mut failing = self.failing.lock();
        let queued = match (error, &mut *failing) {
            (Some(Error::Backend { .. }), Some(failing)) => {
                failing.last = now();
                key.clone_into(&mut failing.key);
                return;
            }
            (Some(error @ Error::Backend { .. }), none) => {
                let since = now();
                *none = Some(Failing { since, last: since, key: key.to_owned() });
                self.queue(&Event::StoreFailing(StoreFailing { error: error.clone() }), None)
            }
            (_, Some(Failing { since, last, key: failed })) => {
                let now = now();
                if failed != key && now.since(*last) < timing::STORE_QUIET {
                    return;
                }
                let after = now.since(*since);
                *failing = None;
                self.queue(&Event::StoreBack(StoreBack { after }), None)
            }
            (_, None) => return,
        };
        drop(failing);
        queued.finish();
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(super) fn dropped(&self) -> u64 {
        self.hooks.iter().map(|hook| hook.dropped()).sum()
    }

    /// Lets the threads of the functions end once they have told all events. Nobody waits for them.
    pub(super) fn end(&self) {
        self.hooks.iter().for_each(|hook| hook.end());
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.end();
    }
}

/// An event that is in the queues. What remains to be done may block.
#[derive(Debug)]
#[must_use]
pub(crate) struct Queued(Option<Box<FollowUps>>);

/// What remains to be done: for each queue, and for the recorder of metrics.
#[derive(Debug)]
struct FollowUps {
    pending: [FollowUp; 2],
    sample: Option<Sample>,
}

impl Queued {
    /// Nothing was queued, and there is only a figure to record.
    pub(super) fn of(observer: &Observer, sample: Sample) -> Self {
        let rest = || Box::new(FollowUps { pending: [const { FollowUp::Nothing }; 2], sample: Some(sample) });
        Self(observer.is_metered.then(rest))
    }

    /// Nothing was queued.
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    /// Call it with no mutex held: it may start a thread, write to the log and call the recorder of metrics.
    pub(crate) fn finish(self) {
        if let Some(rest) = self.0 {
            rest.pending.into_iter().for_each(FollowUp::finish);
            if let Some(sample) = rest.sample {
                sample.record();
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
