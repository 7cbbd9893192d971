//! Unit tests of `src/store/redis/cluster/nodes.rs`.

use super::*;
use crate::store::redis::net::endpoint::Dialer;

impl Reach {
    /// Leads to nodes that nobody connects to.
    pub(crate) fn nowhere() -> Self {
        let endpoint = Endpoint {
            address: Address::parse("redis://127.0.0.1:1/").expect("an address"),
            finder: None,
            dialer: Dialer::default(),
            connect_timeout: IDLE_NODE,
            servers: Arc::default(),
            in_cluster: true,
        };
        Self { endpoint, io_timeout: IDLE_NODE, polling: Polling::Automatic, acks: None }
    }
}

fn nodes() -> Nodes {
    Nodes::new(Reach::nowhere(), Arc::new(|| ()))
}

fn place(port: u16) -> Place {
    Place::Tcp { host: "127.0.0.1".to_owned(), port, tls: false }
}

#[test]
fn a_node_out_of_the_map_is_closed_when_nobody_has_used_it_for_a_while() {
    let nodes = nodes();
    let [owner, gone, used] = [1, 2, 3].map(place);
    let [first, second, third] = [&owner, &gone, &used].map(|place| Arc::downgrade(&nodes.at(place)));
    let begun = Instant::now();
    nodes.keep(std::slice::from_ref(&owner), begun + IDLE_NODE / 2);
    assert!([&first, &second, &third].iter().all(|node| node.strong_count() == 1));
    // As a call does that is sent there by an ASK.
    let caller = nodes.at(&used);
    nodes.keep(std::slice::from_ref(&owner), begun + IDLE_NODE * 2);
    assert!(first.upgrade().is_some() && second.upgrade().is_none());
    assert!(!caller.transport.is_closed(), "its last caller ends it");
    drop(caller);
    assert!(third.upgrade().is_none(), "and with it its connections");
}

#[test]
fn a_node_is_made_anew_once_in_a_while() {
    let nodes = nodes();
    let first = nodes.at(&place(1));
    let now = Instant::now();
    let second = nodes.renew(&first, now).expect("another node");
    assert!(!Arc::ptr_eq(&first, &second));
    let again = nodes.renew(&first, now).expect("the node that another caller has made");
    assert!(Arc::ptr_eq(&second, &again));
    assert!(nodes.renew(&second, now + RENEWAL.after(1) / 2 - Duration::from_millis(1)).is_none());
    assert!(nodes.renew(&second, now + RENEWAL.after(1) * 2).is_some_and(|third| !Arc::ptr_eq(&second, &third)));
}

#[test]
fn a_node_that_is_made_after_the_closing_is_closed() {
    let nodes = nodes();
    let replaced = nodes.at(&place(1));
    let before = nodes.renew(&replaced, Instant::now()).expect("another node");
    let gone = nodes.at(&place(3));
    nodes.keep(&[place(1)], Instant::now() + IDLE_NODE * 2);
    nodes.close();
    assert!([&replaced, &before, &gone].iter().all(|node| node.transport.is_closed()));
    assert!(nodes.at(&place(2)).transport.is_closed());
    assert!(nodes.renew(&before, Instant::now() + RENEWAL.after(1) * 2).expect("another node").transport.is_closed());
}
