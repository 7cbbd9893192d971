//! Which slot is subscribed where, and when.

use super::super::map::MapView;
use super::super::timing::{ASK_FOR_MAP, SUBSCRIBE_AGAIN};
use super::ClusterInbox;
use super::slot_subscriptions::Opened;
use super::subscriber::{Subscriber, SubscriberId};
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::address::Place;
use crate::store::redis::node::Node;
use crate::store::redis::script::slot::Slot;
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
        self.follow_owners(now);
        for opened in self.subscriptions.take_opened() {
            self.take_subscriber(opened, now);
        }
        let mut by_owner: HashMap<Place, (Arc<Node>, Vec<Slot>)> = HashMap::new();
        for slot in self.subscriptions.take_due(now) {
            match self.cluster.map.owner(slot) {
                Some(node) => {
                    let place = node.transport.endpoint().address.place.clone();
                    by_owner.entry(place).or_insert_with(|| (node, Vec::new())).1.push(slot);
                }
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
        let slow_at = self.slow_at();
        let ask_at = self.cooldowns.ask_for_map(now, slow_at.is_some_and(|at| at <= now), || {
            self.cluster.refresher.want();
        });
        [self.subscriptions.next_due(), ask_at, slow_at.filter(|at| *at > now)].into_iter().flatten().min()
    }

    /// Returns from when on a place keeps us waiting: its connect, or an answer on its connection, takes long.
    fn slow_at(&self) -> Option<Instant> {
        let connects = self.pending.values().map(|pending| pending.since);
        let answers = self.subscribers.iter().filter_map(Subscriber::owes_since);
        connects.chain(answers).min().map(|since| since + ASK_FOR_MAP)
    }

    /// Subscribes slots at their owner, now or when it is connected.
    fn subscribe_at(&mut self, place: Place, node: &Arc<Node>, slots: Vec<Slot>, now: Instant) {
        if let Some(at) = self.subscribers.iter().position(|subscriber| is_same(&subscriber.node, node)) {
            let mut subscriber = self.subscribers.swap_remove(at);
            self.subscriptions.ask(&slots, subscriber.id);
            let subscribed = subscriber.subscribe(&slots, &self.subscriptions.client);
            self.keep(subscriber, subscribed, now);
        } else if let Some(pending) = self.pending.get_mut(&place).filter(|pending| is_same(&pending.node, node)) {
            self.subscriptions.ask(&slots, pending.subscriber);
            pending.slots.extend(slots);
        } else if let Some((until, error)) = self.cooldowns.of(&place, now) {
            slots.into_iter().for_each(|slot| self.refuse(slot, None, error.clone(), |_| until));
        } else {
            self.last_subscriber.0 += 1;
            let subscriber = self.last_subscriber;
            if let Err(cause) = self.subscriptions.open(subscriber, place.clone(), node.transport.endpoint().clone()) {
                let message = format!("the operating system refused the thread dlock-connect: {cause}");
                let error = Error::backend_caused_by(BackendFailure::NotExecuted, message, cause);
                let until = self.cooldowns.fail(place, error.clone(), now);
                slots.into_iter().for_each(|slot| self.refuse(slot, None, error.clone(), |_| until));
                return;
            }
            self.subscriptions.ask(&slots, subscriber);
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
        // Otherwise the slots have another owner by now.
        let Some(pending) = self.pending.remove(&place) else { return };
        if pending.subscriber != subscriber {
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

    /// Leaves the slots that have another owner by a new map: the earlier one may be silent for ever. They are due at once, as are those
    /// that could not be subscribed at the earlier one.
    fn follow_owners(&mut self, now: Instant) {
        let view = self.cluster.map.view();
        if Arc::ptr_eq(&view, &self.view) {
            return;
        }
        let before = std::mem::replace(&mut self.view, Arc::clone(&view));
        for mut subscriber in std::mem::take(&mut self.subscribers) {
            let gone: Vec<_> =
                subscriber.slots().iter().copied().filter(|slot| !owns(&view, &subscriber.node, *slot)).collect();
            subscriber.leave(&gone);
            gone.into_iter().for_each(|slot| self.lose(slot, subscriber.id, now));
            // Behind the name of a node that was made again there may be another server.
            if view.nodes.iter().all(|node| {
                is_same(&subscriber.node, node) || node.transport.endpoint().address.place != subscriber.place
            }) {
                self.subscribers.push(subscriber);
            } else {
                self.cooldowns.end(&subscriber.place);
            }
        }
        let mut moved = Vec::new();
        self.pending.retain(|_, pending| {
            let OpeningConnection { subscriber, node, slots, .. } = pending;
            let gone = |slot: &mut Slot| !owns(&view, node, *slot);
            moved.extend(slots.extract_if(.., gone).map(|slot| (slot, *subscriber)));
            !slots.is_empty()
        });
        moved.into_iter().for_each(|(slot, subscriber)| self.lose(slot, subscriber, now));
        self.cooldowns.keep(view.slots.places());
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
