//! Which node owns each slot, as a node says in its reply to `CLUSTER SLOTS`. Pure data: nothing here asks anybody.
//!
//! ```text
//!   reply = [range…]     range = [first slot, last slot, master, replica…]     master = [host, port, id, …]
//! ```
//!
//! A host that is empty or nil is the host that was asked. A node that does not know its host says `?`; its slots have no owner here, and
//! another node is asked about them.
//!
//! A reply is refused as a whole if it has more ranges than there are slots, or more nodes than [`MOST_PLACES`]. A node that is named and
//! owns nothing, because a later range covers its own, is left out.
//!
//! The whole map is read at once and costs 32 KiB: a call finds the owner of its slot with one look, and a map can be compared and exchanged
//! without a mutex.
//!
//! One node may lag behind the others. So a newer map [`follows`](SlotMap::follow) the present one: a slot that it gives to nobody keeps its
//! owner, and so does one of which another node has said `MOVED` since the question for the map was sent.

use crate::store::redis::net::address::Place;
use crate::store::redis::net::hosts::{AddressMap, mapped};
use crate::store::redis::script::slot::{SLOTS, Slot};
use ::redis::Value;

/// The index of the owner of a slot that nobody owns.
const NOBODY: u16 = u16::MAX;

/// The most nodes that are believed to own slots. Redis advises against more than a thousand.
pub(super) const MOST_PLACES: usize = 1024;

/// How the addresses that a node tells are understood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// The node that tells them.
    pub(crate) by: &'a Place,
    pub(crate) map: Option<&'a AddressMap>,
}

impl Told<'_> {
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

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// For each slot, the index of its owner.
    owners: Box<[u16]>,
    places: Vec<Place>,
}

impl SlotMap {
    /// A map in which nobody owns anything.
    pub(crate) fn empty() -> Self {
        Self { owners: vec![NOBODY; SLOTS].into(), places: Vec::new() }
    }

    /// Reads the reply to `CLUSTER SLOTS`. Returns `None` if it is no such reply, or no slot has an owner.
    pub(crate) fn read(reply: &Value, told: Told<'_>) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
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
            let owned = map.owners.get_mut(first..=last).filter(|owned| !owned.is_empty())?;
            let [host, Value::Int(port), ..] = master.as_slice() else { return None };
            let host = match host {
                Value::Nil => "",
                Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
                Value::SimpleString(text) => text,
                _ => return None,
            };
            if let Some(place) = told.place(host, u16::try_from(*port).ok()?) {
                owned.fill(index(&mut map.places, place));
            }
            if map.places.len() > MOST_PLACES {
                return None;
            }
        }
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

    /// Returns this map, as it is taken in after an earlier one: `keeps` tells the slots whose owner in the earlier map is newer.
    pub(crate) fn follow(mut self, earlier: &Self, keeps: impl Fn(Slot) -> bool) -> Self {
        for slot in 0..SLOTS {
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

    /// Returns `true` if a node of this map is in the newer one no more: a replica was promoted in its place, or it gave its slots away.
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
mod tests {
    use super::*;
    use std::sync::Arc;

    fn place(host: &str, port: u16) -> Place {
        Place::Tcp { host: host.to_owned(), port, tls: false }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node(text("replica"), 1)])
    }

    fn read(ranges: Vec<Value>) -> Option<SlotMap> {
        SlotMap::read(&Value::Array(ranges), Told { by: &place("asked", 7), map: None })
    }

    fn owner(map: &SlotMap, slot: Slot) -> Option<&Place> {
        map.owner(slot).map(|at| &map.places()[at])
    }

    #[test]
    fn each_slot_has_the_owner_of_its_range() {
        let map = read(vec![
            range(0, 5460, text("10.0.0.1"), 7000),
            range(5461, 10922, Value::Nil, 7001),
            range(10923, 10923, text("?"), 7002),
            range(10924, 16000, text(""), 7003),
            range(16383, 16383, text("10.0.0.1"), 7000),
        ]);
        let map = map.expect("a map");
        for (slot, expected) in [
            (0, Some(place("10.0.0.1", 7000))),
            (5460, Some(place("10.0.0.1", 7000))),
            (5461, Some(place("asked", 7001))),
            (10923, None),
            (16000, Some(place("asked", 7003))),
            (16001, None),
            (16383, Some(place("10.0.0.1", 7000))),
        ] {
            assert_eq!(owner(&map, slot), expected.as_ref(), "{slot}");
        }
        assert_eq!(map.places().len(), 3);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for ranges in [
            vec![],
            vec![range(0, 16383, text("?"), 7000)],
            vec![range(0, 16383, text("h"), 0)],
            vec![range(0, 16384, text("h"), 7000)],
            vec![range(-1, 3, text("h"), 7000)],
            vec![range(9, 3, text("h"), 7000), range(5, 1, text("h"), 7000)],
            vec![range(0, 9, text("h"), 7000), range(5, 4, text("h"), 7000)],
            vec![range(0, 3, text("h"), 70_000)],
            vec![range(0, 3, Value::Int(1), 7000)],
            vec![Value::Array(vec![Value::Int(0), Value::Int(3)])],
            vec![Value::Int(0)],
        ] {
            assert_eq!(read(ranges.clone()), None, "{ranges:?}");
        }
        assert_eq!(SlotMap::read(&Value::Nil, Told { by: &place("asked", 7), map: None }), None);
    }

    #[test]
    fn a_reply_beyond_all_bounds_is_refused() {
        let port = |n: i64| 1 + n % 60_000;
        let of_each = |count: i64| (0..count).map(|n| range(n % 16_384, n % 16_384, text("h"), port(n))).collect();
        assert_eq!(read(of_each(1024)).map(|map| map.places().len()), Some(1024));
        assert_eq!(read(of_each(1025)), None);
        let one = |count: i64| (0..count).map(|n| range(n % 16_384, n % 16_384, text("h"), 7)).collect();
        assert!(read(one(16_384)).is_some());
        assert_eq!(read(one(16_385)), None);
    }

    #[test]
    fn who_owns_nothing_is_left_out() {
        let map = read(vec![
            range(0, 99, text("a"), 1),
            range(0, 50, text("b"), 2),
            range(51, 200, text("c"), 3),
            range(300, 300, text("b"), 2),
        ]);
        let map = map.expect("a map");
        assert_eq!(map.places(), [place("b", 2), place("c", 3)]);
        assert_eq!(
            [0, 51, 300].map(|slot| owner(&map, slot).cloned()),
            [0, 1, 0].map(|n| Some(map.places()[n].clone()))
        );
    }

    #[test]
    fn a_newer_map_overrules_neither_what_it_does_not_know_nor_what_is_newer_still() {
        let earlier = read(vec![range(0, 99, text("a"), 1), range(100, 199, text("b"), 2)])
            .expect("a map")
            .with(7, place("c", 3));
        // It knows neither the second half, nor that slot 7 has moved. All else has moved to another node.
        let told = read(vec![range(0, 99, text("d"), 4)]).expect("a map");
        let map = told.follow(&earlier, |slot| slot == 7);
        assert_eq!(
            [0, 7, 99, 150, 200].map(|slot| owner(&map, slot).cloned()),
            [Some(place("d", 4)), Some(place("c", 3)), Some(place("d", 4)), Some(place("b", 2)), None]
        );
        assert!(earlier.has_lost_a_node(&map), "the first one owns nothing now");
        let told = read(vec![range(0, 16383, text("a"), 1)]).expect("a map");
        assert_eq!(told.clone().follow(&earlier, |_| false), told);
        assert_eq!(told.clone().follow(&SlotMap::empty(), |_| true), told);
    }

    #[test]
    fn addresses_are_mapped_with_the_host_that_was_asked_in_the_place_of_none() {
        let map = AddressMap(Arc::new(|host: &str, port| (format!("{host}.outside"), port + 1)));
        let by = place("asked", 7);
        let told = Told { by: &by, map: Some(&map) };
        assert_eq!(told.place("10.0.0.1", 7000), Some(place("10.0.0.1.outside", 7001)));
        assert_eq!(told.place("", 7000), Some(place("asked.outside", 7001)));
        assert_eq!(told.place("?", 7000), None);
    }

    #[test]
    fn one_slot_can_get_another_owner() {
        let map = read(vec![range(0, 16383, text("a"), 1)]).expect("a map");
        let moved = map.with(7, place("b", 2));
        assert_eq!((owner(&moved, 6), owner(&moved, 7)), (Some(&place("a", 1)), Some(&place("b", 2))));
        assert!(!map.has_lost_a_node(&moved), "a slot has moved");
        let back = moved.with(7, place("a", 1));
        assert!(back.has_lost_a_node(&map), "a node that owned a slot for a while owns none");
        let promoted = read(vec![range(0, 16383, text("b"), 2)]).expect("a map");
        assert!(map.has_lost_a_node(&promoted) && moved.has_lost_a_node(&promoted));
        assert!(!SlotMap::empty().has_lost_a_node(&map));
    }
}
