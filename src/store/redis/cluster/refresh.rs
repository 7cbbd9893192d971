//! Asks the nodes for a new map: one thread at a time, and not too often.
//!
//! The thread `dlock-map` asks them. It exists only while a map is wanted. It is started when a call was redirected or found no connection,
//! when a node says that the Cluster is down, when the server has ended the subscription of a slot, and with the first call after a minute.
//! The thread pauses between two questions ([`MAP_AGAIN`]), because after a failover all clients ask at the same time. While the map stays
//! the same, the pause is longer.
//!
//! The thread asks the known masters, then the configured nodes, until one of them sends a map. If a node is known to know of a change, the
//! thread begins with that node: the node that a `MOVED` names, or the one that has ended a subscription. Other nodes may hear of the
//! change later, and a map of theirs would hide it until the next cause to ask. Otherwise the thread begins with the node after the one
//! that it asked first the last time, so that a node that is cut off from the others is not believed twice in a row. Nodes that have not
//! answered lately come last. A node is asked on the connection that callers share, if that is open. So hundreds of clients that ask during
//! an outage open no further connections.

use super::map::{Map, MapView};
use super::slots::{MapSource, SlotMap};
use super::timing::{MAP_AGAIN, NODE_PATIENCE};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::store::redis::net::address::Place;
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::handshake;
use crate::store::redis::net::resp::shape;
use crate::store::redis::node::Node;
use crate::sync::on_own_thread;
use crate::sync::unseen::{Condvar, Mutex};
use ::redis::Value;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub(super) struct Refresher {
    /// The configured nodes.
    seeds: Vec<Place>,
    map: Arc<Map>,
    state: Mutex<Refreshing>,
    ended: Condvar,
}

/// What is known of refreshes.
#[derive(Debug, Default)]
struct Refreshing {
    /// Whether a thread refreshes.
    is_busy: bool,
    /// Whether the map must be asked for once more.
    is_wanted: bool,
    /// Whether the thread asks the nodes now.
    is_asking: bool,
    /// How many refreshes have ended.
    ended: u64,
    /// When the next one may begin.
    not_before: Option<Instant>,
    /// How many in a row have changed nothing.
    unchanged: u32,
    /// Why the last one has failed.
    failure: Option<Error>,
    /// The index of the node that is asked first, if none is known to know more.
    turn: usize,
    /// A node that knows of a change.
    knows: Option<Place>,
}

impl Refresher {
    pub(super) fn new(seeds: Vec<Place>, map: Arc<Map>) -> Self {
        Self { seeds, map, state: Mutex::default(), ended: Condvar::new() }
    }

    /// Returns the map for a call that begins now, and has a new one asked for if it is old.
    pub(super) fn fresh_view(self: &Arc<Self>, now: Instant) -> Arc<MapView> {
        let (view, is_old) = self.map.view_and_age(now);
        if is_old {
            self.want();
        }
        view
    }

    /// Has the map asked for soon. Returns how many refreshes will have ended before the first one that asks after this call, for
    /// [`wait`](Self::wait). Does not block.
    pub(super) fn want(self: &Arc<Self>) -> u64 {
        let mut state = self.state.lock();
        // A question that was sent may have been answered before the change that the caller has seen. The thread then asks once more, so no cause is
        // lost.
        state.is_wanted = true;
        let ended = state.ended + u64::from(state.is_asking);
        if state.is_busy || self.map.nodes.is_closed() {
            return ended;
        }
        // The thread holds the refresher weakly between its rounds, so it ends with the Cluster, and nobody joins it.
        let this = Arc::downgrade(self);
        // The thread is started with the mutex held. Otherwise two callers could start two threads, which would ask the same nodes.
        match std::thread::Builder::new().name("dlock-map".to_owned()).spawn(move || on_own_thread(|| refresh(&this))) {
            Ok(_) => state.is_busy = true,
            Err(cause) => {
                // The calls go on with the present map. If there is none, they fail with this error, and the next call tries again.
                let message = format!("the operating system refused the thread dlock-map: {cause}");
                state.failure = Some(Error::backend_caused_by(BackendFailure::NotExecuted, message, cause));
            }
        }
        ended
    }

    /// Has this node asked first for the next map, because it knows of a change.
    pub(super) fn ask_first(&self, place: &Place) {
        self.state.lock().knows = Some(place.clone());
    }

    /// Waits until more than `ended` refreshes have ended, at most until the deadline.
    pub(super) fn wait(&self, ended: u64, deadline: Instant) {
        let mut state = self.state.lock();
        // Without a thread there is nothing to wait for, and closed nodes do not answer.
        while state.ended <= ended && state.is_busy && !self.map.nodes.is_closed() {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Waits for the first map of all, at most until the deadline.
    ///
    /// # Errors
    ///
    /// The reason why no node tells it.
    pub(super) fn wait_for_first(self: &Arc<Self>, deadline: Instant) -> Result<(), Error> {
        if self.map.nodes.is_closed() {
            return Err(Error::ShutDown);
        }
        if self.map.is_known() {
            return Ok(());
        }
        let ended = self.want();
        self.wait(ended, deadline);
        if self.map.is_known() {
            return Ok(());
        }
        Err(self.failure().unwrap_or_else(|| {
            let message = format!("no node of the Cluster at {self} has told its slots in time");
            Error::backend(BackendFailure::NotExecuted, message)
        }))
    }

    /// Returns why the last refresh has failed, if it has.
    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Lets the threads go on that wait for a map. Call it when the nodes are closed.
    pub(super) fn close(&self) {
        // A waiting thread holds this mutex while it looks whether the nodes are closed, and until it sleeps. Without the mutex, the notification
        // could come between the two.
        let _looked_under = self.state.lock();
        self.ended.notify_all();
    }

    /// Asks until a node tells a map.
    fn ask_for_map(&self, turn: usize, knows: Option<Place>) -> Result<(SlotMap, Instant), Error> {
        let mut places: Vec<Place> = self.map.view().slots.places().to_vec();
        // The nodes are asked in turn, so that the next answer corrects the map of a node that is cut off.
        if !places.is_empty() {
            let turn = turn % places.len();
            places.rotate_left(turn);
        }
        // The node that is named by a redirection is asked first, even if it is not a master in the present map: it knows of the change.
        if let Some(first) = knows {
            places.retain(|place| *place != first);
            places.insert(0, first);
        }
        // The configured nodes come last. They may have left the Cluster long ago. But when all known masters are gone, as after a change of
        // addresses, they are the only way back.
        for seed in &self.seeds {
            if !places.contains(seed) {
                places.push(seed.clone());
            }
        }
        let is_quiet = |node: &Arc<Node>| node.is_silent() || node.transport.is_cooling_down(NODE_PATIENCE);
        let quiet: Vec<_> = self.map.nodes.all().into_iter().filter(is_quiet).collect();
        // A silent node would cost [`NODE_PATIENCE`] before the first answer, so silent nodes come last. The sort keeps the order of the others.
        places.sort_by_key(|place| quiet.iter().any(|node| node.transport.endpoint().address.place == *place));
        let timeout = self.map.nodes.reach.endpoint.connect_timeout;
        // A node that is alone has all the time of a connect, because there is no other node to ask.
        let patience = if places.len() > 1 { timeout.min(NODE_PATIENCE) } else { timeout };
        let mut failures = Vec::new();
        for place in places {
            let asked_at = Instant::now();
            // The answer counts as of the moment before the question: a `MOVED` that comes after that moment is newer than the answer.
            match self.ask(&place, asked_at + patience) {
                Ok(map) => return Ok((map, asked_at)),
                Err(_) if self.map.nodes.is_closed() => return Err(Error::ShutDown),
                Err(error) => failures.push((place, error)),
            }
        }
        // A wrong password or a missing right is returned as it is, if all nodes fail in this way. If a single node fails otherwise, there may be an
        // outage, and the caller must go on trying.
        let is_final = |(_, error): &(Place, Error)| !error.is_transient();
        if failures.iter().all(is_final)
            && let Some((_, error)) = failures.pop()
        {
            return Err(error);
        }
        let causes: Vec<_> = failures.iter().map(|(_, error)| error.to_string()).collect();
        let message = format!("no node of the Cluster at {self} tells its slots: {}", causes.join("; "));
        Err(Error::backend(BackendFailure::NotExecuted, message))
    }

    /// Asks one node.
    fn ask(&self, place: &Place, deadline: Instant) -> Result<SlotMap, Error> {
        const QUESTION: [&str; 2] = ["CLUSTER", "SLOTS"];
        let endpoint = self.map.nodes.reach.endpoint_at(place, Arc::default());
        let address = &endpoint.address;
        // The question goes on the callers' connection, if there is one. Otherwise each client would open one more connection, just when all clients
        // ask and a node that comes back is busy.
        let reply = match self.map.nodes.connected(place) {
            Some(node) => {
                let reply = node.say(&QUESTION, deadline.saturating_duration_since(Instant::now()));
                // The node hangs. Batches must not wait for it, and would otherwise have to find that out themselves.
                if reply.is_err() {
                    node.note_silence();
                }
                Some(reply?)
            }
            None => {
                // A replica is asked, too: it knows the map as well as a master does, and may be the only known node that is left.
                let mut link = endpoint.connect_to_any(deadline)?;
                link.ask(&QUESTION, deadline).map_err(|e| handshake::failed(address, e))?
            }
        };
        let strange = |what: String| {
            let message = format!("{address} answered CLUSTER SLOTS {what}");
            Error::backend(BackendFailure::NotExecuted, message)
        };
        match &reply {
            // The connection is dropped, and with it the late answer.
            None => Err(strange("too late".to_owned())),
            Some(Value::ServerError(e)) => Err(address.hide(classify(e, ""))),
            Some(reply) => SlotMap::read(reply, MapSource { by: place, map: self.map.address_map.as_ref() })
                .ok_or_else(|| strange(format!("with {}, which names no owner of a slot", shape(reply)))),
        }
    }
}

/// Shows the configured nodes.
impl fmt::Display for Refresher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, place) in self.seeds.iter().enumerate() {
            // They are shown as addresses, which contain no login.
            let address = self.map.nodes.reach.endpoint_at(place, Arc::default()).address;
            write!(f, "{}{address}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The work of the thread.
fn refresh(refresher: &Weak<Refresher>) {
    loop {
        let Some(strong) = refresher.upgrade() else { return };
        // The thread sleeps without a strong pointer, so a Cluster that is dropped meanwhile ends at once.
        let not_before = strong.state.lock().not_before;
        drop(strong);
        if let Some(at) = not_before {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        let Some(strong) = refresher.upgrade() else { return };
        let (turn, knows) = {
            let mut state = strong.state.lock();
            // Clear this before the nodes are asked. A thread that wants a map from now on may know of a change that comes too late for
            // this answer, so the nodes are then asked once more.
            (state.is_wanted, state.is_asking) = (false, true);
            state.turn = state.turn.wrapping_add(1);
            (state.turn, state.knows.take())
        };
        // The address map is the program's, and may panic. A panic would leave `is_busy` set, and no thread would ever ask again.
        let told = crate::sync::catch_panic(|| {
            let (map, asked_at) = strong.ask_for_map(turn, knows)?;
            Ok(strong.map.install(&map, asked_at))
        });
        let told = told.unwrap_or_else(|| {
            Err(Error::backend(
                BackendFailure::NotExecuted,
                "asking for the Cluster's slots panicked; please report it",
            ))
        });
        let now = Instant::now();
        // This is noted after a failure, too: while the nodes do not answer, calls that fail ask for a map, and calls that begin do not.
        strong.map.note_asked(now);
        let mut state = strong.state.lock();
        let was_failing = state.failure.is_some();
        // The pause grows while the map stays the same. A cause that comes after a quiet second is a new one, and begins with the short pause.
        let is_new = matches!(told, Ok(true)) || state.not_before.is_none_or(|at| now > at + Duration::from_secs(1));
        state.failure = told.err();
        // An outage has one line in the log, and not one line for each question.
        let news = state.failure.clone().filter(|_| !was_failing && !strong.map.nodes.is_closed());
        state.is_asking = false;
        state.ended += 1;
        state.unchanged = if is_new { 0 } else { state.unchanged.saturating_add(1) };
        state.not_before = Some(now + MAP_AGAIN.after(state.unchanged + 1));
        let goes_on = state.is_wanted && !strong.map.nodes.is_closed();
        state.is_busy = goes_on;
        strong.ended.notify_all();
        drop(state);
        if let Some(failure) = news {
            log::warn!(TRANSPORT, "{strong}: no node has told a new map of the slots: {failure}");
        }
        if !goes_on {
            return;
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/refresh.rs"]
mod tests;
