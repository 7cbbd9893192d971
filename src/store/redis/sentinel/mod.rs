//! Finds the master of a service by its Sentinels.
//!
//! | file | holds |
//! |---|---|
//! | `url.rs` | the URL of a service |
//! | `ask.rs` | one Sentinel: its connection, and the questions |
//! | `view.rs` | which of the answers to believe |
//! | `watch.rs` | the thread `dlock-watch`, which notices a new master before a command fails |
//!
//! Each connect asks where the master is ([`Finder`]). One thread asks at a time; the others take its answer if it is young. The server at
//! that address must say itself that it is a master (`net/handshake`), so nothing depends only on what a Sentinel says.
//!
//! Redis's guide for clients ("Guidelines for Redis clients with support for Redis Sentinel") asks for these steps.

mod ask;
mod timing;
pub(crate) mod url;
mod view;
mod watch;

use crate::error::{BackendFailure, Error};
use crate::log;
use crate::one_line::OneLine;
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::endpoint::{Dialer, Endpoint, Finder};
use crate::store::redis::net::hosts::{AddressMap, mapped};
use crate::sync::unseen::Mutex;
use ask::{Sentinel, SentinelAnswer};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use timing::{AGREEMENT, DOWN_AFTER, ROUND, WHOLE, YOUNG};
use url::Service;
use view::{MasterReport, MasterView};
use watch::Watch;

/// The most Sentinels that are learnt from others.
const MOST_LEARNT: usize = 64;

/// The Sentinels of a service.
pub(crate) struct Sentinels {
    /// The service in place of an address, with the login for its servers.
    service: Address,
    name: String,
    /// How to reach the servers, without a search.
    servers: Endpoint,
    map: Option<AddressMap>,
    this: Weak<Self>,
    /// How many Sentinels the URL names.
    configured: usize,
    /// This mutex is never held while a Sentinel is asked: a Sentinel that hangs would keep every connect from the answers of the others.
    known: Mutex<Known>,
    /// The last address that was found, when, and by which Sentinel. The thread that asks for a connect holds this mutex.
    found: Mutex<Option<(Address, Instant, usize)>>,
    watch: Watch,
}

/// What is known of the service.
struct Known {
    /// The Sentinels of the URL come first, then the Sentinels that they name.
    sentinels: Vec<Arc<Sentinel>>,
    view: MasterView,
    /// The longest `down-after-milliseconds` that was told.
    down_after: Option<Duration>,
}

impl Sentinels {
    /// `servers` says how to reach the servers of the service, wherever they are.
    pub(crate) fn new(service: Service, servers: Endpoint, map: Option<AddressMap>) -> Arc<Self> {
        let Service { address, sentinels } = service;
        let name = match &address.place {
            Place::Service { name, .. } => name.clone(),
            other => format!("{other:?}"),
        };
        let configured = sentinels.len();
        let sentinels = sentinels.into_iter().map(|address| Arc::new(Sentinel::new(address))).collect();
        let known = Known { sentinels, view: MasterView::new(configured), down_after: None };
        Arc::new_cyclic(|this| Self {
            service: address,
            name,
            servers,
            map,
            this: Weak::clone(this),
            configured,
            known: Mutex::new(known),
            found: Mutex::new(None),
            watch: Watch::default(),
        })
    }

    fn dialer(&self) -> &Dialer {
        &self.servers.dialer
    }

    /// Returns the host and the port by which this machine reaches what a Sentinel names.
    fn mapped(&self, (host, port): (String, u16)) -> (String, u16) {
        mapped(self.map.as_ref(), host, port)
    }

    /// The address of a server of the service.
    fn server(&self, (host, port): (String, u16)) -> Address {
        let tls = matches!(self.service.place, Place::Service { tls: true, .. });
        Address { place: Place::Tcp { host, port, tls }, ..self.service.clone() }
    }

    fn all(&self) -> Vec<Arc<Sentinel>> {
        self.known.lock().sentinels.clone()
    }

    /// Asks one Sentinel, and takes in what it says.
    /// Returns whether it knows the service.
    fn hear(&self, index: usize, sentinel: &Sentinel, deadline: Instant) -> Result<bool, Error> {
        let start = Instant::now();
        match sentinel.master(self.dialer(), &self.name, deadline) {
            Ok(Some(SentinelAnswer { report: MasterReport { epoch, at }, down_after, fails_over })) => {
                // The map is the program's: no mutex is held while it runs.
                let report = MasterReport { epoch, at: self.mapped(at) };
                let mut known = self.known.lock();
                known.down_after = known.down_after.max(Some(down_after));
                known.view.hear(index, Some(report), fails_over);
                Ok(true)
            }
            // It had too little time to answer, so its earlier answer still counts.
            Err(error) if !ask::is_whole(start, deadline) => Err(error),
            unknown => {
                self.known.lock().view.hear(index, None, false);
                unknown.map(|_| false)
            }
        }
    }

    /// Returns the address to follow now, by what was heard so far.
    fn choice(&self) -> Option<Address> {
        let at = self.known.lock().view.choice(Instant::now())?.at.clone();
        Some(self.server(at))
    }

    /// Whether this is the address to follow, and a master may be there.
    fn is_promising(&self, address: &Address) -> bool {
        let now = Instant::now();
        let view = &mut self.known.lock().view;
        let Some(report) = view.choice(now).cloned() else { return false };
        !view.is_refuted(&report, now) && self.server(report.at).place == address.place
    }

    /// Whether this is the address to follow.
    fn is_choice(&self, address: &Address) -> bool {
        self.choice().is_some_and(|choice| choice.place == address.place)
    }

    /// Adds the Sentinels that another one names to those of the URL.
    fn learn(&self, report: Vec<(String, u16)>) {
        // The map is the program's: no mutex is held while it runs.
        let report: Vec<_> = report.into_iter().take(MOST_LEARNT).map(|at| self.mapped(at)).collect();
        let known = &mut self.known.lock().sentinels;
        let before = known.split_off(self.configured);
        let Some(first) = known.first().map(|sentinel| sentinel.address.clone()) else { return };
        for at in report {
            let address = Address { place: self.server(at).place, ..first.clone() };
            let is_there = |sentinel: &&Arc<Sentinel>| sentinel.address.place == address.place;
            if known.iter().any(|sentinel| is_there(&sentinel)) {
                continue;
            }
            let kept = before.iter().find(is_there).cloned();
            known.push(kept.unwrap_or_else(|| Arc::new(Sentinel::new(address))));
        }
    }

    /// Asks the Sentinels one after another, beginning with `first`, until one names a master that may be followed.
    fn search(&self, first: usize, is_first_time: bool, deadline: Instant) -> Result<(Address, usize), Error> {
        let all = self.all();
        let begin = Instant::now();
        // After that, a client that begins takes the answer that it has: the other half of the time is for the connect.
        let half = begin + deadline.saturating_duration_since(begin) / 2;
        let (mut unknown, mut failures) = (0, Vec::new());
        let (mut answers, mut last) = (0, first);
        for n in 0..all.len() {
            let index = (first + n) % all.len();
            let until = if is_first_time && answers > 0 { half } else { deadline };
            if n > 0 && Instant::now() >= until {
                break;
            }
            if index >= self.configured && all[index].is_cooling_down(Instant::now()) {
                continue;
            }
            match self.hear(index, &all[index], deadline) {
                Ok(true) => {
                    (answers, last) = (answers + 1, index);
                    let now = Instant::now();
                    let view = &mut self.known.lock().view;
                    // The first answer may come from a Sentinel that was cut off, so a new client hears more than half of them.
                    if is_first_time && (2 * answers <= self.configured || view.is_disputed()) {
                        continue;
                    }
                    // If the answer is stale or refuted, another Sentinel may have a better one.
                    if let Some(choice) = view.choice(now).cloned()
                        && !view.is_refuted(&choice, now)
                    {
                        return Ok((self.server(choice.at), index));
                    }
                }
                Ok(false) => unknown += 1,
                Err(error) => failures.push((all[index].address.to_string(), error)),
            }
        }
        if let Some(choice) = self.choice() {
            // All answers are older than an earlier one, or name an address without a master. Or a client begins, and too few have answered.
            return Ok((choice, last));
        }
        if unknown > 0 && is_first_time {
            let hint = "no Sentinel that answers watches a service of that name: give the name in `sentinel monitor`";
            return Err(Error::invalid_config("service", OneLine(&self.name).to_string(), hint));
        }
        if unknown == 0
            && failures.iter().all(|(_, error)| matches!(error, Error::Denied { .. }))
            && let Some((address, Error::Denied { message })) = failures.pop()
        {
            let whose = "sentinel_username and sentinel_password in the URL are its login";
            return Err(Error::denied(format!("the Sentinel {address} says {message} ({whose})")));
        }
        let causes: Vec<_> = failures.iter().map(|(address, error)| format!("{address}: {error}")).collect();
        let causes = if causes.is_empty() { "none knows it any more".to_owned() } else { causes.join("; ") };
        let message = format!("no Sentinel says where {} is: {causes}", self.service);
        Err(Error::backend(BackendFailure::NotExecuted, message))
    }

    /// Asks all Sentinels. Connects to the master that they name if the last connection leads to another server, or if the last connect
    /// failed.
    fn round(&self) {
        for (index, sentinel) in self.all().iter().enumerate() {
            if self.watch.is_stopped() {
                return;
            }
            if !sentinel.is_cooling_down(Instant::now())
                && let Err(error) = self.hear(index, sentinel, Instant::now() + WHOLE)
            {
                log::debug!(TRANSPORT, "the Sentinel at {}: {error}", sentinel.address);
            }
        }
        let Some(choice) = self.choice() else { return };
        let is_in_trouble = self.watch.is_in_trouble();
        // Compare with the server of the last connection, whichever thread has opened that.
        let last = self.servers.servers.last_place();
        if (last.as_ref() == Some(&choice.place) && !is_in_trouble) || self.watch.is_stopped() {
            return;
        }
        let reached =
            self.servers.connect_to(&choice, Instant::now() + self.servers.connect_timeout.min(ROUND), &|| {
                self.is_choice(&choice)
            });
        self.note(&choice, reached.is_ok());
        match reached {
            Ok(_) if last.as_ref() != Some(&choice.place) => {
                log::info!(TRANSPORT, "{}: the master is {choice} now", self.service);
            }
            Ok(_) => {}
            Err(error) => log::debug!(TRANSPORT, "{}: cannot reach {choice} yet: {error}", self.service),
        }
    }

    /// Asks for the other Sentinels of the service. Returns `true` if one has answered.
    fn ask_for_more(&self) -> bool {
        let report = self
            .all()
            .iter()
            .filter(|sentinel| !sentinel.is_cooling_down(Instant::now()) && !self.watch.is_stopped())
            .find_map(|sentinel| sentinel.others(self.dialer(), &self.name, Instant::now() + WHOLE).ok());
        let has_answered = report.is_some();
        if let Some(report) = report {
            self.learn(report);
        }
        has_answered
    }
}

impl Finder for Sentinels {
    fn find(&self, deadline: Instant) -> Result<Address, Error> {
        let late = || {
            let message = format!("{}: asking the Sentinels took too long", self.service);
            Error::backend(BackendFailure::NotExecuted, message)
        };
        let mut found = self.found.try_lock_until(deadline).ok_or_else(late)?;
        if let Some((address, at, _)) = &*found
            && at.elapsed() < YOUNG
            && self.is_promising(address)
        {
            return Ok(address.clone());
        }
        let first = found.as_ref().map_or(0, |(_, _, index)| *index);
        let (address, index) = self.search(first, found.is_none(), deadline)?;
        *found = Some((address.clone(), Instant::now(), index));
        Ok(address)
    }

    fn note(&self, found: &Address, is_master: bool) {
        if let Place::Tcp { host, port, .. } = &found.place {
            self.known.lock().view.tried((host.clone(), *port), is_master, Instant::now());
        }
        self.watch.note(is_master, &self.this);
    }

    fn is_followed(&self, found: &Address) -> bool {
        self.is_choice(found)
    }

    /// Returns the outage that the settings of the Sentinels allow for.
    fn outage(&self) -> Duration {
        self.known.lock().down_after.unwrap_or(DOWN_AFTER) + AGREEMENT
    }

    fn stop(&self) {
        self.watch.stop();
        self.all().iter().for_each(|sentinel| sentinel.hang_up());
    }
}

/// Reads what a Sentinel answers, for the fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn read(reply: &::redis::Value) {
    ask::read(reply);
}
