//! Unit tests of `src/store/redis/cluster/slots.rs`.

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
    SlotMap::read(&Value::Array(ranges), MapSource { by: &place("asked", 7), map: None })
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
    assert_eq!(SlotMap::read(&Value::Nil, MapSource { by: &place("asked", 7), map: None }), None);
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
    assert_eq!([0, 51, 300].map(|slot| owner(&map, slot).cloned()), [0, 1, 0].map(|n| Some(map.places()[n].clone())));
}

#[test]
fn a_newer_map_overrules_neither_what_it_does_not_know_nor_what_is_newer_still() {
    let earlier =
        read(vec![range(0, 99, text("a"), 1), range(100, 199, text("b"), 2)]).expect("a map").with(7, place("c", 3));
    // It knows neither the second half, nor that slot 7 has moved. All else has moved to another node.
    let source = read(vec![range(0, 99, text("d"), 4)]).expect("a map");
    let map = source.follow(&earlier, |slot| slot == 7);
    assert_eq!(
        [0, 7, 99, 150, 200].map(|slot| owner(&map, slot).cloned()),
        [Some(place("d", 4)), Some(place("c", 3)), Some(place("d", 4)), Some(place("b", 2)), None]
    );
    assert!(earlier.has_lost_a_node(&map), "the first one owns nothing now");
    let source = read(vec![range(0, 16383, text("a"), 1)]).expect("a map");
    assert_eq!(source.clone().follow(&earlier, |_| false), source);
    assert_eq!(source.clone().follow(&SlotMap::empty(), |_| true), source);
}

#[test]
fn addresses_are_mapped_with_the_host_that_was_asked_in_the_place_of_none() {
    let map = AddressMap(Arc::new(|host: &str, port| (format!("{host}.outside"), port + 1)));
    let by = place("asked", 7);
    let source = MapSource { by: &by, map: Some(&map) };
    assert_eq!(source.place("10.0.0.1", 7000), Some(place("10.0.0.1.outside", 7001)));
    assert_eq!(source.place("", 7000), Some(place("asked.outside", 7001)));
    assert_eq!(source.place("?", 7000), None);
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
