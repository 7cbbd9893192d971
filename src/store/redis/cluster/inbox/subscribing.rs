//! When each slot is subscribed, and on which connection.

use super::super::map::MapView;
use super::super::timing::{ASK_FOR_MAP, SUBSCRIBE_AGAIN};
use super::ClusterInbox;
use super::slot_subscriptions::Opened;
use super::subscriber::{Subscriber, SubscriberId};
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::address::Place;
use crate::store::redis::node::Node;
use crate::store::redis::script::keys::Slot;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A connection that is being opened.
pub(super) struct OpeningConnection {
    subscriber: SubscriberId,
    node: Weak<Node>,
    slots: Vec<Slot>,
    since: Instant,
}

impl ClusterInbox {
    /// Subscribes the slots that are due, each at its owner. Returns when the next ones are due.
    pub(super) fn subscribe(&mut self, now: Instant) -> Option<Instant> {
        // The order matters. The new owners come first: a slot that leaves its connection is due at once, and is subscribed in this same
        // call. Then come the connections that were opened meanwhile, which are not used for slots that have another owner by now.
        self.follow_owners(now);
        for opened in self.subscriptions.take_opened() {
            self.take_subscriber(opened, now);
        }
        // The slots are grouped by their owners, so that each node is sent one write.
        let mut by_owner: HashMap<Place, (Arc<Node>, Vec<Slot>)> = HashMap::new();
        for slot in self.subscriptions.take_due(now) {
            // The newest map is asked, and not `self.view`: another thread may have followed a `MOVED` since then.
            match self.cluster.map.owner(slot) {
                Some(node) => {
                    let place = node.transport.endpoint().address.place.clone();
                    by_owner.entry(place).or_insert_with(|| (node, Vec::new())).1.push(slot);
                }
                // No node owns the slot. The threads that wait for it are told so at once. They poll, which fails for the same reason. The
                // slot is tried again after a pause that grows.
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

    /// Returns from when on a place keeps us waiting: its connect, or an answer on its connection, takes long.
    fn slow_at(&self) -> Option<Instant> {
        // A connect counts like a missing answer: if the machine is gone, the connect lasts for its whole time-out.
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
                // As a place that takes no connection: without a pause, a process at its limit of threads would try at each turn of this
                // loop.
                let error = Error::backend_caused_by(BackendFailure::NotExecuted, message, cause);
                let until = self.cooldowns.fail(place, error.clone(), now);
                slots.into_iter().for_each(|slot| self.refuse(slot, None, error.clone(), |_| until));
                return;
            }
            self.subscriptions.ask(&slots, subscriber);
            // At most one connect a place is waited for. What was to go on an earlier one, to the node before it was made again, is due at
            // once; if that connect still ends, its number is no longer the one that is expected, and it is closed.
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
        // If no slot waits for this connect any more, the map has changed meanwhile, and its slots have another owner.
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
            // Without an `SUNSUBSCRIBE`: the earlier owner would refuse it, and a node that hangs would keep its slots until it answers
            // (rule 1).
            subscriber.leave(&gone);
            // Lost, not only moved: a grant that was published at the new owner since then has found no subscriber, so the client asks.
            gone.into_iter().for_each(|slot| self.lose(slot, subscriber.id, now));
            // Behind the name of a node that was made again there may be another server.
            if view.nodes.iter().all(|node| {
                is_same(&subscriber.node, node) || node.transport.endpoint().address.place != subscriber.place
            }) {
                // It stays even without slots: the next look for idle connections closes it, and a slot may come back before that.
                self.subscribers.push(subscriber);
            } else {
                self.cooldowns.end(&subscriber.place);
            }
        }
        let mut moved = Vec::new();
        // The same for connects. One that has no slot left is forgotten, and its outcome is dropped when it comes.
        self.pending.retain(|_, pending| {
            let OpeningConnection { subscriber, node, slots, .. } = pending;
            let gone = |slot: &mut Slot| !owns(&view, node, *slot);
            moved.extend(slots.extract_if(.., gone).map(|slot| (slot, *subscriber)));
            !slots.is_empty()
        });
        moved.into_iter().for_each(|(slot, subscriber)| self.lose(slot, subscriber, now));
        // A place that has left the map may come back as another server. What it refused before says nothing about that one.
        self.cooldowns.keep(view.slots.places());
        // A slot that could not be subscribed at its earlier owner waits out a pause that was meant for that owner. It does not for the new
        // one.
        let owner = |view: &MapView, slot| view.owner(slot).map(Arc::as_ptr);
        self.subscriptions.hasten(|slot| owner(&view, slot) != owner(&before, slot), now);
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
