//! Unit tests of `src/store/redis/cluster/map.rs`.

use super::*;
use ::redis::Value;

fn place(port: u16) -> Place {
    Place::Tcp { host: "127.0.0.1".to_owned(), port, tls: false }
}

/// A map in which one node owns everything.
fn map(port: i64) -> SlotMap {
    let node = Value::Array(vec![Value::Nil, Value::Int(port)]);
    let reply = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_383), node])]);
    SlotMap::read(&reply, MapSource { by: &place(port as u16), map: None }).expect("a map")
}

#[test]
fn a_map_that_was_asked_for_before_a_slot_moved_does_not_move_it_back() {
    let known = Map::new(Reach::nowhere(), None, Arc::default());
    let owner = |slot| known.owner(slot).map(|node| node.transport.endpoint().address.place.clone());
    let changes = || known.changes.number();
    assert!(!known.is_known());
    assert!(known.install(&map(1), Instant::now()) && known.is_known());
    let asked_at = Instant::now();
    known.moved(7, &place(2));
    // Two answers under way, by nodes that do not know it yet.
    for _ in 0..2 {
        assert!(!known.install(&map(1), asked_at));
        assert_eq!([6, 7].map(owner), [1, 2].map(|port| Some(place(port))));
    }
    assert_eq!(changes(), 0, "no node has lost its last slot");
    // Asked for later, it is news.
    assert!(known.install(&map(1), Instant::now()));
    assert_eq!([6, 7].map(owner), [1, 1].map(|port| Some(place(port))));
    assert_eq!(changes(), 1);
}
