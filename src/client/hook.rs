//! The functions of the program that are told of events. Each one runs on its own thread: however slow it is, it delays no renewal, no
//! unlock, no waiter and no other function.
//!
//! An event is put into the queue of each function that wants it. That takes a mutex of the queue and nothing else, so it may be done with
//! other mutexes held. The rest, which may block, comes after they are released: see [`Pending`].
//!
//! A queue has room for so many frequent events (one lock has two of them), and as much room for all others. So no number of locks drops
//! a loss.

use crate::error::LeaseLoss;
use crate::event::{Dropped, Event, SlowWait};
use crate::log;
use crate::sync::{Condvar, Mutex, catch_panic, thread};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// How many events of each class, frequent and rare, may wait for a slow function. It is not told of any further ones.
const ROOM: usize = 4096;

/// The method of the builder that sets a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Events,
    Losses,
    SlowWaits,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Events => "on_event",
            Self::Losses => "on_lost",
            Self::SlowWaits => "on_slow_wait",
        }
    }

    /// Returns the name of the thread that calls the function.
    fn thread(self) -> &'static str {
        match self {
            Self::Events => "dlock-events",
            Self::Losses => "dlock-lost",
            Self::SlowWaits => "dlock-slow-wait",
        }
    }

    fn wants(self, event: &Event) -> bool {
        match self {
            Self::Events => true,
            Self::Losses => matches!(event, Event::Lost(_)),
            Self::SlowWaits => matches!(event, Event::SlowWait(_)),
        }
    }

    fn log_error(self, error: fmt::Arguments<'_>) {
        match self {
            Self::Events => log::error!(CLIENT, "{error}"),
            Self::Losses => log::error!(LEASE, "{error}"),
            Self::SlowWaits => log::error!(ACQUIRE, "{error}"),
        }
    }
}

/// A function of the program, and the events that wait for it. Its thread starts with the first event. It ends after the client does, once
/// it has told all events; nobody waits for that.
pub(crate) struct Hook {
    method: Method,
    told: Box<dyn Fn(&Event) + Send + Sync>,
    line: Mutex<Line>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    events: VecDeque<Event>,
    /// How many of them are frequent ones, and how many are not. Events that tell of dropped ones are not counted.
    frequent: usize,
    rare: usize,
    /// How many were dropped since the function was last told of that.
    untold: u64,
    /// How many were dropped in all.
    dropped: u64,
    has_thread: bool,
    /// Whether the client has ended.
    is_ended: bool,
}

/// What is left to do after an event was queued, without any mutex.
#[derive(Debug)]
#[must_use]
pub(crate) enum Pending {
    Nothing,
    /// The function needs its thread.
    Start(Arc<Hook>),
    /// There was no room for the event. The key, if it has one, is for the log.
    Refused(Arc<Hook>, Option<String>),
}

impl Hook {
    fn new(method: Method, told: impl Fn(&Event) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { method, told: Box::new(told), line: Mutex::default(), added: Condvar::new() })
    }

    pub(crate) fn on_event(told: impl Fn(&Event) + Send + Sync + 'static) -> Arc<Self> {
        Self::new(Method::Events, told)
    }

    pub(crate) fn on_lost(told: impl Fn(&LeaseLoss) + Send + Sync + 'static) -> Arc<Self> {
        Self::new(Method::Losses, move |event| {
            if let Event::Lost(loss) = event {
                told(loss);
            }
        })
    }

    pub(crate) fn on_slow_wait(told: impl Fn(&SlowWait) + Send + Sync + 'static) -> Arc<Self> {
        Self::new(Method::SlowWaits, move |event| {
            if let Event::SlowWait(wait) = event {
                told(wait);
            }
        })
    }

    /// Returns whether the function is told of such events.
    pub(crate) fn wants(&self, event: &Event) -> bool {
        self.method.wants(event)
    }

    /// Queues an event. Does not wait for the function.
    pub(crate) fn queue(self: &Arc<Self>, event: &Event) -> Pending {
        let mut line = self.line.lock();
        let room = if event.is_frequent() { &mut line.frequent } else { &mut line.rare };
        if *room >= ROOM {
            // Of frequent events, the first one of a series is enough for the log.
            let is_logged = !event.is_frequent() || line.untold == 0;
            line.untold += 1;
            line.dropped += 1;
            drop(line);
            return if is_logged {
                Pending::Refused(Arc::clone(self), event.key().map(str::to_owned))
            } else {
                Pending::Nothing
            };
        }
        *room += 1;
        if let Some(dropped) = line.take_untold() {
            line.events.push_back(dropped);
        }
        line.events.push_back(event.clone());
        if line.has_thread {
            drop(line);
            self.added.notify_one();
            Pending::Nothing
        } else {
            Pending::Start(Arc::clone(self))
        }
    }

    /// Starts the thread, unless another event has.
    fn start(self: &Arc<Self>) {
        if std::mem::replace(&mut self.line.lock().has_thread, true) {
            return;
        }
        let hook = Arc::clone(self);
        if let Err(e) = thread::Builder::new().name(self.method.thread().to_owned()).spawn(move || hook.tell_all()) {
            // The next event tries again. Those that are in the queue stay there.
            self.line.lock().has_thread = false;
            let name = self.method.name();
            self.method.log_error(format_args!("{name} is not called: the operating system refused a thread: {e}"));
        }
    }

    /// Returns how many events were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.line.lock().dropped
    }

    /// Lets the thread end once it has told all events.
    pub(crate) fn end(&self) {
        self.line.lock().is_ended = true;
        self.added.notify_one();
    }

    /// The work of the thread.
    fn tell_all(&self) {
        while let Some(event) = self.next() {
            if let Err(panic) = catch_panic(|| (self.told)(&event)) {
                // Leak the panic, because its destructor might panic, too.
                std::mem::forget(panic);
                let (name, key) = (self.method.name(), event.key());
                match key {
                    Some(key) => {
                        self.method.log_error(format_args!("{name} panicked when it was called for lock {key:?}"));
                    }
                    None => self.method.log_error(format_args!("{name} panicked when it was called")),
                }
            }
        }
    }

    /// Waits for the next event. Returns `None` when the thread must end.
    fn next(&self) -> Option<Event> {
        let mut line = self.line.lock();
        loop {
            if let Some(event) = line.take() {
                return Some(event);
            }
            if line.is_ended {
                line.has_thread = false;
                return None;
            }
            self.added.wait(&mut line);
        }
    }
}

impl Line {
    fn take(&mut self) -> Option<Event> {
        let Some(event) = self.events.pop_front() else { return self.take_untold() };
        match &event {
            Event::Dropped(_) => {}
            event if event.is_frequent() => self.frequent -= 1,
            _ => self.rare -= 1,
        }
        Some(event)
    }

    /// Returns the event that tells of dropped ones, if there are any.
    fn take_untold(&mut self) -> Option<Event> {
        let count = std::mem::take(&mut self.untold);
        (count > 0).then_some(Event::Dropped(Dropped { count }))
    }
}

impl Pending {
    /// Call it with no mutex held: it may start a thread and write to the log.
    pub(crate) fn finish(self) {
        match self {
            Self::Nothing => {}
            Self::Start(hook) => hook.start(),
            Self::Refused(hook, key) => {
                let (name, method) = (hook.method.name(), hook.method);
                match key {
                    Some(key) => {
                        method.log_error(format_args!(
                            "{name} is {ROOM} events behind and is not called for lock {key:?}"
                        ));
                    }
                    None => method.log_error(format_args!("{name} is {ROOM} events behind and is not called")),
                }
            }
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("method", &self.method).finish_non_exhaustive()
    }
}
