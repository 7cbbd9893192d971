//! The functions of the program that receive events, and the queue of events for them. Even a slow function delays no renewal, no unlock
//! and no waiter.
//!
//! There are two queues: one for `on_lost`, and one for `on_event` and `on_slow_wait`. An event is put into each queue whose functions want it.
//! That takes the mutex of the queue and nothing else, so it may be done with other mutexes held. The rest may block, and comes after those
//! mutexes are released: see [`FollowUp`].
//!
//! 1. *One thread delivers the events of a queue*, so its functions see the events in their order, and never two at once.
//! 2. *A loss never waits for another function*, which may block for ever: the queue of the losses has a thread of its own.
//! 3. *A loss is never dropped because of many locks.* A queue has room for a fixed number of frequent events (a lock causes two of them),
//!    and separate room for as many other events.

use crate::error::LeaseLoss;
use crate::event::{Dropped, Event, SlowWait};
use crate::log;
use crate::sync::{Condvar, Mutex, catch_panic, on_own_thread, thread};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// How many events of each class, frequent and rare, may wait in a queue. Its functions are not told of any further ones.
const ROOM: usize = 4096;

/// A function of the program.
pub(crate) enum Function {
    Events(Box<dyn Fn(&Event) + Send + Sync>),
    Losses(Box<dyn Fn(&LeaseLoss) + Send + Sync>),
    SlowWaits(Box<dyn Fn(&SlowWait) + Send + Sync>),
}

impl Function {
    /// Returns the method of the builder that sets it.
    fn name(&self) -> &'static str {
        match self {
            Self::Events(_) => "on_event",
            Self::Losses(_) => "on_lost",
            Self::SlowWaits(_) => "on_slow_wait",
        }
    }

    fn wants(&self, event: &Event) -> bool {
        match self {
            Self::Events(_) => true,
            Self::Losses(_) => matches!(event, Event::Lost(_)),
            Self::SlowWaits(_) => matches!(event, Event::SlowWait(_)),
        }
    }

    /// Calls it, if it wants the event. Logs a panic.
    fn tell(&self, event: &Event) {
        let called = catch_panic(|| match (self, event) {
            (Self::Events(function), event) => function(event),
            (Self::Losses(function), Event::Lost(loss)) => function(loss),
            (Self::SlowWaits(function), Event::SlowWait(wait)) => function(wait),
            _ => {}
        });
        if called.is_none() {
            self.log_error("panicked when it was called", event.key());
        }
    }

    /// Logs what is wrong with the function, and for which lock.
    fn log_error(&self, what: &str, key: Option<&str>) {
        let name = self.name();
        let of = key.map(|key| format!(" for lock {key:?}")).unwrap_or_default();
        match self {
            Self::Events(_) => log::error!(CLIENT, "{name} {what}{of}"),
            Self::Losses(_) => log::error!(LEASE, "{name} {what}{of}"),
            Self::SlowWaits(_) => log::error!(ACQUIRE, "{name} {what}{of}"),
        }
    }
}

/// Functions, and the events that wait for them. See the module. The first event starts the thread. It ends after the client, once it has
/// delivered all events. No thread waits for that.
pub(super) struct Hook {
    functions: Vec<Function>,
    queue: Mutex<EventQueue>,
    added: Condvar,
}

/// The events that wait for the functions.
#[derive(Default)]
struct EventQueue {
    events: VecDeque<Event>,
    /// How many of them are frequent ones, and how many are not. Events that tell of dropped ones are not counted.
    frequent: usize,
    rare: usize,
    /// How many were dropped since the functions were last told of that.
    unreported: u64,
    /// How many were dropped in all.
    dropped: u64,
    has_thread: bool,
    /// Whether the client has ended.
    is_ended: bool,
}

/// What is left to do after an event was queued, without any mutex.
#[must_use]
pub(super) struct FollowUp {
    hook: Arc<Hook>,
    /// Whether the queue needs a thread.
    starts: bool,
    /// The event, if there was no room for it, and if that is to be logged.
    refused: Option<Event>,
    pub(super) is_dropped: bool,
}

impl Hook {
    /// Creates the queue for these functions. `None` without functions.
    pub(super) fn of(functions: impl IntoIterator<Item = Function>) -> Option<Arc<Self>> {
        let functions: Vec<_> = functions.into_iter().collect();
        let is_wanted = !functions.is_empty();
        is_wanted.then(|| Arc::new(Self { functions, queue: Mutex::default(), added: Condvar::new() }))
    }

    /// Queues an event, if one of the functions wants it. Does not wait for them.
    pub(super) fn queue(self: &Arc<Self>, event: &Event) -> Option<FollowUp> {
        if !self.functions.iter().any(|function| function.wants(event)) {
            return None;
        }
        let mut queue = self.queue.lock();
        let mut follow_up = FollowUp { hook: Arc::clone(self), starts: false, refused: None, is_dropped: false };
        match queue.push(event) {
            Pushed::Queued => {
                follow_up.starts = !queue.has_thread;
                self.added.notify_one();
            }
            Pushed::Refused { is_logged } => {
                (follow_up.is_dropped, follow_up.refused) = (true, is_logged.then(|| event.clone()));
            }
        }
        Some(follow_up)
    }

    /// Starts the thread, unless there is one.
    fn start(self: &Arc<Self>) {
        if std::mem::replace(&mut self.queue.lock().has_thread, true) {
            return;
        }
        let hook = Arc::clone(self);
        if let Err(e) =
            thread::Builder::new().name("dlock-events".to_owned()).spawn(move || on_own_thread(|| hook.tell_all()))
        {
            // The next event tries again. The events stay in the queue.
            self.queue.lock().has_thread = false;
            for function in &self.functions {
                function.log_error(&format!("is not called: the operating system refused a thread: {e}"), None);
            }
        }
    }

    /// Returns how many events were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.queue.lock().dropped
    }

    /// Lets the thread end once it has told all events.
    pub(super) fn end(&self) {
        self.queue.lock().is_ended = true;
        self.added.notify_one();
    }

    /// The work of the thread.
    fn tell_all(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(event) = queue.take() {
                drop(queue);
                self.functions.iter().for_each(|function| function.tell(&event));
                queue = self.queue.lock();
            } else if queue.is_ended {
                queue.has_thread = false;
                return;
            } else {
                self.added.wait(&mut queue);
            }
        }
    }
}

enum Pushed {
    Queued,
    Refused { is_logged: bool },
}

impl EventQueue {
    fn push(&mut self, event: &Event) -> Pushed {
        let room = if event.is_frequent() { &mut self.frequent } else { &mut self.rare };
        if *room >= ROOM {
            // Of frequent events, the first one of a series is enough for the log.
            let is_logged = !event.is_frequent() || self.unreported == 0;
            self.unreported += 1;
            self.dropped += 1;
            return Pushed::Refused { is_logged };
        }
        *room += 1;
        let dropped = self.take_unreported();
        self.events.extend(dropped);
        self.events.push_back(event.clone());
        Pushed::Queued
    }

    fn take(&mut self) -> Option<Event> {
        let Some(event) = self.events.pop_front() else { return self.take_unreported() };
        match &event {
            Event::Dropped(_) => {}
            event if event.is_frequent() => self.frequent -= 1,
            _ => self.rare -= 1,
        }
        Some(event)
    }

    /// Returns the event that tells of dropped ones, if there are any.
    fn take_unreported(&mut self) -> Option<Event> {
        let count = std::mem::take(&mut self.unreported);
        (count > 0).then_some(Event::Dropped(Dropped { count }))
    }
}

impl FollowUp {
    /// Call it with no mutex held: it may start a thread and write to the log.
    pub(super) fn finish(self) {
        if self.starts {
            self.hook.start();
        }
        if let Some(event) = &self.refused {
            for function in self.hook.functions.iter().filter(|function| function.wants(event)) {
                function.log_error(&format!("is {ROOM} events behind and is not called"), event.key());
            }
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../tests/white_box/client/events/hook.rs"]
mod tests;
