//! The inbox of a client in a Cluster: a shard channel in each slot in which one of its tenures waits, or may be asked to give way.
//!
//! A message goes only to the node that owns the slot, and reaches the subscribers there. (`PUBLISH` would send each message to every node,
//! over connections between nodes that delay it for up to 40 ms.) There is one listening connection to each master that owns such a slot,
//! and sometimes an earlier one that takes no more slots (rule 6). The client's thread `dlock-listen` reads all of these connections. Each
//! is opened by a thread `dlock-connect`, which then ends.
//!
//! A slot is subscribed when a tenure is about to wait there, or may be asked to give way. So a lock that is free costs no subscription.
//! The first request takes the key, or finds it busy. If the key is busy, the slot is subscribed, and a second request joins the queue. A
//! slot is unsubscribed when no tenure has needed it for a minute after the end of the last lease.
//!
//! When a slot moves to another node, the server ends the subscription. When a master fails, its connection breaks, or its successor knows
//! nothing of the subscription. In all these cases the slot is subscribed again, at its owner by a new map. Until the new subscription is
//! confirmed, the client's tenures in the slot are unheard, and keep their places in the queue for a second.
//!
//! 1. *A slot is heard on one connection.* When a newer map names another owner, the slot leaves its connection at once, and is due at the
//!    new owner. Later messages about the slot on the earlier connection are ignored.
//! 2. *After a failed connect, a place is tried once for all its slots*, with pauses that double from 10 ms to 1 s. A new owner of a slot
//!    is tried at once.
//! 3. *The listening thread never waits for one node*: commands for which a socket has no room are sent later, and other threads connect. A
//!    node that hangs must not keep the news of the other nodes from the threads that wait for them.
//! 4. *A silent connection is checked.* After a second of silence, a `PING` is sent on it. While a node keeps the client waiting, the other
//!    nodes are asked for the map, so that the client hears again before its places in the queues are lost.
//! 5. *The client asks for what it may have missed.* When a subscription is lost, and when the slot is heard again, the client asks about
//!    its keys in that slot (`Message::ChangedAmong`), and about no others.
//! 6. *Where a server has ended a subscription by itself, no slot is subscribed on that connection any more.* The server may be a replica by
//!    now, and a replica takes subscriptions: the client would hear by it, but the new master would count the client as unheard. If the new
//!    master has taken over the address, no newer map says so. So the slots go on a new connection, and a replica is refused there.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | how an inbox is opened; the listening thread's part: which slot is subscribed where, and when |
//! | `listeners.rs` | how the threads that lock find an inbox |
//! | `slot_subscriptions.rs` | in which slots the client hears |
//! | `subscriber.rs` | one listening connection |
//! | `cooldowns.rs` | the places to which a connect has failed |
//! | `waker.rs` | how the listening thread waits for all connections at once |

mod cooldowns;
pub(super) mod listeners;
pub(super) mod slot_subscriptions;
mod subscriber;
mod waker;

use super::core::Cluster;
use super::map::MapView;
use super::redirect::{RedirectReply, redirect_reply};
use super::timing::{ASK_FOR_MAP, GATHER, LOOK_FOR_IDLE, SHORT_CONNECTION, SUBSCRIBE_AGAIN};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::port::{Inbox, InboxBreaker, KeyFilter, Message};
use crate::store::redis::net::address::Place;
use crate::store::redis::net::classify::classify;
use crate::store::redis::node::Node;
use crate::store::redis::script::keys::{Slot, slot_of};
use crate::store::redis::script::message;
use crate::timing::end_of;
use ::redis::{ServerError, Value};
use cooldowns::PlaceCooldowns;
use slot_subscriptions::{Opened, SlotSubscriptions};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use subscriber::{ServerPush, Subscriber, SubscriberId};
use waker::Waker;

/// See the module. Dropping it ends the subscriptions.
pub(crate) struct ClusterInbox {
    cluster: Arc<Cluster>,
    subscriptions: Arc<SlotSubscriptions>,
    subscribers: Vec<Subscriber>,
    /// The connections that are being opened.
    pending: HashMap<Place, OpeningConnection>,
    cooldowns: PlaceCooldowns,
    /// The slots that were heard, are lost, and are not heard again.
    lost: HashSet<Slot>,
    /// The slots in which something has changed that the client was not told.
    changed: HashSet<Slot>,
    /// How often in a row the subscription of a slot was redirected.
    detours: HashMap<Slot, u32>,
    messages: VecDeque<Message>,
    /// When to tell the client of the `changed` slots.
    tell_at: Option<Instant>,
    /// The map by which the slots were subscribed.
    view: Arc<MapView>,
    look_at: Instant,
    last_subscriber: SubscriberId,
    has_warned: bool,
}

/// A connection that is being opened.
struct OpeningConnection {
    subscriber: SubscriberId,
    node: Weak<Node>,
    slots: Vec<Slot>,
    since: Instant,
}

impl InboxBreaker for Arc<SlotSubscriptions> {
    fn cut(&self) {
        self.close();
    }
}

impl Inbox for ClusterInbox {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        let deadline = end_of(limit, Instant::now());
        loop {
            // This is checked in every round. Another thread may close the inbox while this one reads, and then nothing more would come to end the
            // wait.
            if self.subscriptions.is_closed() || self.cluster.is_closed() {
                let message = "the subscriptions at the Cluster's nodes were ended";
                return Err(Error::backend(BackendFailure::Unknown, message));
            }
            if let Some(message) = self.messages.pop_front() {
                return Ok(Some(message));
            }
            let now = Instant::now();
            // This comes before each wait, and not only when something is due: a thread that gets ready to hear wakes this one, and waits for it.
            let next = self.subscribe(now);
            self.look(now);
            // Slots are gathered for a moment. The end of a connection loses thousands of them, one after another, and each message costs
            // the client a look at all of its keys.
            if self.tell_at.take_if(|at| *at <= now).is_some() {
                let changed = std::mem::take(&mut self.changed);
                let keys = KeyFilter::new(move |key| changed.contains(&slot_of(key.as_bytes())));
                return Ok(Some(Message::ChangedAmong { keys }));
            }
            let times = self.subscribers.iter().map(Subscriber::due).chain(next).chain(self.tell_at);
            // The wait ends at the earliest of all these moments: no node has a timer of its own.
            let until = times.fold(deadline.min(self.look_at), Instant::min);
            self.hear(until.saturating_duration_since(now));
            if self.messages.is_empty() && Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        Box::new(Arc::clone(&self.subscriptions))
    }
}

impl ClusterInbox {
    /// Opens the inbox of a client, which hears nothing yet. Does not ask any node.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the operating system has no more sockets.
    pub(crate) fn open(cluster: &Arc<Cluster>, client: &str) -> Result<Self, Error> {
        // Nothing else may fail here, because the listening thread asks the nodes later. So the inbox opens even while the Cluster is down. A lock
        // loses no time by that, and the opening needs no retry.
        let waker = Waker::new().map_err(|cause| {
            let message = format!("the operating system refused a pair of sockets: {cause}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, cause)
        })?;
        let subscriptions = Arc::new(SlotSubscriptions::new(client, waker));
        // From now on, threads that lock find the inbox, and make slots due. The caller reads from the inbox next, and then subscribes
        // them.
        cluster.listeners.add(&subscriptions);
        Ok(Self {
            cluster: Arc::clone(cluster),
            subscriptions,
            subscribers: Vec::new(),
            pending: HashMap::new(),
            cooldowns: PlaceCooldowns::default(),
            lost: HashSet::new(),
            changed: HashSet::new(),
            detours: HashMap::new(),
            messages: VecDeque::new(),
            tell_at: None,
            // No slot is subscribed yet, so none is at a wrong owner. The first newer map is compared with this one.
            view: cluster.map.view(),
            look_at: Instant::now(),
            last_subscriber: SubscriberId(0),
            has_warned: false,
        })
    }

    /// Waits for at most this time until a server sends something, and takes that in.
    fn hear(&mut self, time: Duration) {
        let sockets: Vec<_> =
            self.subscribers.iter().map(|subscriber| (subscriber.socket(), subscriber.is_behind)).collect();
        let sockets: Vec<_> = sockets.iter().map(|(socket, is_behind)| (&**socket, *is_behind)).collect();
        // If the wait fails, all sockets are read.
        let ready = self.subscriptions.waker.wait(&sockets, time).unwrap_or_else(|_| vec![true; sockets.len()]);
        let now = Instant::now();
        // The connections are taken out and put back one by one, because what one server says may change what is known of the others, such as the
        // map.
        for (mut subscriber, is_ready) in std::mem::take(&mut self.subscribers).into_iter().zip(ready) {
            let (events, mut result) =
                if is_ready { subscriber.read(&self.subscriptions.client) } else { (Vec::new(), Ok(())) };
            let mut unwanted = Vec::new();
            for event in events {
                unwanted.extend(self.take_in(event, &subscriber, now));
            }
            if result.is_ok() {
                result =
                    subscriber.check(now).and_then(|()| subscriber.unsubscribe(&unwanted, &self.subscriptions.client));
            }
            self.keep(subscriber, result, now);
        }
    }

    /// Keeps a connection, unless it has failed. The slots of a failed connection are subscribed again: at once if the connection has worked for a
    /// while, and otherwise after a pause.
    fn keep(&mut self, subscriber: Subscriber, result: io::Result<()>, now: Instant) {
        // What came before the failure is already taken in.
        let Err(cause) = result else { return self.subscribers.push(subscriber) };
        let address = self.cluster.map.nodes.reach.endpoint_at(&subscriber.place, Arc::default()).address;
        log::info!(HAND_OVER, "the subscription at {address} is broken: {cause}; subscribing again");
        self.cluster.refresher.want();
        // The connection worked for a while, so its server was restarted, or the network has lost the connection. A pause would leave the client deaf
        // for a second without need. A connection that breaks as soon as it is open would be opened again and again, so that one pauses.
        if subscriber.has_answered && now.saturating_duration_since(subscriber.opened) >= SHORT_CONNECTION {
            subscriber.slots.iter().for_each(|slot| self.lose(*slot, subscriber.id, now));
            return;
        }
        let message = format!("the subscription at {address} is broken: {cause}");
        let error = Error::backend_caused_by(BackendFailure::NotExecuted, message, cause);
        let until = self.cooldowns.fail(subscriber.place.clone(), error.clone(), now);
        subscriber.slots.iter().for_each(|slot| self.refuse(*slot, Some(subscriber.id), error.clone(), |_| until));
    }

    /// Takes in what a server sends. Returns the slot of a subscription that is not wanted on this connection any more.
    fn take_in(&mut self, event: ServerPush, subscriber: &Subscriber, now: Instant) -> Option<Slot> {
        match event {
            ServerPush::Message(payload) => self.messages.extend(message::parse(&payload)),
            ServerPush::Confirmed(slot) => {
                // The slot is not wanted there any more. It is unsubscribed, so that no slot is heard on two connections (rule 1).
                let Some(is_late) = self.subscriptions.confirm(slot, subscriber.id) else { return Some(slot) };
                // Only a confirmation proves that a place works. A connect alone does not: a proxy may accept connections for a node that is gone.
                self.cooldowns.end(&subscriber.place);
                self.detours.remove(&slot);
                // The threads that went on without the subscription ask once more: a grant in between may have found no subscriber.
                if self.lost.remove(&slot) || is_late {
                    self.note_change(slot, now);
                }
            }
            ServerPush::Ended(slot) => {
                // This node has just given the slot away, so it knows the new owner. Another node may hear of it up to a second later.
                self.cluster.refresher.ask_first(&subscriber.place);
                self.cluster.refresher.want();
                self.lose(slot, subscriber.id, now);
            }
            ServerPush::Refused(slot, error) => self.redirect(slot, &error, subscriber, now),
        }
        None
    }

    /// Subscribes a slot at another server, or later, after a server has refused the subscription.
    fn redirect(&mut self, slot: Slot, error: &ServerError, subscriber: &Subscriber, now: Instant) {
        let reply = Value::ServerError(error.clone());
        if let RedirectReply::Moved { host, port } = redirect_reply(&reply) {
            // This is the node to which the connection was opened. If it is gone, the node that has its place now will do, because only the address
            // is used.
            let node = subscriber.node.upgrade().unwrap_or_else(|| self.cluster.map.nodes.at(&subscriber.place));
            if let Some(owner) = self.cluster.map.place(&node, host, port) {
                self.cluster.follow_to(&owner, slot, &node);
                // The first redirection is followed at once. Two nodes that redirect the slot to each other are asked less and less often.
                let detours = self.detours.entry(slot).or_insert(0);
                let pause = if *detours == 0 { Duration::ZERO } else { SUBSCRIBE_AGAIN.after(*detours) };
                *detours += 1;
                self.subscriptions.lose(slot, Some(subscriber.id), None, |_| now + pause);
                return;
            }
        }
        self.cluster.refresher.want();
        let error = self.cluster.map.nodes.reach.endpoint.address.hide(classify(error, ""));
        self.warn(&error);
        // A missing right may be given later. So the subscription is tried for ever, less and less often, and the threads poll meanwhile.
        self.refuse(slot, Some(subscriber.id), error, |failures| now + SUBSCRIBE_AGAIN.after(failures));
    }

    /// Notes that a slot is not heard on this connection any more, and is to be heard again at once.
    fn lose(&mut self, slot: Slot, subscriber: SubscriberId, now: Instant) {
        if self.subscriptions.lose(slot, Some(subscriber), None, |_| now) {
            self.lost.insert(slot);
            // The client asks now, and once more when it hears again.
            self.note_change(slot, now);
        }
    }

    /// Notes that a slot cannot be heard for now.
    fn refuse(&mut self, slot: Slot, subscriber: Option<SubscriberId>, error: Error, due: impl FnOnce(u32) -> Instant) {
        if self.subscriptions.lose(slot, subscriber, Some(error), due) {
            self.lost.insert(slot);
        }
    }

    /// Has the client ask about the keys of a slot soon.
    fn note_change(&mut self, slot: Slot, now: Instant) {
        self.changed.insert(slot);
        self.tell_at.get_or_insert(now + GATHER);
    }

    /// Logs once that the client polls, if the client cannot hear until somebody intervenes.
    fn warn(&mut self, error: &Error) {
        if !error.is_transient() && !std::mem::replace(&mut self.has_warned, true) {
            log::warn!(HAND_OVER, "cannot subscribe, falling back to polling: {error}");
        }
    }

    /// Ends the subscriptions that no tenure needs any more, and closes the connections that have none left.
    fn look(&mut self, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_FOR_IDLE;
        let idle = self.subscriptions.take_idle(now);
        let forgotten: HashSet<_> = idle.iter().copied().collect();
        // If one of these slots is heard again later, there is no loss to tell of.
        self.lost.retain(|slot| !forgotten.contains(slot));
        self.detours.retain(|slot, _| !forgotten.contains(slot));
        for mut subscriber in std::mem::take(&mut self.subscribers) {
            if !subscriber.slots.is_empty() {
                // A connection whose last slot goes here is closed at the next look, when it has none.
                let ended = subscriber.unsubscribe(&idle, &self.subscriptions.client);
                self.keep(subscriber, ended, now);
            }
        }
    }

    /// Subscribes the slots that are due, each at its owner. Returns when the next ones are due.
    fn subscribe(&mut self, now: Instant) -> Option<Instant> {
        // The order matters. The new owners come first: a slot that leaves its connection is due at once, and is subscribed in this same
        // call. Then come the connections that were opened meanwhile, which are not used for slots that have another owner by now.
        self.follow_owners(now);
        for opened in self.subscriptions.take_opened() {
            self.take_subscriber(opened, now);
        }
        // The slots are grouped by their owners, so that each node is sent one write.
        let mut by_owner: HashMap<Place, (Arc<Node>, Vec<Slot>)> = HashMap::new();
        for slot in self.subscriptions.take_due(now) {
            // The owner is that of the newest map, and not of `self.view`: another thread may have followed a `MOVED` since then.
            match self.cluster.map.owner(slot) {
                Some(node) => {
                    let place = node.transport.endpoint().address.place.clone();
                    by_owner.entry(place).or_insert_with(|| (node, Vec::new())).1.push(slot);
                }
                // No node owns the slot. The threads that wait for it are told so at once, and poll, which fails for the same reason. The slot is
                // tried again after pauses that grow.
                None => {
                    self.cluster.refresher.want();
                    let error = self.cluster.unowned(slot);
                    self.refuse(slot, None, error, |failures| now + SUBSCRIBE_AGAIN.after(failures));
                }
            }
        }
        for (place, (node, slots)) in by_owner {
            self.subscribe_at(place, &node, slots, now);
        }
        // A node that hangs does not answer, and its connection does not break. Its slots may have a new owner, which only the other nodes can
        // name. So a map is asked for as soon as a node is slow, long before its connection counts as broken.
        let slow_at = self.slow_at();
        let ask_at = self.cooldowns.ask_for_map(now, slow_at.is_some_and(|at| at <= now), || {
            self.cluster.refresher.want();
        });
        [self.subscriptions.next_due(), ask_at, slow_at.filter(|at| *at > now)].into_iter().flatten().min()
    }

    /// Returns the moment from which a place keeps the client waiting, because its connect, or an answer on its connection, takes long.
    fn slow_at(&self) -> Option<Instant> {
        // A connect counts like an answer that is due: if the machine is gone, the connect lasts for its whole time-out.
        let connects = self.pending.values().map(|pending| pending.since);
        let answers = self.subscribers.iter().filter_map(Subscriber::owes_since);
        connects.chain(answers).min().map(|since| since + ASK_FOR_MAP)
    }

    /// Subscribes slots at their owner, now or when it is connected.
    fn subscribe_at(&mut self, place: Place, node: &Arc<Node>, slots: Vec<Slot>, now: Instant) {
        // There is one listening connection to each node that takes slots. It is found by the node's pointer and not by its place: a node that
        // was made again may be another server, on which nothing is subscribed yet.
        let takes_slots = |subscriber: &Subscriber| is_same(&subscriber.node, node) && !subscriber.gives_slots_away;
        if let Some(at) = self.subscribers.iter().position(takes_slots) {
            let mut subscriber = self.subscribers.swap_remove(at);
            self.subscriptions.ask(&slots, subscriber.id);
            let subscribed = subscriber.subscribe(&slots, &self.subscriptions.client);
            self.keep(subscriber, subscribed, now);
        // A connect to the node is under way: the slots wait for it.
        } else if let Some(pending) = self.pending.get_mut(&place).filter(|pending| is_same(&pending.node, node)) {
            self.subscriptions.ask(&slots, pending.subscriber);
            pending.slots.extend(slots);
        // The place is cooling down after a failed connect: the slots fail with the error of that connect.
        } else if let Some((until, error)) = self.cooldowns.of(&place, now) {
            slots.into_iter().for_each(|slot| self.refuse(slot, None, error.clone(), |_| until));
        } else {
            self.last_subscriber.0 += 1;
            let subscriber = self.last_subscriber;
            if let Err(cause) = self.subscriptions.open(subscriber, place.clone(), node.transport.endpoint().clone()) {
                let message = format!("the operating system refused the thread dlock-connect: {cause}");
                // This counts as a failed connect: without a pause, a process at its limit of threads would try again in each round of the thread.
                let error = Error::backend_caused_by(BackendFailure::NotExecuted, message, cause);
                let until = self.cooldowns.fail(place, error.clone(), now);
                slots.into_iter().for_each(|slot| self.refuse(slot, None, error.clone(), |_| until));
                return;
            }
            self.subscriptions.ask(&slots, subscriber);
            // The thread waits for at most one connect to a place. An earlier connect leads to the node before that was made again: its slots are due
            // at once. If it still succeeds, its number is not the expected one, and the connection is closed.
            let earlier = self
                .pending
                .insert(place, OpeningConnection { subscriber, node: Arc::downgrade(node), slots, since: now });
            if let Some(OpeningConnection { subscriber, slots, .. }) = earlier {
                slots.into_iter().for_each(|slot| self.lose(slot, subscriber, now));
            }
        }
    }

    /// Takes in the outcome of a connect.
    fn take_subscriber(&mut self, opened: Opened, now: Instant) {
        let Opened { subscriber, place, link } = opened;
        // If no slot waits for this connect any more, the map has changed meanwhile, and the slots have another owner.
        let Some(pending) = self.pending.remove(&place) else { return };
        if pending.subscriber != subscriber {
            // This is an earlier connect to the same place. The one that is waited for is still under way.
            self.pending.insert(place, pending);
            return;
        }
        let OpeningConnection { node, slots, .. } = pending;
        match link {
            Ok(link) => {
                let mut subscriber =
                    Subscriber::new(subscriber, place, node, link, self.cluster.map.nodes.reach.io_timeout);
                let subscribed = subscriber.subscribe(&slots, &self.subscriptions.client);
                self.keep(subscriber, subscribed, now);
            }
            Err(error) => {
                self.cluster.refresher.want();
                self.warn(&error);
                let until = self.cooldowns.fail(place, error.clone(), now);
                slots.into_iter().for_each(|slot| self.refuse(slot, Some(subscriber), error.clone(), |_| until));
            }
        }
    }

    /// Leaves the slots that have another owner by a new map, because the earlier owner may never answer again. These slots are due at once.
    /// So are the slots that could not be subscribed at their earlier owner.
    fn follow_owners(&mut self, now: Instant) {
        let view = self.cluster.map.view();
        if Arc::ptr_eq(&view, &self.view) {
            return;
        }
        // A view is never changed, only replaced. So the comparison of two pointers, which is made for each message, tells whether the map
        // has changed.
        let before = std::mem::replace(&mut self.view, Arc::clone(&view));
        for mut subscriber in std::mem::take(&mut self.subscribers) {
            let gone: Vec<_> =
                subscriber.slots.iter().copied().filter(|slot| !owns(&view, &subscriber.node, *slot)).collect();
            // No `SUNSUBSCRIBE` is sent: the earlier owner would refuse it, and a node that hangs would keep its slots until it answers (rule 1).
            subscriber.leave(&gone);
            // These slots count as lost: a grant that the new owner has published since then found no subscriber, so the client asks.
            gone.into_iter().for_each(|slot| self.lose(slot, subscriber.id, now));
            // Behind the name of a node that was made again there may be another server.
            if view.nodes.iter().all(|node| {
                is_same(&subscriber.node, node) || node.transport.endpoint().address.place != subscriber.place
            }) {
                // The connection stays even without slots: a slot may come back before the next look for idle connections closes it.
                self.subscribers.push(subscriber);
            } else {
                self.cooldowns.end(&subscriber.place);
            }
        }
        let mut moved = Vec::new();
        // Connects lose their slots in the same way. A connect without slots is forgotten, and its outcome is dropped when it comes.
        self.pending.retain(|_, pending| {
            let OpeningConnection { subscriber, node, slots, .. } = pending;
            let gone = |slot: &mut Slot| !owns(&view, node, *slot);
            moved.extend(slots.extract_if(.., gone).map(|slot| (slot, *subscriber)));
            !slots.is_empty()
        });
        moved.into_iter().for_each(|(slot, subscriber)| self.lose(slot, subscriber, now));
        // A place that has left the map may come back as another server, about which the earlier failures say nothing.
        self.cooldowns.keep(view.slots.places());
        // A slot that could not be subscribed at its earlier owner has a pause, which was meant for that owner. The new owner is tried at once.
        let owner = |view: &MapView, slot| view.owner(slot).map(Arc::as_ptr);
        self.subscriptions.hasten(|slot| owner(&view, slot) != owner(&before, slot), now);
    }
}

impl Drop for ClusterInbox {
    fn drop(&mut self) {
        self.subscriptions.close();
        self.cluster.listeners.forget(&self.subscriptions);
    }
}

/// Returns `true` if this is the node.
fn is_same(weak: &Weak<Node>, node: &Arc<Node>) -> bool {
    std::ptr::eq(weak.as_ptr(), Arc::as_ptr(node))
}

/// Returns `true` if this node owns the slot.
fn owns(view: &MapView, node: &Weak<Node>, slot: Slot) -> bool {
    view.owner(slot).is_some_and(|owner| is_same(node, owner))
}
