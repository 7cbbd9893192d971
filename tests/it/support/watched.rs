//! A store that is watched and tampered with: every call is recorded, may be held back, and may fail.

use super::crew::HANG;
use super::time::Time;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};
use redis_dlock::processor::{
    Inbox, InboxBreaker, Limit, LockProcessor, Message, Outcome, Posting, Request, StoreLimits, WaitQueue,
};
use redis_dlock::{BackendFailure, Error, Moment};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What was asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Poll,
    /// Either of them; no call is recorded as this.
    Question,
    Extend,
    Release,
    Probe,
    Inspect,
    /// A message, which may be stopped when it comes; it is no call, and not recorded.
    Message,
    /// An inbox that is opened, which may be stopped, too, and is not recorded.
    Inbox,
    /// The work between rounds, which may be stopped, too, and is not recorded.
    Between,
}

impl Kind {
    /// Whether this kind includes calls of the other kind.
    fn covers(self, other: Self) -> bool {
        self == other || self == Self::Question && matches!(other, Self::Acquire | Self::Poll)
    }
}

/// One request, as it was recorded.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) key: String,
    pub(crate) locker: String,
    /// When it was sent.
    pub(crate) at: Moment,
    /// How long its answer was to be waited for.
    pub(crate) limit: Duration,
    /// Which round trip carried it.
    pub(crate) trip: usize,
    /// Whether the store itself has not answered it, for example because it is late on a busy machine.
    pub(crate) unanswered: bool,
}

/// When a gate stops a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// On its way to the store, which knows nothing of it yet.
    Going,
    /// On its way back: the store has done what was asked.
    Coming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Every call fails at once, without reaching the store.
    Failing(BackendFailure),
    /// No call reaches the store; each fails when its limit is over.
    Silent,
}

/// The test's side of a [`Watched`] store.
#[derive(Debug)]
pub(crate) struct Watch {
    time: Time,
    calls: Mutex<(Vec<Call>, usize)>,
    gates: Mutex<Vec<Arc<Turnstile>>>,
    deaf: Mutex<Vec<Kind>>,
    listening: AtomicUsize,
    heard: AtomicUsize,
    inbox_panics: AtomicBool,
    panics: Mutex<Vec<Kind>>,
    barred: Mutex<Vec<Kind>>,
    unbarred: Condvar,
    fault: Mutex<Fault>,
    reason_takes: Mutex<Duration>,
}

#[derive(Debug)]
struct Turnstile {
    kind: Kind,
    when: When,
    arrive: Sender<()>,
    leave: Receiver<()>,
}

/// Stops the next call of one kind. It lets go of it when it is opened or dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    time: Time,
    arrived: Receiver<()>,
    _open: Sender<()>,
}

impl Gate {
    /// Waits until a call stands at the gate.
    #[track_caller]
    pub(crate) fn wait(&self) {
        self.arrived.recv_timeout(HANG).expect("a call at the gate");
    }

    /// Lets time pass until a call stands at the gate.
    #[track_caller]
    pub(crate) fn wait_till_due(&self) {
        self.time.recv(&self.arrived);
    }

    /// Lets the call go on.
    pub(crate) fn open(self) {}
}

/// Keeps threads of the crate from calls of a kind.
#[must_use]
pub(crate) struct Bar(Arc<Watch>);

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.barred.lock().clear();
        self.0.unbarred.notify_all();
    }
}

impl Watch {
    fn new(time: Time) -> Self {
        Self {
            time,
            calls: Mutex::new((Vec::new(), 0)),
            gates: Mutex::new(Vec::new()),
            deaf: Mutex::new(Vec::new()),
            listening: AtomicUsize::new(0),
            heard: AtomicUsize::new(0),
            inbox_panics: AtomicBool::new(false),
            panics: Mutex::new(Vec::new()),
            barred: Mutex::new(Vec::new()),
            unbarred: Condvar::new(),
            fault: Mutex::new(Fault::None),
            reason_takes: Mutex::default(),
        }
    }

    /// All calls until now.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().0.clone()
    }

    /// All calls of one kind until now.
    pub(crate) fn calls_of(&self, kind: Kind) -> Vec<Call> {
        self.calls().into_iter().filter(|call| kind.covers(call.kind)).collect()
    }

    /// How many calls there were until now.
    pub(crate) fn count(&self) -> usize {
        self.calls.lock().0.len()
    }

    /// How many calls of one kind there were until now.
    pub(crate) fn count_of(&self, kind: Kind) -> usize {
        self.calls.lock().0.iter().filter(|call| kind.covers(call.kind)).count()
    }

    /// Lets time pass until there are so many more calls of one kind.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, kind: Kind, more: usize) {
        let enough = self.count_of(kind) + more;
        self.time.until("calls of the store", || self.count_of(kind) >= enough);
    }

    /// How many inboxes were listened to until now: threads may wait in the store's queue then.
    pub(crate) fn listening(&self) -> usize {
        self.listening.load(Ordering::SeqCst)
    }

    /// How many messages were heard until now, and acted upon.
    pub(crate) fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }

    /// The next message makes its inbox panic.
    pub(crate) fn panic_at_next_message(&self) {
        self.inbox_panics.store(true, Ordering::SeqCst);
    }

    /// The next call of a kind makes the store panic.
    pub(crate) fn panic_at_next(&self, kind: Kind) {
        self.panics.lock().push(kind);
    }

    fn panic_if_told(&self, requests: &[(Kind, &str, &str)]) {
        let mut panics = self.panics.lock();
        if let Some(place) = panics.iter().position(|kind| requests.iter().any(|(asked, ..)| kind.covers(*asked))) {
            panics.remove(place);
            drop(panics);
            panic!("the test wants it so");
        }
    }

    /// Lets threads of the crate wait before calls of a kind until the bar is dropped: what a thread of the program is to do is not
    /// done for it.
    pub(crate) fn bar(self: &Arc<Self>, kind: Kind) -> Bar {
        self.barred.lock().push(kind);
        Bar(Arc::clone(self))
    }

    fn wait_at_bar(&self, requests: &[(Kind, &str, &str)]) {
        if thread::current().name().is_some_and(|name| name.starts_with("dlock-")) {
            let is_barred = |barred: &mut Vec<Kind>| {
                barred.iter().any(|kind| requests.iter().any(|(asked, ..)| kind.covers(*asked)))
            };
            self.unbarred.wait_while(&mut self.barred.lock(), is_barred);
        }
    }

    /// Stops the next call of a kind, or the next message.
    pub(crate) fn stop_next(&self, kind: Kind, when: When) -> Gate {
        let (arrive, arrived) = bounded(1);
        let (open, leave) = bounded(0);
        self.gates.lock().push(Arc::new(Turnstile { kind, when, arrive, leave }));
        Gate { time: self.time.clone(), arrived, _open: open }
    }

    /// The next call of a kind reaches the store, but its answer gets lost.
    pub(crate) fn lose_next_answer(&self, kind: Kind) {
        self.deaf.lock().push(kind);
    }

    /// From now on every call fails at once.
    pub(crate) fn fail(&self, failure: BackendFailure) {
        *self.fault.lock() = Fault::Failing(failure);
    }

    /// From now on the store does not answer, and does nothing.
    pub(crate) fn silence(&self) {
        *self.fault.lock() = Fault::Silent;
    }

    /// From now on the store takes so long to say by whose order a lock was lost.
    pub(crate) fn delay_reason(&self, takes: Duration) {
        *self.reason_takes.lock() = takes;
    }

    /// The store works again.
    pub(crate) fn heal(&self) {
        *self.fault.lock() = Fault::None;
    }

    fn record(&self, requests: &[(Kind, &str, &str)], limit: Duration) -> usize {
        let mut calls = self.calls.lock();
        let at = self.time.now();
        calls.1 += 1;
        let trip = calls.1;
        calls.0.extend(requests.iter().map(|&(kind, key, locker)| Call {
            kind,
            key: key.to_owned(),
            locker: locker.to_owned(),
            at,
            limit,
            trip,
            unanswered: false,
        }));
        trip
    }

    fn record_unanswered(&self, trip: usize, results: &[Result<Outcome, Error>]) {
        if results.iter().any(Result::is_err) {
            let mut calls = self.calls.lock();
            let of_trip = calls.0.iter_mut().filter(|call| call.trip == trip);
            of_trip.zip(results).for_each(|(call, result)| call.unanswered = result.is_err());
        }
    }

    fn pass_gates(&self, requests: &[(Kind, &str, &str)], when: When) {
        let gate = {
            let mut gates = self.gates.lock();
            let place = gates
                .iter()
                .position(|gate| gate.when == when && requests.iter().any(|(kind, ..)| gate.kind.covers(*kind)));
            place.map(|place| gates.remove(place))
        };
        if let Some(gate) = gate {
            let _ = gate.arrive.send(());
            // The gate opens by being dropped.
            let _ = gate.leave.recv_timeout(HANG);
        }
    }

    fn fail_if_told(&self, limit: Duration) -> Result<(), Error> {
        let fault = *self.fault.lock();
        match fault {
            Fault::None => Ok(()),
            Fault::Failing(failure) => Err(failed(failure)),
            Fault::Silent => {
                self.time.be_silent(limit, || *self.fault.lock() != fault);
                Err(failed(BackendFailure::Unknown))
            }
        }
    }

    fn lose_answer_if_told(&self, requests: &[(Kind, &str, &str)]) -> Result<(), Error> {
        let mut deaf = self.deaf.lock();
        match deaf.iter().position(|kind| requests.iter().any(|(asked, ..)| kind.covers(*asked))) {
            Some(place) => {
                deaf.remove(place);
                Err(failed(BackendFailure::Unknown))
            }
            None => Ok(()),
        }
    }
}

fn failed(failure: BackendFailure) -> Error {
    Error::backend(failure, "the test wants it so")
}

/// A store whose calls a [`Watch`] sees, if there is one.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<dyn LockProcessor>,
    watch: Option<Arc<Watch>>,
}

impl Watched {
    /// In real time.
    pub(crate) fn new(inner: Arc<dyn LockProcessor>) -> (Self, Arc<Watch>) {
        Self::by(Time::default(), inner)
    }

    pub(crate) fn by(time: Time, inner: Arc<dyn LockProcessor>) -> (Self, Arc<Watch>) {
        let watch = Arc::new(Watch::new(time));
        (Self { inner, watch: Some(Arc::clone(&watch)) }, watch)
    }

    /// A store that nobody watches.
    pub(crate) fn unseen(inner: Arc<dyn LockProcessor>) -> Self {
        Self { inner, watch: None }
    }

    fn inner_queue(&self) -> &dyn WaitQueue {
        self.inner.queue().expect("as before")
    }

    /// Asks by whose orders locks were lost. Who asks waits for a fraction of a second, for which a busy machine may stand still: only what
    /// [`delay_reason`](Watch::delay_reason) says is too late.
    fn ask_why(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        if self.watch.as_ref().is_some_and(|watch| limit.time() < *watch.reason_takes.lock()) {
            return requests.iter().map(|_| Err(failed(BackendFailure::Unknown))).collect();
        }
        self.inner.run(requests, Limit::Call(limit.time().max(HANG)))
    }

    fn pass(
        &self,
        requests: &[(Kind, &str, &str)],
        limit: Duration,
        work: impl FnOnce() -> Vec<Result<Outcome, Error>>,
    ) -> Vec<Result<Outcome, Error>> {
        let Some(watch) = &self.watch else { return work() };
        let fail = |error: Error| requests.iter().map(|_| Err(error.clone())).collect();
        let trip = watch.record(requests, limit);
        // First, so that a gate stops no thread that is barred.
        watch.wait_at_bar(requests);
        watch.pass_gates(requests, When::Going);
        watch.panic_if_told(requests);
        if let Err(error) = watch.fail_if_told(limit) {
            return fail(error);
        }
        let results = work();
        watch.record_unanswered(trip, &results);
        watch.pass_gates(requests, When::Coming);
        watch.lose_answer_if_told(requests).map_or_else(fail, |()| results)
    }
}

/// What is recorded of a request.
fn of<'a>(request: &Request<'a>) -> (Kind, &'a str, &'a str) {
    (kind_of(request), request.key(), request.claim().map_or("", |claim| claim.locker))
}

impl LockProcessor for Watched {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        // Breaks and the certain end of a locker are not watched.
        let is_watched =
            |request: &Request<'_>| !matches!(request, Request::Settle(_) | Request::Break(_) | Request::Broken { .. });
        if requests.iter().all(|request| matches!(request, Request::Broken { .. })) {
            return self.ask_why(requests, limit);
        }
        if !requests.iter().any(is_watched) {
            return self.inner.run(requests, limit);
        }
        let described: Vec<_> = requests.iter().map(of).collect();
        self.pass(&described, limit.time(), || self.inner.run(requests, limit))
    }

    fn is_expected_soon(&self, key: &str, since: Instant) -> bool {
        self.inner.is_expected_soon(key, since)
    }

    fn between_rounds(&self, limit: Duration) {
        self.watch.iter().for_each(|watch| watch.pass_gates(&[(Kind::Between, "", "")], When::Going));
        self.inner.between_rounds(limit);
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }

    fn has_answered(&self) -> bool {
        self.inner.has_answered()
    }

    fn on_new_server(&self, told: Box<dyn Fn(u64) + Send + Sync>) {
        self.inner.on_new_server(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        self.inner.queue().map(|_| self as &dyn WaitQueue)
    }

    /// None while it is watched, so that a drop waits for its release, as with every store that cannot post: the watch sees the release and its answer.
    fn posting(&self) -> Option<&dyn Posting> {
        if self.watch.is_none() { self.inner.posting() } else { None }
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl WaitQueue for Watched {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        let inner = self.inner_queue().open_inbox(client, limit)?;
        let Some(watch) = &self.watch else { return Ok(inner) };
        watch.pass_gates(&[(Kind::Inbox, "", "")], When::Coming);
        Ok(Box::new(WatchedInbox { inner, watch: Arc::clone(watch), begun: false, told: false }))
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.inner_queue().check_inbox(client, key, limit)
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        self.inner_queue().hears(client, key)
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.inner_queue().get_ready_to_hear(client, key, limit)
    }
}

fn kind_of(request: &Request<'_>) -> Kind {
    match request {
        Request::Acquire(_) | Request::Join(_) => Kind::Acquire,
        Request::Poll(_) => Kind::Poll,
        Request::Extend(_) | Request::ExtendWithNumbers(_) => Kind::Extend,
        Request::Release(_) | Request::HandOver(..) | Request::DelayRelease(..) => Kind::Release,
        Request::Probe(_) => Kind::Probe,
        Request::Inspect { .. } => Kind::Inspect,
        other => panic!("{other:?}"),
    }
}

/// An inbox that is watched. Who asks it for the next message has acted upon the one before.
struct WatchedInbox {
    inner: Box<dyn Inbox>,
    watch: Arc<Watch>,
    begun: bool,
    told: bool,
}

impl Inbox for WatchedInbox {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        if !std::mem::replace(&mut self.begun, true) {
            self.watch.listening.fetch_add(1, Ordering::SeqCst);
        }
        if std::mem::take(&mut self.told) {
            self.watch.heard.fetch_add(1, Ordering::SeqCst);
        }
        let message = self.inner.next(limit)?;
        self.told = message.is_some();
        if self.told {
            self.watch.pass_gates(&[(Kind::Message, "", "")], When::Coming);
        }
        assert!(!self.told || !self.watch.inbox_panics.swap(false, Ordering::SeqCst), "the test wants it so");
        Ok(message)
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        self.inner.breaker()
    }
}
