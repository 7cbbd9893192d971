//! The functions of the program that receive events, and the queue of events for them. Even a slow function delays no renewal, no unlock
//! and no waiter.
//!
//! The queue has two lanes: one for `on_lost`, and one for `on_event` and `on_slow_wait`. An event is put into each lane whose functions
//! want it. That takes the mutex of the queue and nothing else, so it may be done with other mutexes held. The rest may block, and comes
//! after those mutexes are released: see [`FollowUp`].
//!
//! 1. *One thread at a time delivers the events of a lane*, so its functions see the events in their order, and never two at once.
//! 2. *A lane never waits for the other one.* A loss must be delivered at once, and a function may block for ever. One thread,
//!    `dlock-events`, delivers both lanes while no function blocks. A thread that finds events in a lane while `dlock-events` is busy with
//!    the other lane starts a second thread. `dlock-events` does the same before it calls a function. Of the two threads, the one that
//!    first finds nothing to do ends.
//! 3. *A loss is never dropped because of many locks.* A lane has room for a fixed number of frequent events (a lock causes two of them),
//!    and separate room for as many other events.

use crate::error::LeaseLoss;
use crate::event::{Dropped, Event, SlowWait};
use crate::log;
use crate::sync::{Condvar, Mutex, catch_panic, thread};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// How many events of each class, frequent and rare, may wait in a lane. Its functions are not told of any further ones.
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

    /// Logs that something is wrong with it, and for which lock.
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

/// The functions, and the events that wait for them. See the module. The first event starts the thread. It ends after the client, once it
/// has delivered all events. No thread waits for that.
pub(super) struct Hook {
    /// The functions of each lane.
    functions: [Vec<Function>; 2],
    queue: Mutex<EventQueue>,
    added: Condvar,
}

#[derive(Default)]
struct EventQueue {
    lanes: [Lane; 2],
    /// How many threads there are, two at most, and whether one of them waits for events.
    threads: usize,
    is_awaited: bool,
    /// Whether the client has ended.
    is_ended: bool,
}

/// The events that wait for the functions of a lane.
#[derive(Default)]
struct Lane {
    events: VecDeque<Event>,
    /// How many of them are frequent ones, and how many are not. Events that tell of dropped ones are not counted.
    frequent: usize,
    rare: usize,
    /// How many were dropped since the functions were last told of that.
    unreported: u64,
    /// How many were dropped in all.
    dropped: u64,
    /// Whether a thread has it: no other thread may tell of its events meanwhile.
    is_taken: bool,
}

/// What is left to do after an event was queued, without any mutex.
#[must_use]
pub(super) struct FollowUp {
    hook: Arc<Hook>,
    /// Whether a lane needs a thread.
    starts: bool,
    /// The lanes that had no room for the event, which is to be logged.
    refused: Vec<(usize, Event)>,
    /// How many lanes had no room for it.
    pub(super) dropped: u64,
}

impl Hook {
    /// Creates the queue of these functions, if there are any.
    pub(super) fn of(losses: Option<Function>, events: impl IntoIterator<Item = Function>) -> Option<Arc<Self>> {
        let functions: [Vec<_>; 2] = [losses.into_iter().collect(), events.into_iter().collect()];
        let is_wanted = functions.iter().any(|lane| !lane.is_empty());
        is_wanted.then(|| Arc::new(Self { functions, queue: Mutex::default(), added: Condvar::new() }))
    }

    /// Queues an event that one of the functions wants. Does not wait for them.
    pub(super) fn queue(self: &Arc<Self>, event: &Event) -> FollowUp {
        self.queue_in(&mut self.queue.lock(), event)
    }

    /// As [`queue`](Self::queue), with the mutex held.
    fn queue_in(self: &Arc<Self>, queue: &mut EventQueue, event: &Event) -> FollowUp {
        let mut follow_up = FollowUp { hook: Arc::clone(self), starts: false, refused: Vec::new(), dropped: 0 };
        for (at, functions) in self.functions.iter().enumerate() {
            if !functions.iter().any(|function| function.wants(event)) {
                continue;
            }
            match queue.lanes[at].push(event) {
                Pushed::Queued => follow_up.starts |= !queue.lanes[at].is_taken && !queue.is_awaited,
                Pushed::Refused { is_logged } => {
                    follow_up.dropped += 1;
                    follow_up.refused.extend(is_logged.then(|| (at, event.clone())));
                }
            }
        }
        if queue.is_awaited {
            self.added.notify_one();
        }
        follow_up
    }

    /// Starts a thread for a lane that no thread delivers, unless there is no such lane any more.
    fn start(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        if queue.is_awaited {
            return;
        }
        let Some(lane) = queue.take_lane() else { return };
        queue.threads += 1;
        drop(queue);
        let hook = Arc::clone(self);
        if let Err(e) = thread::Builder::new().name("dlock-events".to_owned()).spawn(move || hook.tell_all(lane)) {
            // The next event tries again, or the thread of the other lane comes to it. The events stay in the queue.
            let mut queue = self.queue.lock();
            queue.threads -= 1;
            queue.lanes[lane].is_taken = false;
            drop(queue);
            for function in &self.functions[lane] {
                function.log_error(&format!("is not called: the operating system refused a thread: {e}"), None);
            }
        }
    }

    /// Returns how many events were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.queue.lock().lanes.iter().map(|lane| lane.dropped).sum()
    }

    /// Lets the thread end once it has told all events.
    pub(super) fn end(&self) {
        self.queue.lock().is_ended = true;
        self.added.notify_one();
    }

    /// The work of a thread, which begins with a lane that it has.
    fn tell_all(self: &Arc<Self>, mut lane: usize) {
        loop {
            let mut queue = self.queue.lock();
            let (event, others_wait) = (queue.lanes[lane].take(), queue.waiting_lane().is_some());
            drop(queue);
            if others_wait {
                self.start();
            }
            if let Some(event) = event {
                self.functions[lane].iter().for_each(|function| function.tell(&event));
            }
            match self.next_lane(lane) {
                Some(next) => lane = next,
                None => return,
            }
        }
    }

    /// Gives a lane back, waits for one with events, and takes it. Returns `None` when the thread must end: the client has, or another thread
    /// is there.
    fn next_lane(&self, told: usize) -> Option<usize> {
        let mut queue = self.queue.lock();
        queue.lanes[told].is_taken = false;
        loop {
            if let Some(at) = queue.take_lane() {
                return Some(at);
            }
            if queue.is_ended || queue.threads > 1 {
                queue.threads -= 1;
                return None;
            }
            queue.is_awaited = true;
            self.added.wait(&mut queue);
            queue.is_awaited = false;
        }
    }
}

impl EventQueue {
    /// Returns a lane with events that no thread delivers, the lane of the losses first.
    fn waiting_lane(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| !lane.is_taken && !lane.is_empty())
    }

    fn take_lane(&mut self) -> Option<usize> {
        let at = self.waiting_lane()?;
        self.lanes[at].is_taken = true;
        Some(at)
    }
}

enum Pushed {
    Queued,
    Refused { is_logged: bool },
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.unreported == 0
    }

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
        for (lane, event) in &self.refused {
            for function in self.hook.functions[*lane].iter().filter(|function| function.wants(event)) {
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
