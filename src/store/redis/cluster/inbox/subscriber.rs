//! One listening connection, to a master that owns slots in which the client hears.

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

/// Tells connections apart, even successive connections to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubscriberId(pub(super) u64);

pub(super) struct Subscriber {
    pub(super) id: SubscriberId,
    pub(super) place: Place,
    /// The node as it was when the connection was opened. A node that was made again since may be another server.
    pub(super) node: Weak<Node>,
    link: Link,
    /// The slots that were subscribed here, and neither ended nor left since.
    pub(super) slots: HashSet<Slot>,
    /// The slots that belong to another node by a newer map. The client sends no `SUNSUBSCRIBE` for them: a node answers it with `MOVED`
    /// if it does not own the slot. The node ends such a subscription by itself, and says so.
    leaving: HashSet<Slot>,
    /// Whether the server has ended a subscription by itself. Then no further slot is subscribed here (rule 6 of the module above).
    pub(super) gives_slots_away: bool,
    /// The commands without a reply, oldest first.
    asked: VecDeque<Asked>,
    /// Since when the server owes an answer to the oldest of them.
    owed_since: Instant,
    /// When the server last sent something.
    heard: Instant,
    pub(super) opened: Instant,
    /// Whether the server has answered a command.
    pub(super) has_answered: bool,
    /// Whether some bytes wait for room. The connection must be looked at when the socket has room.
    pub(super) is_behind: bool,
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
            gives_slots_away: false,
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

    /// Subscribes a client's channels in some slots. The replies come later.
    pub(super) fn subscribe(&mut self, slots: &[Slot], client: &str) -> io::Result<()> {
        let mut packed = Packed::default();
        // All commands go in one write: after a failover a client may subscribe thousands of slots at once.
        for slot in slots {
            packed.words(&["SSUBSCRIBE", &slot_inbox_channel(*slot, client)]);
            self.slots.insert(*slot);
            // A slot may come back before the server has reported the end of its earlier subscription. That report is then taken for the
            // end of the new subscription, and the slot is subscribed once more. This is rare, and costs one connect. No message is missed.
            self.leaving.remove(slot);
            self.asked.push_back(Asked::Subscribe(*slot));
        }
        self.send(&packed)
    }

    /// Ends the subscriptions in some slots, which the server owns.
    pub(super) fn unsubscribe(&mut self, slots: &[Slot], client: &str) -> io::Result<()> {
        let mut packed = Packed::default();
        // Only slots that are subscribed here are unsubscribed: a slot that has left belongs to its new owner.
        for slot in slots.iter().filter(|slot| self.slots.remove(slot)) {
            packed.words(&["SUNSUBSCRIBE", &slot_inbox_channel(*slot, client)]);
            self.asked.push_back(Asked::Unsubscribe(*slot));
        }
        if packed.replies() == 0 { Ok(()) } else { self.send(&packed) }
    }

    /// Leaves some slots to another owner.
    pub(super) fn leave(&mut self, slots: &[Slot]) {
        // The slots that have left are remembered. The server still reports the ends of their subscriptions, and such a report means that a
        // subscription is lost only if the slot belongs here.
        self.leaving.extend(slots.iter().filter(|slot| self.slots.remove(slot)));
    }

    /// Sends commands. Does not wait for room in the socket, because the same thread listens to the other servers.
    fn send(&mut self, packed: &Packed) -> io::Result<()> {
        let now = Instant::now();
        // The time-out starts only if no earlier command waits for its reply. Otherwise a server that hangs would get more time with each
        // command.
        if self.asked.len() == packed.replies() {
            self.owed_since = now;
        }
        // The deadline is now, so this does not wait. Bytes for which the socket has no room stay in the outbound half, and are sent when it
        // has room (rule 3 of the module above).
        self.is_behind = !self.link.outbound.send(&packed.bytes, now)?;
        Ok(())
    }

    /// Returns since when the server owes an answer, if it does.
    pub(super) fn owes_since(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then_some(self.owed_since)
    }

    /// Returns when the connection must be looked at, even if the server is silent.
    pub(super) fn due(&self) -> Instant {
        // If a reply is due, the server has as much time for it as for any command. If none is due, a `PING` is sent after a silence: a
        // connection that a firewall has dropped is as silent as a connection without messages.
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
        self.asked.push_back(Asked::Ping);
        self.send(&Packed::of(&["PING"]))
    }

    /// Takes in what has come, and sends what has room, without waiting. What came before a failure is returned with it.
    pub(super) fn read(&mut self, client: &str) -> (Vec<ServerPush>, io::Result<()>) {
        let mut events = Vec::new();
        let read = self.read_into(&mut events, client);
        (events, read)
    }

    fn read_into(&mut self, events: &mut Vec<ServerPush>, client: &str) -> io::Result<()> {
        // Unsent bytes go first: the server may be waiting for them.
        if self.is_behind {
            self.is_behind = !self.link.outbound.flush(Instant::now())?;
        }
        let mut unwanted = Packed::default();
        while self.link.inbound.fill(None)? {
            let now = Instant::now();
            // Any byte proves that the server works, and restarts the time-out. A server that answers thousands of subscriptions one after
            // another is slow, but does not hang.
            (self.heard, self.owed_since) = (now, now);
            // All replies of a chunk are taken before the next read. So a grant that came before the connection broke is delivered.
            while let Some(value) = self.link.inbound.take_reply()? {
                events.extend(self.take_in(value, &mut unwanted, client));
            }
        }
        // All commands are sent by one write, after the reading.
        if unwanted.replies() == 0 { Ok(()) } else { self.send(&unwanted) }
    }

    fn take_in(&mut self, value: Value, unwanted: &mut Packed, client: &str) -> Option<ServerPush> {
        let items = match value {
            Value::Array(items) => items,
            Value::ServerError(error) => return self.take_in_error(error),
            // This is the reply to a `PING` while nothing is subscribed. While something is subscribed, that reply is an array: see below.
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
                        // A confirmation counts if it was asked for, and if the slot still belongs here: it may have left for another owner
                        // since then.
                        if self.answered(Asked::Subscribe(slot)) && self.slots.contains(&slot) {
                            return Some(ServerPush::Confirmed(slot));
                        }
                        // This subscription is not wanted, so it is ended. For a slot that belongs here, an earlier confirmation has counted.
                        if !self.slots.contains(&slot)
                            && !self.leaving.contains(&slot)
                            && !self.asked.contains(&Asked::Unsubscribe(slot))
                        {
                            unwanted.words(&["SUNSUBSCRIBE", &slot_inbox_channel(slot, client)]);
                            self.asked.push_back(Asked::Unsubscribe(slot));
                        }
                        None
                    }
                    b"sunsubscribe" => {
                        // Redis sends the same words for an end that was asked for, and for an end that it has decided on because the slot
                        // has moved away. It is the former if a `SUNSUBSCRIBE` for the slot still waits for its reply.
                        let is_reply = self.answered(Asked::Unsubscribe(slot));
                        self.leaving.remove(&slot);
                        // The end of a subscription is news only if the slot is subscribed here. For a slot that has left, it was expected.
                        let is_ended = !is_reply && self.slots.remove(&slot);
                        self.gives_slots_away |= is_ended;
                        is_ended.then_some(ServerPush::Ended(slot))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Takes in an error. A redirection names its slot. Any other error is taken for the reply to the oldest command, because replies come in
    /// the order of their commands. That may be the wrong command: if the server has ended a subscription by itself, that report may have
    /// been taken for the reply to a `SUNSUBSCRIBE`, whose error then counts for the next command. The next command's own confirmation is then
    /// unexpected: it ends the subscription, which is made again, or counts for a subscription that was made again before it came.
    fn take_in_error(&mut self, error: ServerError) -> Option<ServerPush> {
        let at = match redirected(&error) {
            Some(slot) => {
                let names =
                    |asked: &Asked| matches!(asked, Asked::Subscribe(of) | Asked::Unsubscribe(of) if *of == slot);
                self.asked.iter().position(names)?
            }
            None => 0,
        };
        // If no command waits for a reply, the error is ignored.
        let asked = self.asked.remove(at)?;
        // An error is an answer as well: the connection works, so its place is not cooling down.
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
        // This takes the oldest command of the kind, because replies come in the order of their commands.
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
