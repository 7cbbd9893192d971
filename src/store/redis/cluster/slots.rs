//! Which node owns each slot, as a node says in its reply to `CLUSTER SLOTS`. This file only reads the reply, and does no I/O.
//!
//! ```text
//!   reply = [range…]     range = [first slot, last slot, master, replica…]     master = [host, port, id, …]
//! ```
//!
//! A host that is empty or nil stands for the host that was asked. A node that does not know its host says `?`; its slots have no owner
//! here, and another node is asked about them.
//!
//! A reply is refused as a whole if it has more ranges than there are slots, or more nodes than [`MOST_PLACES`]. A node that is named, but
//! whose ranges are all covered by later ranges, owns nothing and is left out.
//!
//! A map has one entry for each slot, 32 KiB in all. So a call finds the owner of its slot by one array access. A map never changes once it
//! is made, so it is compared and replaced without a mutex of its own.
//!
//! One node may lag behind the others. So a newer map is combined with the present one ([`follow`](SlotMap::follow)). A slot to which the
//! newer map gives no owner keeps its present owner. So does a slot for which another node has said `MOVED` since the question for the map
//! was sent.

use crate::store::redis::net::address::Place;
use crate::store::redis::net::hosts::{AddressMap, mapped};
use crate::store::redis::script::keys::{SLOTS, Slot};
use ::redis::Value;

/// The index of the owner of a slot that nobody owns.
const NOBODY: u16 = u16::MAX;

/// The most nodes that are believed to own slots. Redis advises against more than a thousand.
pub(super) const MOST_PLACES: usize = 1024;

/// What is needed to read the addresses that a node tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSource<'a> {
    /// The node that tells them.
    pub(crate) by: &'a Place,
    pub(crate) map: Option<&'a AddressMap>,
}

impl MapSource<'_> {
    /// Returns the place by which this machine reaches what the node names; `None` if it names nothing.
    pub(crate) fn place(&self, host: &str, port: u16) -> Option<Place> {
        let Place::Tcp { host: asked, tls, .. } = self.by else { return None };
        let host = if host.is_empty() { asked.as_str() } else { host };
        if host == "?" || port == 0 {
            return None;
        }
        let (host, port) = mapped(self.map, host.to_owned(), port);
        Some(Place::Tcp { host, port, tls: *tls })
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// For each slot, the index of its owner.
    owners: Box<[u16]>,
    places: Vec<Place>,
}

impl SlotMap {
    /// A map in which no slot has an owner.
    pub(crate) fn empty() -> Self {
        Self { owners: vec![NOBODY; SLOTS].into(), places: Vec::new() }
    }

    /// Reads the reply to `CLUSTER SLOTS`. Returns `None` if it is no such reply, or no slot has an owner.
    pub(crate) fn read(reply: &Value, source: MapSource<'_>) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        // The program that answers may not be Redis. A limit before each loop bounds the time that its reply can cost.
        if ranges.len() > SLOTS {
            return None;
        }
        let mut map = Self::empty();
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            // If a range ends before it begins, or beyond the last slot, the whole reply is refused: a map of half a reply would send calls to wrong
            // nodes.
            let owned = map.owners.get_mut(first..=last).filter(|owned| !owned.is_empty())?;
            let [host, Value::Int(port), ..] = master.as_slice() else { return None };
            let host = match host {
                Value::Nil => "",
                Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
                Value::SimpleString(text) => text,
                _ => return None,
            };
            // The replicas behind the master are left out: no call of a lock may go to a replica, because its data may be old.
            if let Some(place) = source.place(host, u16::try_from(*port).ok()?) {
                owned.fill(index(&mut map.places, place));
            }
            if map.places.len() > MOST_PLACES {
                return None;
            }
        }
        // A later range may have covered all slots of a node. The map names owners only: in a comparison of two maps, such a node would count as
        // lost.
        map.drop_idle();
        (!map.places.is_empty()).then_some(map)
    }

    /// Leaves out the places that own no slot.
    fn drop_idle(&mut self) {
        let mut new = vec![NOBODY; self.places.len()];
        let mut places = Vec::new();
        for owner in self.owners.iter_mut().filter(|owner| **owner != NOBODY) {
            let at = usize::from(*owner);
            if new[at] == NOBODY {
                new[at] = index(&mut places, self.places[at].clone());
            }
            *owner = new[at];
        }
        self.places = places;
    }

    /// Returns this map combined with the earlier one. `keeps` returns whether the owner of a slot in the earlier map is newer.
    pub(crate) fn follow(mut self, earlier: &Self, keeps: impl Fn(Slot) -> bool) -> Self {
        for slot in 0..SLOTS {
            // A node that is cut off may not know the new owner of a slot, and in a Cluster that is down some slots have no owner. The earlier owner
            // is then the best guess: it redirects the call, or it comes back.
            let Some(owner) = earlier.owner(slot as Slot) else { continue };
            if self.owners[slot] == NOBODY || keeps(slot as Slot) {
                self.owners[slot] = index(&mut self.places, earlier.places[owner].clone());
            }
        }
        self.drop_idle();
        self
    }

    /// Returns the index of the owner of a slot in [`places`](Self::places).
    pub(crate) fn owner(&self, slot: Slot) -> Option<usize> {
        let owner = self.owners[usize::from(slot)];
        (owner != NOBODY).then(|| usize::from(owner))
    }

    /// Returns the nodes that own a slot. After [`with`](Self::with), some may own none.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the map with another owner of one slot.
    pub(crate) fn with(&self, slot: Slot, place: Place) -> Self {
        let mut map = self.clone();
        map.owners[usize::from(slot)] = index(&mut map.places, place);
        map
    }

    /// Returns `true` if a node of this map is not in the newer one: a replica was promoted in its place, or the node gave its slots away.
    pub(crate) fn has_lost_a_node(&self, newer: &Self) -> bool {
        self.places.iter().any(|place| !newer.places.contains(place))
    }
}

/// The index of a place, which is added if it is new.
fn index(places: &mut Vec<Place>, place: Place) -> u16 {
    let at = places.iter().position(|known| *known == place).unwrap_or_else(|| {
        places.push(place);
        places.len() - 1
    });
    // A Cluster has at most as many masters as slots.
    u16::try_from(at).unwrap_or(NOBODY)
}

impl std::fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotMap").field("places", &self.places).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/slots.rs"]
mod tests;
