//! One client: its tenures, one after another, and what it checks.

use super::journal::Journal;
use super::scenarios::Scenario;
use super::servers::{Servers, step};
use crate::confirm::Offers;
use crate::deadline::Deadline;
use crate::message;
use crate::names::Names;
use crate::store::ConsensusStore;
use redis_dlock::port::{
    AcquireOutcome, Break, BreakOutcome, Claim, DelayReleaseOutcome, ExtendOutcome, Grant, Limit, LockProcessor,
    Message, Operations, Outcome, PollOutcome, ProbeOutcome, ReleaseDelay, ReleaseOutcome, Request,
};
use redis_dlock::{BackendFailure, Error};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;

const KEY: &str = "k";
const ROOT: &str = "dlock/";

/// No session of the model ends by itself.
const LEASE: Duration = Duration::from_secs(3600);

/// A lease with which each waiter passes over whoever has not confirmed yet, however soon that is: only its check keeps it from a holder.
const NO_PATIENCE: Duration = Duration::from_nanos(1);

pub(super) struct Client {
    name: String,
    store: Arc<ConsensusStore>,
    servers: Servers,
    journal: Journal,
    names: Names,
    scenario: Scenario,
    /// The lease of its claims.
    lease: Duration,
    is_dead: bool,
    tenures: u32,
    /// The index up to which it has waited for changes, and how many messages it has heard.
    seen: u64,
    heard: u64,
    /// The threads that release what was handed over without an answer, and those that confirm what the inbox has heard.
    beside: Vec<thread::JoinHandle<()>>,
}

/// What becomes of a tenure.
enum Next {
    /// It holds the key, with this number.
    Holds(u64),
    Waits,
    /// A request had no answer.
    Asks,
    Over,
}

/// How a hold ends.
enum End {
    Release,
    HandOver,
    /// It has ended already, and nobody gets the key for a while.
    Delayed,
}

impl Client {
    pub(super) fn new(name: &str, servers: &Servers, journal: &Journal, scenario: &Scenario) -> Self {
        Self {
            name: name.to_owned(),
            store: Arc::new(ConsensusStore::new(Arc::new(servers.clone()), ROOT)),
            servers: servers.clone(),
            journal: journal.clone(),
            names: Names::new(ROOT),
            scenario: *scenario,
            lease: if scenario.dies { NO_PATIENCE } else { LEASE },
            is_dead: false,
            tenures: 0,
            seen: 0,
            heard: 0,
            beside: Vec::new(),
        }
    }

    fn next_locker(&mut self) -> String {
        self.tenures += 1;
        format!("{}-{}", self.name, self.tenures)
    }

    fn object(&self, what: impl std::fmt::Display) {
        self.journal.object(format!("{}: {what}", self.name));
    }

    /// Has so many holds, or gives up.
    pub(super) fn run(mut self, holds: u32) {
        for _ in 0..holds {
            if self.is_dead {
                break;
            }
            let locker = self.next_locker();
            let claim = Claim::new(KEY, &self.name, &locker, self.lease);
            let next = match self.store.join(&claim, LEASE) {
                Ok(AcquireOutcome::Acquired(grant)) => Next::Holds(number(&grant)),
                Ok(_) => Next::Waits,
                Err(error) => self.after(&claim, &error),
            };
            self.go_on(&locker, next);
        }
        self.beside.drain(..).for_each(|thread| drop(thread.join()));
    }

    /// Does what is next, until the last of its lockers is over.
    fn go_on(&mut self, locker: &str, next: Next) {
        let (mut locker, mut next) = (locker.to_owned(), next);
        let name = self.name.clone();
        loop {
            let claim = Claim::new(KEY, &name, &locker, self.lease);
            match next {
                Next::Over => return,
                Next::Waits => next = self.wait(&claim),
                Next::Asks => next = self.ask(&claim),
                Next::Holds(number) => {
                    match self.hold(&claim, number) {
                        End::HandOver => {}
                        End::Release => return self.release(&claim),
                        End::Delayed => return,
                    }
                    let later = self.next_locker();
                    next = self.hand_over(&locker, &later);
                    locker = later;
                }
            }
        }
    }

    /// Waits for the key. It asks when it may have missed a message; where requests fail or sessions are ended, whenever anything has
    /// changed.
    fn wait(&mut self, claim: &Claim<'_>) -> Next {
        let inbox = self.names.inbox(&self.name);
        loop {
            if self.scenario.dies && thread_rng().gen_ratio(1, 8) {
                self.is_dead = true;
                self.servers.note_dead(&self.name);
                return Next::Over;
            }
            if self.scenario.gives_up && thread_rng().gen_ratio(1, 8) {
                self.release(claim);
                return Next::Over;
            }
            let (seen, mut asks) = self.servers.wait(&inbox, self.seen);
            self.seen = seen;
            let change = self.servers.inbox(&inbox, &mut self.heard);
            change.iter().for_each(|change| self.store.confirming().note_waiters(change));
            // An inbox confirms what it hears; a client that has missed it asks.
            let confirms = self.scenario.confirms_apart || thread_rng().gen_bool(0.5);
            let offer = change.as_ref().filter(|_| confirms).and_then(message::offer);
            let mut offers = Offers::new(self.store.confirming());
            offer.into_iter().for_each(|offer| offers.push(offer));
            let confirmed = if self.scenario.confirms_apart {
                asks = true;
                self.beside.push(thread::spawn(move || drop(offers.confirm_some(Deadline::after(LEASE)))));
                Vec::new()
            } else {
                offers.confirm_some(Deadline::after(LEASE))
            };
            for message in confirmed.into_iter().chain(change.iter().flat_map(message::read)) {
                match message {
                    Message::Granted { locker, grant, .. } if locker == claim.locker => {
                        return Next::Holds(number(&grant));
                    }
                    Message::Changed { .. } => asks = true,
                    _ => {}
                }
            }
            if !asks {
                continue;
            }
            match self.ask(claim) {
                Next::Waits => {}
                next => return next,
            }
        }
    }

    fn ask(&self, claim: &Claim<'_>) -> Next {
        match self.store.poll(claim, LEASE) {
            Ok(PollOutcome::Acquired(grant)) => Next::Holds(number(&grant)),
            Ok(PollOutcome::Waiting(_)) => Next::Waits,
            Ok(_) => Next::Over,
            Err(error) => self.after(claim, &error),
        }
    }

    /// After a failure: it asks again if its request may have been executed, or leaves.
    fn after(&self, claim: &Claim<'_>, error: &Error) -> Next {
        if error.to_string().matches("the lock store failed").count() > 1 {
            self.object(format_args!("says twice that the store failed: {error}"));
        }
        let is_open = matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
        if is_open && thread_rng().gen_bool(0.5) { Next::Asks } else { self.end(claim, error) }
    }

    /// Is inside for some steps. Returns how to end that.
    /// Shows: G1, G7.
    fn hold(&self, claim: &Claim<'_>, number: u64) -> End {
        let session = self.servers.holder(&self.names.lock(KEY));
        let servers = self.servers.clone();
        let own = session.filter(|session| session.starts_with(&format!("{}/", self.name)));
        let (broken, locker) = (self.names.broken(KEY, claim.locker), claim.locker.to_owned());
        // A hold whose session the operator has ended, or that he has broken, is told by its next renewal.
        let is_excused = move || {
            own.as_ref().is_none_or(|own| servers.has_ended(own)) || servers.has_ended(&locker) || servers.has(&broken)
        };
        if is_excused() && !self.servers.is_meddled_with() {
            self.object(format_args!("{} holds what is not its own", claim.locker));
        }
        let entry = self.journal.enter(claim.locker, number).excused_if(is_excused);
        entry.ask(|| true);
        for _ in 0..thread_rng().gen_range(0..3) {
            step();
        }
        // Of who waits. What else its inbox says it hears when it waits again.
        let change = self.servers.inbox(&self.names.inbox(&self.name), &mut self.heard.clone());
        change.iter().for_each(|change| self.store.confirming().note_waiters(change));
        if thread_rng().gen_ratio(1, 3) {
            match self.store.probe(claim, LEASE) {
                Ok(ProbeOutcome::Ours) | Err(_) => {}
                Ok(other) if !self.servers.is_meddled_with() => {
                    self.object(format_args!("is told of a hold: {other:?}"));
                }
                Ok(_) => {}
            }
        }
        if thread_rng().gen_ratio(1, 3) {
            self.extend_with_another(claim);
        }
        entry.ask(|| true);
        if self.scenario.delays && thread_rng().gen_bool(0.5) {
            self.delay(claim);
            // Until its time is over, nobody else is inside.
            entry.ask(|| true);
            step();
            drop(entry);
            self.servers.expire(&self.names.lock(KEY));
            return End::Delayed;
        }
        if thread_rng().gen_bool(0.5) { End::HandOver } else { End::Release }
    }

    /// Extends the hold together with the probe of a tenure that there is not.
    /// Shows: G3.
    fn extend_with_another(&self, claim: &Claim<'_>) {
        let absent = Claim::new("another", &self.name, "absent-1", LEASE);
        let requests = [Request::Extend(*claim), Request::Probe(absent)];
        match self.store.run(&requests, Limit::Call(LEASE)).into_iter().next() {
            Some(Ok(Outcome::Extend(ExtendOutcome::Extended(_))) | Err(_)) => {}
            other if !self.servers.is_meddled_with() => {
                self.object(format_args!("is told of a hold: {other:?}"));
            }
            _ => {}
        }
    }

    /// Ends a hold, and keeps everybody from the key. It repeats that as often as it takes.
    /// Shows: G13.
    fn delay(&self, claim: &Claim<'_>) {
        let mark = format!("delayed {}", claim.locker);
        loop {
            match self.store.delay_release(claim, ReleaseDelay::new(&mark, LEASE), LEASE) {
                Ok(DelayReleaseOutcome::Delayed) => return,
                Ok(other) => return self.object(format_args!("a delayed release finds {other:?}")),
                Err(_) => step(),
            }
        }
    }

    fn release(&self, claim: &Claim<'_>) {
        match self.store.release(claim, LEASE) {
            Ok(ReleaseOutcome::Passed(_) | ReleaseOutcome::Queued(_)) => self.object("a release passes to nobody"),
            Ok(_) => {}
            Err(error) => drop(self.end(claim, &error)),
        }
    }

    /// Ends a hold, and waits for the next one.
    fn hand_over(&mut self, locker: &str, later: &str) -> Next {
        let [claim, next] = [locker, later].map(|locker| Claim::new(KEY, &self.name, locker, self.lease));
        match self.store.hand_over(&claim, &next, LEASE) {
            Ok(ReleaseOutcome::Passed(grant)) => Next::Holds(number(&grant)),
            Ok(ReleaseOutcome::Queued(_)) => Next::Waits,
            Ok(_) => Next::Over,
            Err(error) => {
                let is_open = matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                if is_open && thread_rng().gen_bool(0.5) {
                    // One thread repeats the release, while another asks about the next locker.
                    let (store, name, locker) = (Arc::clone(&self.store), self.name.clone(), locker.to_owned());
                    let lease = self.lease;
                    self.beside.push(thread::spawn(move || {
                        let claim = Claim::new(KEY, &name, &locker, lease);
                        while store.release(&claim, LEASE).is_err() {}
                    }));
                    return Next::Asks;
                }
                self.end(&claim, &error);
                if is_open {
                    self.end(&next, &error);
                }
                Next::Over
            }
        }
    }

    /// After a failure: whatever may still come of the locker's requests is ended, as often as it takes.
    fn end(&self, claim: &Claim<'_>, error: &Error) -> Next {
        log::trace!("{}: {error}", claim.locker);
        // A client repeats a release, and settles an attempt.
        if thread_rng().gen_bool(0.5) {
            while self.store.release(claim, LEASE).is_err() {}
        } else {
            while self.store.settle(claim, LEASE).is_err() {}
        }
        Next::Over
    }
}

/// Breaks the hold that it sees, some time later. No other hold ends by it, and whoever waits has the key at once.
/// Shows: S3.
pub(super) fn break_some_hold(servers: &Servers, journal: &Journal, is_answered: bool) {
    let store = ConsensusStore::new(Arc::new(servers.clone()), ROOT);
    for _ in 0..5 {
        step();
        let Ok(Some(locker)) = store.inspect(KEY, LEASE).map(|found| found.holder) else { continue };
        step();
        match store.break_hold(&Break::new(KEY, &locker, "operator-1", "it hangs"), LEASE) {
            Ok(BreakOutcome::Broken { next: Some(next), .. }) if next == locker => {
                journal.object(format!("{locker} was broken, and is the next"));
            }
            Ok(BreakOutcome::Broken { next: None, waiting: 1.. }) if is_answered => {
                journal.object(format!("{locker} was broken, and nobody of those who wait has the key"));
            }
            Ok(BreakOutcome::NotHeldBy { holder: Some(holder) }) if holder == locker => {
                journal.object(format!("{locker} holds the key, and was not broken"));
            }
            Ok(BreakOutcome::Broken { .. }) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

fn number(grant: &Grant) -> u64 {
    grant.number
}
