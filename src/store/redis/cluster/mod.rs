//! The store on a Redis Cluster: each call goes to the node that owns its key's slot, wherever that is.
//!
//! | file | holds |
//! |---|---|
//! | `url.rs` | the URL of a Cluster |
//! | `slots.rs` | which node owns each slot |
//! | `redirect.rs` | what a reply says about where its call belongs |
//! | `nodes.rs` | the nodes, each with its connections |
//! | `map.rs` | the map and its nodes, and what the nodes say of it |
//! | `refresh.rs` | asks the nodes for a new map |
//! | `core.rs` | the core of the store, which every step is given; posted calls, and commands without a key |
//! | `follow.rs` | a call from its first node to the one that executes it |
//! | `inbox/` | the messages of each slot |
//!
//! # Why it is right
//!
//! 1. *A key shares a slot with everything else that its lock has in the store*, the fence among it. So no script touches two slots. The
//!    scripts are those for one server. Three text replacements turn them into the form for a Cluster (`script/scripts.rs`).
//! 2. *A slot never gets a second fence.* All keys of a script are declared, the fence among them. While a slot moves, a script with
//!    several keys runs only on a node that has all of them, or not at all.
//! 3. *Only a call that was certainly not executed is sent again, and only by the caller that waits for it* (`redirect.rs`). So no acquire runs
//!    after its locker's release was answered. A posted release that is redirected fails as not executed, and the client repeats it.
//! 4. *A lease is extended even while its slot moves slowly.* An extension that is answered TRYAGAIN or ASK is sent again as
//!    `extend_alone.lua`, which needs only the lock's key. It cannot look at the queue, so the client assumes that others wait.
//! 5. *A replica that is promoted may lack the last writes.* So the number of the servers rises when another server than before answers at a
//!    node's place, and when a node has left the map. The client then asks about all that it holds and waits for.
//! 6. *No plain attempt is made here, and the fence's slack is always zero.* Trust in a number belongs to one connection and one slot, and a
//!    slot may change its node. So each number is compared with the node's clock, and a fence that is behind is set to it.
//!
//! # What it costs
//!
//! A lock and its release cost a master two scripts, which is about twice what they cost a single server. The client's cost is about the
//! same as with a single server. Each node has at most four connections (`nodes.rs`) and one more to listen. There is no permanent thread.

mod core;
mod follow;
mod inbox;
mod map;
mod nodes;
mod redirect;
mod refresh;
mod slots;
mod timing;
pub(super) mod url;

pub(super) use self::core::Cluster;
pub(super) use follow::RoutedBatch;
pub(super) use inbox::ClusterInbox;
pub(super) use nodes::Reach;

/// Reads a reply as `CLUSTER SLOTS` and as a redirection, for the fuzz target.
#[cfg(any(test, fuzzing))]
pub(super) fn read(reply: &::redis::Value) {
    use crate::store::redis::net::address::Place;
    let by = Place::Tcp { host: "asked".to_owned(), port: 6379, tls: false };
    if let Some(map) = slots::SlotMap::read(reply, slots::MapSource { by: &by, map: None }) {
        assert!((1..=slots::MOST_PLACES).contains(&map.places().len()));
        let mut owns = vec![false; map.places().len()];
        (0..=16_383).filter_map(|slot| map.owner(slot)).for_each(|owner| owns[owner] = true);
        assert!(owns.iter().all(|owns| *owns), "{map:?}");
    }
    if let redirect::RedirectReply::Moved { host, port } | redirect::RedirectReply::Ask { host, port } =
        redirect::redirect_reply(reply)
    {
        let place = slots::MapSource { by: &by, map: None }.place(host, port);
        assert!(place.is_some() || host == "?" || port == 0);
    }
}
