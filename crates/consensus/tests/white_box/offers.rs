//! What an inbox makes of several offers that have come together.

use super::servers::Servers;
use crate::confirm::Offers;
use crate::deadline::Deadline;
use crate::message;
use crate::names::Names;
use crate::snapshot::Offer;
use crate::store::ConsensusStore;
use redis_dlock::port::{Break, Claim, Message, Operations};
use std::sync::Arc;
use std::time::Duration;

const ROOT: &str = "dlock/";
const LONG: Duration = Duration::from_secs(3600);

/// Has a waiter be offered a key, and returns the offer that its inbox hears.
fn offer(servers: &Servers, waiter: &ConsensusStore, key: &str, locker: &str) -> Offer {
    let giver = ConsensusStore::new(Arc::new(servers.clone()), ROOT);
    let [gives, waits] = [("a", "a-1"), ("b", locker)].map(|(client, locker)| Claim::new(key, client, locker, LONG));
    giver.acquire(&gives, LONG).expect("an answer");
    waiter.join(&waits, LONG).expect("an answer");
    giver.release(&gives, LONG).expect("an answer");
    let change = servers.inbox(&Names::new(ROOT).inbox("b"), &mut 0).expect("a message");
    message::offer(&change).expect("an offer")
}

fn play() {
    let servers = Servers::new(0, true);
    let waiter = ConsensusStore::new(Arc::new(servers.clone()), ROOT);
    let of = |key, locker| Claim::new(key, "b", locker, LONG);
    let offer = |key, locker| offer(&servers, &waiter, key, locker);
    let mut offers = Offers::new(waiter.confirming());
    offers.push(offer("plain", "b-1"));
    // Of one key twice: etcd takes no two writes of one entry.
    offers.push(offer("twice", "b-2"));
    waiter.release(&of("twice", "b-2"), LONG).expect("an answer");
    offers.push(offer("twice", "b-3"));
    // Refused.
    offers.push(offer("broken", "b-4"));
    waiter.break_hold(&Break::new("broken", "b-4", "c-1", "it hangs"), LONG).expect("an answer");
    offers.push(offer("given up", "b-5"));
    waiter.release(&of("given up", "b-5"), LONG).expect("an answer");
    offers.push(offer("polled", "b-6"));
    waiter.poll(&of("polled", "b-6"), LONG).expect("an answer");
    offers.push(offer("last", "b-7"));

    let mut told = Vec::new();
    while !offers.is_empty() {
        told.push(offers.confirm_some(Deadline::after(LONG)));
    }
    let words = |message: &Message| match message {
        Message::Granted { locker, .. } => format!("{locker} has it"),
        Message::Changed { key: Some(key) } => format!("ask for {key}"),
        other => format!("{other:?}"),
    };
    let told: Vec<Vec<_>> = told.iter().map(|some| some.iter().map(words).collect()).collect();
    // All together are refused, and the first half of them is not.
    let expected: [&[&str]; 5] =
        [&["ask for given up"], &["b-1 has it", "b-3 has it"], &[], &["ask for broken"], &["b-7 has it"]];
    assert_eq!(told, expected);
}

played! {
    one_that_is_out_of_date_keeps_no_other_from_its_own: play, 20;
}
