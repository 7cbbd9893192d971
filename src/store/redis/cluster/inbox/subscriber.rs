//! One listening connection, to the master of some slots.

use super::super::timing::SILENCE;
use crate::store::redis::net::address::Place;
use crate::store::redis::net::connector::{ReadHalf, WriteHalf};
use crate::store::redis::net::link::Link;
use crate::store::redis::net::resp::Packed;
use crate::store::redis::net::socket::Socket;
use crate::store::redis::node::Node;
use crate::store::redis::script::keys::slot_inbox_channel;
use crate::store::redis::script::keys::{Slot, slot_of};
use ::redis::{ServerError, Value};
use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Tells connections apart, also those to one place one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubscriberId(pub(super) u64);

/// See the module.
pub(super) struct Subscriber {
    pub(super) id: SubscriberId,
    pub(super) place: Place,
    /// The node as it was when the connection was opened. A node that was made again since may be another server.
    pub(super) node: Weak<Node>,
    link: Link,
    /// The slots that were subscribed here, and neither ended nor left since.
    slots: HashSet<Slot>,
    /// The slots that have another owner by a newer map. Their subscriptions are not ended from here: a node that does not own a slot
    /// answers that with `MOVED`, and has ended the subscription, or will.
    leaving: HashSet<Slot>,
    /// The commands without a reply, oldest first.
    asked: VecDeque<Asked>,
    /// Since when the server owes an answer to the oldest of them.
    owed_since: Instant,
    /// When the server last sent something.
    heard: Instant,
    pub(super) opened: Instant,
    /// Whether the server has answered a command.
    pub(super) has_answered: bool,
    /// Whether some bytes wait for room.
    is_behind: bool,
    io_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Subscribe(Slot),
    Unsubscribe(Slot),
    Ping,
}

/// What a server sends on such a connection.
#[derive(Debug, PartialEq)]
pub(super) enum ServerPush {
    Message(Vec<u8>),
    Confirmed(Slot),
    /// The server has ended a subscription by itself: it does not own the slot any more.
    Ended(Slot),
    /// It refuses a subscription.
    Refused(Slot, ServerError),
}

impl Subscriber {
    pub(super) fn new(id: SubscriberId, place: Place, node: Weak<Node>, link: Link, io_timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            id,
            place,
            node,
            link,
            slots: HashSet::new(),
            leaving: HashSet::new(),
            asked: VecDeque::new(),
            owed_since: now,
            heard: now,
            opened: now,
            has_answered: false,
            is_behind: false,
            io_timeout,
        }
    }

    pub(super) fn socket(&self) -> Arc<Socket> {
        self.link.socket()
    }

    pub(super) fn slots(&self) -> &HashSet<Slot> {
        &self.slots
    }

    /// Returns `true` if the connection must be looked at when the socket has room.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Subscribes a client's channels in some slots. The replies come later.
    pub(super) fn subscribe(&mut self, slots: &[Slot], client: &str) -> io::Result<()> {
        let mut packed = Packed::default();
        // All in one write: after a failover a client may subscribe thousands of slots at once.
        for slot in slots {
            packed.words(&["SSUBSCRIBE", &slot_inbox_channel(*slot, client)]);
            self.slots.insert(*slot);
            // It has come back before its earlier subscription was seen to end. If the server still ends that one, it counts as the end of
            // this one, and the slot is subscribed once more: rare, and never deaf.
            self.leaving.remove(slot);
            self.asked.push_back(Asked::Subscribe(*slot));
        }
        self.send(&packed)
    }

    /// Ends the subscriptions in some slots, which the server owns.
    pub(super) fn unsubscribe(&mut self, slots: &[Slot], client: &str) -> io::Result<()> {
        let mut packed = Packed::default();
        // Only what is subscribed here: a slot that has left belongs to its new owner.
        for slot in slots.iter().filter(|slot| self.slots.remove(slot)) {
            packed.words(&["SUNSUBSCRIBE", &slot_inbox_channel(*slot, client)]);
            self.asked.push_back(Asked::Unsubscribe(*slot));
        }
        if packed.replies() == 0 { Ok(()) } else { self.send(&packed) }
    }

    /// Leaves some slots to another owner.
    pub(super) fn leave(&mut self, slots: &[Slot]) {
        // They are remembered, since what the server still says of them would otherwise look like the news of a slot that it has ended.
        self.leaving.extend(slots.iter().filter(|slot| self.slots.remove(slot)));
    }

    /// Sends without waiting for room: the same thread listens to the other servers.
    fn send(&mut self, packed: &Packed) -> io::Result<()> {
        let now = Instant::now();
        // Nothing was owed before. If something was, its time goes on: a server that hangs must not get a new term with each command.
        if self.asked.len() == packed.replies() {
            self.owed_since = now;
        }
        // With no time to wait. What finds no room stays in the outbound half, and goes when the socket has room (rule 3).
        self.is_behind = !self.link.outbound.send(&packed.bytes, now)?;
        Ok(())
    }

    /// Returns since when the server owes an answer, if it does.
    pub(super) fn owes_since(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then_some(self.owed_since)
    }

    /// Returns when the connection must be looked at, even if the server is silent.
    pub(super) fn due(&self) -> Instant {
        // A server that owes an answer has the time of any command. One that owes nothing is asked to answer after a silence: a connection
        // through a firewall that has forgotten it is as silent as one without messages.
        if self.asked.is_empty() { self.heard + SILENCE } else { self.owed_since + self.io_timeout }
    }

    /// Sends a PING after a long silence. Fails if the server owes an answer for too long.
    pub(super) fn check(&mut self, now: Instant) -> io::Result<()> {
        if now < self.due() {
            return Ok(());
        }
        if !self.asked.is_empty() {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server owes an answer"));
        }
        let mut packed = Packed::default();
        packed.words(&["PING"]);
        self.asked.push_back(Asked::Ping);
        self.send(&packed)
    }

    /// Takes in what has come, and sends what has room, without waiting. What came before a failure is returned with it.
    pub(super) fn read(&mut self, client: &str) -> (Vec<ServerPush>, io::Result<()>) {
        let mut events = Vec::new();
        let read = self.read_into(&mut events, client);
        (events, read)
    }

    fn read_into(&mut self, events: &mut Vec<ServerPush>, client: &str) -> io::Result<()> {
        // First what waits for room: the server may owe its next words to that.
        if self.is_behind {
            self.is_behind = !self.link.outbound.flush(Instant::now())?;
        }
        let mut unwanted = Packed::default();
        while self.link.inbound.fill_now()? {
            let now = Instant::now();
            // Any byte is a sign of life. A server that answers thousands of subscriptions, one after another, is slow and does not hang.
            (self.heard, self.owed_since) = (now, now);
            // All replies of a chunk before the next read. What came before the connection broke is delivered, a grant for instance.
            while let Some(value) = self.link.inbound.take_reply()? {
                events.extend(self.take_in(value, &mut unwanted, client));
            }
        }
        // Once for all, after the reading: the answer to a refusal of ours may lie in the same chunk.
        if unwanted.replies() == 0 { Ok(()) } else { self.send(&unwanted) }
    }

    fn take_in(&mut self, value: Value, unwanted: &mut Packed, client: &str) -> Option<ServerPush> {
        let items = match value {
            Value::Array(items) => items,
            Value::ServerError(error) => return self.take_in_error(error),
            // RESP2 has one connection for both kinds of traffic: while something is subscribed the reply to a PING is an array, too.
            // The reply to a PING while nothing is subscribed.
            _ => {
                self.answered(Asked::Ping);
                return None;
            }
        };
        if matches!(items.first(), Some(Value::BulkString(kind)) if kind == b"pong") {
            self.answered(Asked::Ping);
            return None;
        }
        match <[Value; 3]>::try_from(items) {
            Ok([Value::BulkString(kind), Value::BulkString(_), Value::BulkString(payload)]) if kind == b"smessage" => {
                Some(ServerPush::Message(payload))
            }
            Ok([Value::BulkString(kind), Value::BulkString(channel), _]) => {
                // The channel has the tag of its slot in braces, so the slot is told without a table of names.
                let slot = slot_of(&channel);
                match kind.as_slice() {
                    b"ssubscribe" => {
                        // A confirmation counts if it was asked for and the slot is still wanted here. It may have left for another owner
                        // since.
                        if self.answered(Asked::Subscribe(slot)) && self.slots.contains(&slot) {
                            return Some(ServerPush::Confirmed(slot));
                        }
                        // Nobody here counts on this subscription.
                        if !self.leaving.contains(&slot) && !self.asked.contains(&Asked::Unsubscribe(slot)) {
                            self.slots.remove(&slot);
                            unwanted.words(&["SUNSUBSCRIBE", &slot_inbox_channel(slot, client)]);
                            self.asked.push_back(Asked::Unsubscribe(slot));
                        }
                        None
                    }
                    b"sunsubscribe" => {
                        // Redis says the same words for an end that was asked for, and for one that it has decided on itself, because the
                        // slot has moved away. The only difference is whether a command of ours is without its reply.
                        let is_reply = self.answered(Asked::Unsubscribe(slot));
                        self.leaving.remove(&slot);
                        // Only what was subscribed here and not left: the end of a slot that has another owner is what was expected.
                        (!is_reply && self.slots.remove(&slot)).then_some(ServerPush::Ended(slot))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Takes in an error. A redirection names its slot. Any other error belongs to the oldest command, as replies come in the order of their
    /// commands. An end that the server tells by itself may have counted as the reply to a `SUNSUBSCRIBE`, so that the error belongs to that
    /// command and counts for a later one: then the confirmation of the later one is no reply, and the slot is subscribed again.
    fn take_in_error(&mut self, error: ServerError) -> Option<ServerPush> {
        let at = match redirected(&error) {
            Some(slot) => {
                let names =
                    |asked: &Asked| matches!(asked, Asked::Subscribe(of) | Asked::Unsubscribe(of) if *of == slot);
                self.asked.iter().position(names)?
            }
            None => 0,
        };
        // An error that belongs to nothing is not ours to interpret.
        let asked = self.asked.remove(at)?;
        // An error is an answer, too: the connection works, and its slots are not to wait as for one that could not be opened.
        self.has_answered = true;
        match asked {
            Asked::Subscribe(slot) => {
                self.leaving.remove(&slot);
                self.slots.remove(&slot).then_some(ServerPush::Refused(slot, error))
            }
            Asked::Unsubscribe(_) | Asked::Ping => None,
        }
    }

    /// Notes the reply to a command. Returns `false` if there was none.
    fn answered(&mut self, asked: Asked) -> bool {
        let at = self.asked.iter().position(|other| *other == asked);
        // The oldest of its kind: replies to one connection come in the order of their commands.
        let is_answered = at.is_some_and(|at| self.asked.remove(at).is_some());
        self.has_answered |= is_answered;
        is_answered
    }
}

/// The slot that a redirection is about.
fn redirected(error: &ServerError) -> Option<Slot> {
    let slot = || error.details()?.split(' ').next()?.parse().ok();
    if error.code() == "MOVED" { slot() } else { None }
}

#[cfg(all(test, unix))]
#[path = "../../../../../tests/white_box/store/redis/cluster/inbox/subscriber.rs"]
mod tests;
