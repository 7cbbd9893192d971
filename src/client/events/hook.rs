//! The functions of the program that are told of events, and the queues before them. However slow a function is, it delays no renewal, no
//! unlock and no waiter.
//!
//! There are two queues, each with its thread: `dlock-lost` calls `on_lost`, and `dlock-events` calls `on_event` and `on_slow_wait`. A loss
//! must be told at once, so its thread calls no other function: one that blocks would delay it.
//!
//! An event is put into each queue whose functions want it. That takes a mutex of the queue and nothing else, so it may be done with
//! other mutexes held. The rest, which may block, comes after they are released: see [`FollowUp`].
//!
//! A queue has room for a fixed number of frequent events (one lock has two of them), and as much room for all others. So no number of locks drops
//! a loss.

use crate::error::LeaseLoss;
use crate::event::{Dropped, Event, SlowWait};
use crate::log;
use crate::sync::{Condvar, Mutex, catch_panic, thread};
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
        if let Err(panic) = called {
            // Leak the panic, because its destructor might panic, too.
            std::mem::forget(panic);
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

/// Functions that one thread calls, and the events that wait for them. The thread starts with the first event. It ends after the client does,
/// once it has told all events; nobody waits for that.
pub(super) struct Hook {
    thread: &'static str,
    functions: Vec<Function>,
    queue: Mutex<EventQueue>,
    added: Condvar,
}

#[derive(Debug, Default)]
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
#[derive(Debug)]
#[must_use]
pub(super) enum FollowUp {
    Nothing,
    /// The functions need their thread.
    Start(Arc<Hook>),
    /// There was no room for the event. That is to be logged.
    Refused(Arc<Hook>, Box<Event>),
}

impl Hook {
    /// Creates the queue of these functions, if there are any.
    pub(super) fn of(thread: &'static str, functions: impl IntoIterator<Item = Function>) -> Option<Arc<Self>> {
        let functions: Vec<_> = functions.into_iter().collect();
        let is_wanted = !functions.is_empty();
        is_wanted.then(|| Arc::new(Self { thread, functions, queue: Mutex::default(), added: Condvar::new() }))
    }

    /// Queues an event that one of the functions wants. Does not wait for them.
    pub(super) fn queue(self: &Arc<Self>, event: &Event) -> FollowUp {
        if !self.functions.iter().any(|function| function.wants(event)) {
            return FollowUp::Nothing;
        }
        let mut queue = self.queue.lock();
        let room = if event.is_frequent() { &mut queue.frequent } else { &mut queue.rare };
        if *room >= ROOM {
            // Of frequent events, the first one of a series is enough for the log.
            let is_logged = !event.is_frequent() || queue.unreported == 0;
            queue.unreported += 1;
            queue.dropped += 1;
            drop(queue);
            return if is_logged {
                FollowUp::Refused(Arc::clone(self), Box::new(event.clone()))
            } else {
                FollowUp::Nothing
            };
        }
        *room += 1;
        if let Some(dropped) = queue.take_unreported() {
            queue.events.push_back(dropped);
        }
        queue.events.push_back(event.clone());
        if queue.has_thread {
            drop(queue);
            self.added.notify_one();
            FollowUp::Nothing
        } else {
            FollowUp::Start(Arc::clone(self))
        }
    }

    /// Starts the thread, unless another event has.
    fn start(self: &Arc<Self>) {
        if std::mem::replace(&mut self.queue.lock().has_thread, true) {
            return;
        }
        let hook = Arc::clone(self);
        if let Err(e) = thread::Builder::new().name(self.thread.to_owned()).spawn(move || hook.tell_all()) {
            // The next event tries again. Those that are in the queue stay there.
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
        while let Some(event) = self.next() {
            self.functions.iter().for_each(|function| function.tell(&event));
        }
    }

    /// Waits for the next event. Returns `None` when the thread must end.
    fn next(&self) -> Option<Event> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(event) = queue.take() {
                return Some(event);
            }
            if queue.is_ended {
                queue.has_thread = false;
                return None;
            }
            self.added.wait(&mut queue);
        }
    }
}

impl EventQueue {
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
        match self {
            Self::Nothing => {}
            Self::Start(hook) => hook.start(),
            Self::Refused(hook, event) => {
                for function in hook.functions.iter().filter(|function| function.wants(&event)) {
                    function.log_error(&format!("is {ROOM} events behind and is not called"), event.key());
                }
            }
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("thread", &self.thread).finish_non_exhaustive()
    }
}
