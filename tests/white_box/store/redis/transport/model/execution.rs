//! One execution: the callers, what they were told, and what must hold in the end.

use super::super::{AtLimit, CallReplies, Callback, Confirming, KeyHash, MUXES, Polling, PostTime, Replied, Transport};
use super::book::{Book, Entry};
use super::network::{COMMAND, CONFIRM, CONFIRMATION, Faults, NO_FAULTS, Network, STAMP_AT, command, reply_to};
use super::scenarios::{Act, Limit, Scenario};
use crate::check::model::time::{self, FOR_GOOD, Pace};
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::resp::Packed;
use crate::sync::thread;
use ::redis::Value;
use shuttle::rand::{Rng, thread_rng};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

const IO_TIMEOUT: Duration = Duration::from_secs(1);

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause between two attempts to collect the answers to posted calls.
const PAUSE: Duration = Duration::from_millis(100);

/// The most such attempts.
const MOST_ATTEMPTS: u32 = 200;

pub(super) struct Execution {
    transport: Transport<Network>,
    this: Weak<Self>,
    book: Mutex<Book>,
    network: Network,
    faults: Faults,
}

impl Limit {
    fn time(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Short => Duration::from_millis(10),
            Self::Long => FOR_GOOD * 2,
        }
    }
}

impl Scenario {
    /// Plays one execution, as shuttle schedules it.
    pub(super) fn play(&self) {
        time::reset();
        let mut rng = thread_rng();
        let pace = Pace { steps: [1, 6, 24, 96][rng.gen_range(0..4)], leaps: 0, leap: IO_TIMEOUT };
        let room = if self.is_narrow { [10, 15, 25][rng.gen_range(0..3)] } else { usize::MAX };
        let connect = if self.is_far { CONNECT_TIMEOUT / 10 } else { Duration::ZERO };
        let network = Network::new(self.faults, room, IO_TIMEOUT * 2, connect);
        // Time passes even if the server does not get on. Without faults nobody may mistake that for a fault.
        let io_timeout = if self.faults == NO_FAULTS { FOR_GOOD * 2 } else { IO_TIMEOUT };
        let execution = Arc::new_cyclic(|this| Execution {
            transport: Transport::over(
                network.clone(),
                "model".to_owned(),
                CONNECT_TIMEOUT,
                io_timeout,
                Polling::Automatic,
                *b"00000",
                Some(Confirming { command: CONFIRM.to_vec(), takes: IO_TIMEOUT / 10 }),
            ),
            this: Weak::clone(this),
            book: Mutex::default(),
            network: network.clone(),
            faults: self.faults,
        });
        let timer = thread::spawn(move || time::run(pace, || {}));
        let server = network.clone();
        let server = thread::spawn(move || server.serve());
        let callers: Vec<_> = self
            .callers
            .iter()
            .map(|script| {
                let execution = Arc::clone(&execution);
                thread::spawn(move || script.iter().for_each(|act| execution.act(*act)))
            })
            .collect();
        for caller in callers {
            let _ = caller.join();
        }
        let connects = network.connects();
        if self.faults == NO_FAULTS && connects > MUXES && !execution.with(|book| book.is_closed) {
            execution.object(format!("{connects} connects in vain, but for {MUXES}"));
        }
        // What waits for a connect is sent when that has ended.
        execution.outlast_connects();
        execution.look_for_kept();
        let broken = execution.end(&network);
        execution.outlast_connects();
        network.settle();
        network.end();
        let _ = server.join();
        time::stop();
        let _ = timer.join();
        execution.check(&network, self.faults, &broken);
        let objections = execution.with(|book| std::mem::take(&mut book.faults));
        assert!(objections.is_empty(), "{objections:?}");
    }
}

impl Execution {
    fn act(&self, act: Act) {
        log::trace!("{:?}: {act:?}", time::now());
        match act {
            Act::Call(key, replies, limit) => self.call(&[(key, replies)], limit, AtLimit::KeepConnection, false),
            Act::Renew(key, replies, limit) => self.call(&[(key, replies)], limit, AtLimit::BreakConnection, false),
            Act::Confirm(key, limit) => self.call(&[(key, 1)], limit, AtLimit::KeepConnection, true),
            Act::ConfirmPair(one, other, limit) => {
                self.call(&[(one, 1), (other, 1)], limit, AtLimit::KeepConnection, true);
            }
            Act::Pair(one, other) => self.call(&[(one, 1), (other, 1)], Limit::Long, AtLimit::KeepConnection, false),
            Act::Post(key, limit) => self.post(key, limit),
            Act::PostPair(one, other, limit) => self.post_pair([one, other], limit),
            Act::Keep(one, other) => {
                let calls = self.post_all([one, other], Limit::Long, PostTime::WithNext);
                for call in calls {
                    self.with(|book| book.entries[usize::from(call)].is_kept = true);
                    self.sent(call);
                }
            }
            Act::Collect => {
                self.transport.collect();
            }
            Act::EndIdle => self.transport.end_idle(Duration::ZERO),
            Act::Close => {
                self.with(|book| book.is_closed = true);
                self.transport.close();
            }
            Act::Nap => thread::sleep(IO_TIMEOUT * 3 / 2),
        }
    }

    fn call(&self, parts: &[(u8, u8)], limit: Limit, at_limit: AtLimit, is_confirmed: bool) {
        let calls: Vec<_> = parts.iter().map(|(key, replies)| self.enter(*key, *replies, limit)).collect();
        let mut batch = self.transport.batch(limit.time());
        for ((key, replies), call) in parts.iter().zip(&calls) {
            for place in 0..*replies {
                batch.push(Some(name_of(*key)), |packed| {
                    pack(packed, command(*call, place, *key));
                    packed.is_confirmed = is_confirmed;
                });
            }
        }
        if matches!(at_limit, AtLimit::BreakConnection) && limit == Limit::Short {
            self.with(|book| book.is_closed = true);
        }
        let mut answers = self.transport.round_trip(batch, limit.time(), at_limit).into_iter();
        for ((_, replies), call) in parts.iter().zip(&calls) {
            let mine: Vec<_> = answers.by_ref().take(usize::from(*replies)).collect();
            if mine.len() != usize::from(*replies) {
                self.object(format!("call {call} has {} answers", mine.len()));
            }
            self.sent(*call);
            for (place, answer) in (0..).zip(mine) {
                self.look_at_confirmation(*call, answer.as_ref().ok(), is_confirmed, limit);
                self.answer(*call, place, answer.map(|replied| replied.value));
            }
            self.answered(*call);
        }
    }

    /// Checks that a reply to a command that is to be confirmed comes with the confirmation.
    fn look_at_confirmation(&self, call: u16, replied: Option<&Replied>, is_confirmed: bool, limit: Limit) {
        match replied.map(|replied| replied.confirmation.as_deref()) {
            None => {}
            Some(Some(Value::Int(CONFIRMATION))) if is_confirmed => {}
            Some(None) if !is_confirmed => {}
            // The limit, or the connection, ended between the reply and the confirmation.
            Some(None) if limit != Limit::Long || self.faults != NO_FAULTS || self.with(|book| book.is_closed) => {}
            Some(_) => self.object(format!("call {call} is not confirmed as it should be: {replied:?}")),
        }
    }

    fn post(&self, key: u8, limit: Limit) {
        let (call, callback) = self.enter_posted(key, limit);
        let mut packed = Packed::default();
        pack(&mut packed, command(call, 0, key));
        self.transport.post(KeyHash::of(name_of(key)), packed, limit.time(), callback);
        self.look_at_sent(call, limit);
    }

    fn post_pair(&self, keys: [u8; 2], limit: Limit) {
        let calls = self.post_all(keys, limit, PostTime::Now);
        calls.into_iter().for_each(|call| self.look_at_sent(call, limit));
    }

    fn post_all(&self, keys: [u8; 2], limit: Limit, time: PostTime) -> Vec<u16> {
        let (calls, callbacks): (Vec<_>, Vec<_>) = keys.iter().map(|key| self.enter_posted(*key, limit)).unzip();
        let mut batch = self.transport.batch(limit.time());
        for (key, call) in keys.iter().zip(&calls) {
            batch.push(Some(name_of(*key)), |packed| pack(packed, command(*call, 0, *key)));
        }
        self.transport.post_all(batch, limit.time(), callbacks, time);
        calls
    }

    /// Shows: S18.
    fn enter_posted(&self, key: u8, limit: Limit) -> (u16, Callback) {
        let call = self.enter(key, 1, limit);
        self.with(|book| book.entries[usize::from(call)].is_posted = true);
        let this = Weak::clone(&self.this);
        let callback = move |mut answer: CallReplies| {
            let Some(execution) = this.upgrade() else { return };
            // If a mux were locked, this would sleep forever.
            execution.transport.muxes.iter().for_each(|mux| _ = mux.is_closed());
            let replied = answer.replies.pop().flatten().map(|replied| replied.value);
            execution.answer(call, 0, replied.ok_or_else(|| answer.failure.expect("a reply or a failure")));
            execution.answered(call);
        };
        (call, Box::new(callback))
    }

    /// Lets time go on until the last connect has ended.
    fn outlast_connects(&self) {
        while self.transport.muxes.iter().any(|mux| mux.is_connecting()) {
            thread::sleep(PAUSE);
        }
    }

    fn look_at_sent(&self, call: u16, limit: Limit) {
        self.sent(call);
        // Where connections break or refuse, the call may have failed instead.
        let must_be_given = Faults { unknown: 0, ..self.faults } == NO_FAULTS && limit == Limit::Long;
        if must_be_given && !self.network.was_given(call) && !self.with(|book| book.is_closed) {
            self.object(format!("call {call} is not sent when its poster goes on"));
        }
    }

    /// Checks that what was kept for the next batch is sent, now that all callers are done. A writer whose own time is over may leave it to the next
    /// caller, or to `collect`.
    fn look_for_kept(&self) {
        let is_certain = |book: &mut Book| !book.is_closed && book.entries.iter().all(|entry| entry.is_long);
        if self.faults == NO_FAULTS && self.with(is_certain) {
            let kept = self.with(|book| book.entries.iter().filter(|e| e.is_kept).map(|e| e.call).collect::<Vec<_>>());
            for call in kept.into_iter().filter(|call| !self.network.was_given(*call)) {
                self.object(format!("call {call} was kept for a batch, and is not sent"));
            }
        }
    }

    /// After all callers are done, waits for the answers to posted calls, or lets the closing end them. Returns which connections ended
    /// before the closing.
    /// Shows: L5.
    fn end(&self, network: &Network) -> Vec<bool> {
        let missing =
            || self.with(|book| book.entries.iter().filter(|e| e.answered == 0).map(|e| e.call).collect::<Vec<_>>());
        if thread_rng().gen_bool(0.7) {
            let mut attempts = 0;
            while self.transport.collect() {
                attempts += 1;
                if attempts > MOST_ATTEMPTS {
                    self.object(format!("without an answer: {:?}", missing()));
                    break;
                }
                thread::sleep(PAUSE);
            }
            if !missing().is_empty() {
                self.object(format!("nobody waits for the answer to {:?}", missing()));
            }
        } else {
            self.with(|book| book.is_closed = true);
        }
        let broken = network.broken();
        self.transport.close();
        if !missing().is_empty() {
            self.object(format!("closed without an answer to {:?}", missing()));
        }
        broken
    }

    /// Checks that everything the callers were told can be true.
    /// Shows: S16, S17.
    fn check(&self, network: &Network, faults_planned: Faults, broken: &[bool]) {
        let log = network.log();
        self.with(|book| {
            let mut faults = network.objections();
            let arrival = |call: u16, place: u8| log.iter().position(|a| (a.call, a.place) == (call, place));
            for (n, one) in log.iter().enumerate() {
                if arrival(one.call, one.place) != Some(n) {
                    faults.push(format!("call {} arrives twice", one.call));
                }
            }
            for entry in &book.entries {
                if entry.answered != 1 {
                    faults.push(format!("call {} was answered {} times", entry.call, entry.answered));
                }
                for (place, answer) in (0..).zip(&entry.answers) {
                    let arrived = arrival(entry.call, place).is_some();
                    match answer {
                        Ok(()) if !arrived => faults.push(format!("call {} answered and not sent", entry.call)),
                        Err(None | Some(BackendFailure::NotExecuted)) if arrived => {
                            faults.push(format!("call {} was executed, and said not to be", entry.call));
                        }
                        _ => {}
                    }
                    if answer.is_err() && entry.is_long && faults_planned == NO_FAULTS && !book.is_closed {
                        faults.push(format!("call {} failed without a reason: {answer:?}", entry.call));
                    }
                }
                for later in &book.entries {
                    if entry.key != later.key || entry.end.is_none_or(|end| end > later.begin) {
                        continue;
                    }
                    // Calls that were in flight when the short form turned out to be unknown come before its repetition. A call made after
                    // the answer to one of them comes after it.
                    let followed = |one: &Entry| {
                        let behind = one.key == entry.key && entry.end.is_some_and(|end| end <= one.begin);
                        behind
                            && one.answers.iter().all(Result::is_ok)
                            && one.answered_at.is_some_and(|at| at <= later.begin)
                    };
                    if entry.is_posted && network.was_unknown(entry.call) && !book.entries.iter().any(followed) {
                        continue;
                    }
                    let (Some(first), Some(second)) = (arrival(entry.call, 0), arrival(later.call, 0)) else {
                        continue;
                    };
                    if first > second && !book.is_closed && !broken[log[first].connection] {
                        faults.push(format!("call {} overtakes {}", later.call, entry.call));
                    }
                }
            }
            book.faults.append(&mut faults);
        });
        if !self.transport.routes.is_empty() {
            self.object("a key is under way for ever");
        }
        if self.transport.muxes.iter().any(|mux| mux.load() != 0) {
            self.object("a mux counts a caller that has gone");
        }
    }

    fn enter(&self, key: u8, replies: u8, limit: Limit) -> u16 {
        self.with(|book| {
            let call = u16::try_from(book.entries.len()).expect("few");
            let answers = vec![Err(Some(BackendFailure::Unknown)); usize::from(replies)];
            let begin = book.tick();
            let is_long = limit == Limit::Long;
            let (end, is_posted, is_kept, answered_at) = (None, false, false, None);
            book.entries.push(Entry {
                call,
                key,
                begin,
                end,
                is_long,
                is_posted,
                is_kept,
                answers,
                answered: 0,
                answered_at,
            });
            call
        })
    }

    fn sent(&self, call: u16) {
        self.with(|book| {
            let at = book.tick();
            book.entries[usize::from(call)].end = Some(at);
        });
    }

    /// Shows: S15.
    fn answer(&self, call: u16, place: u8, answer: Result<Value, Error>) {
        let answer = match answer {
            Ok(Value::Int(n)) if n == reply_to(call, place) => Ok(()),
            Ok(other) => return self.object(format!("call {call}, {place}: the answer of another: {other:?}")),
            Err(Error::Backend { failure, .. }) => Err(Some(failure)),
            Err(Error::ShutDown) => Err(None),
            Err(other) => return self.object(format!("call {call}: {other}")),
        };
        self.with(|book| book.entries[usize::from(call)].answers[usize::from(place)] = answer);
    }

    fn answered(&self, call: u16) {
        self.with(|book| {
            let at = book.tick();
            let entry = &mut book.entries[usize::from(call)];
            entry.answered += 1;
            entry.answered_at = Some(at);
        });
    }

    fn object(&self, what: impl Into<String>) {
        self.with(|book| book.faults.push(what.into()));
    }

    /// Accesses the book. This is not a step of the schedule: the transport never sees the book.
    fn with<R>(&self, act: impl FnOnce(&mut Book) -> R) -> R {
        act(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn pack(packed: &mut Packed, command: [u8; COMMAND]) {
    packed.begin();
    packed.stamp_from(packed.bytes.len() + STAMP_AT);
    packed.bytes.extend_from_slice(&command);
}

fn name_of(key: u8) -> &'static str {
    ["a", "b", "c", "d"][usize::from(key)]
}
