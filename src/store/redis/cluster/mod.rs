//! The store on a Redis Cluster: each call goes to the node that owns its key's slot, wherever that is.
//!
//! | file | holds |
//! |---|---|
//! | `url.rs` | the URL of a Cluster |
//! | `slots.rs` | which node owns each slot |
//! | `redirect.rs` | what a reply says about the way of its call |
//! | `nodes.rs` | the nodes, each with its connections |
//! | `core.rs` | the Cluster: what every step is given |
//! | `refresh.rs` | asks the nodes for a new map |
//! | `follow.rs` | a call from its first node to the one that executes it |
//! | `inbox/` | the messages of each slot |
//! | `posting.rs` | calls whose replies nobody waits for, and commands without a key |
//!
//! A key and all that a lock has beside it share a slot, and so does its fence: no script touches two slots. While a slot moves, a script
//! with several keys runs only where all of them are, so no second fence can begin.
//!
//! The plain attempt is not made here, and the fence's slack is always zero: trust in a number belongs to one connection and one slot.

mod core;
mod follow;
mod inbox;
mod listing;
mod nodes;
mod posting;
mod redirect;
mod refresh;
mod slots;
pub(super) mod url;

pub(super) use self::core::{Cluster, Settings};
pub(super) use nodes::Reach;

/// Reads a reply as `CLUSTER SLOTS` and as a redirection, for the fuzz target.
#[cfg(any(test, fuzzing))]
pub(super) fn read(reply: &::redis::Value) {
    use crate::store::redis::net::address::Place;
    let by = Place::Tcp { host: "asked".to_owned(), port: 6379, tls: false };
    if let Some(map) = slots::SlotMap::read(reply, slots::Told { by: &by, map: None }) {
        assert!((1..=slots::MOST_PLACES).contains(&map.places().len()));
        let mut owns = vec![false; map.places().len()];
        (0..=16_383).filter_map(|slot| map.owner(slot)).for_each(|owner| owns[owner] = true);
        assert!(owns.iter().all(|owns| *owns), "{map:?}");
    }
    if let redirect::Said::Moved { host, port } | redirect::Said::Ask { host, port } = redirect::said(reply) {
        let place = slots::Told { by: &by, map: None }.place(host, port);
        assert!(place.is_some() || host == "?" || port == 0);
    }
}
