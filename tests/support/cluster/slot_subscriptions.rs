//! Whether clients hear what they believe to hear: *a slot that a client hears has the client's subscription at the slot's owner within
//! [`SOON`]*. Whoever believes it wrongly is deaf for ever: it joins queues, is passed over, and nothing tells it.

use super::{Cluster, Node, slot_of};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may believe it wrongly: the server ends a subscription before the client reads that.
const SOON: Duration = Duration::from_secs(1);

/// The channel of a client in the slot of a key. Written anew here, so that a mistake in the crate's own names shows.
pub(crate) fn channel(client: &str, key: &str) -> String {
    let slot = slot_of(key);
    let tag = (0_u32..).map(|n| n.to_string()).find(|tag| slot_of(tag) == slot).unwrap();
    format!("DLOCK:1:{{{tag}}}:inbox:{client}")
}

impl Cluster {
    /// Those of a client's keys without a subscription of the client at the node that says it owns their slot. Keys whose slot has no
    /// owner that is up are left out.
    pub(crate) fn unsubscribed(&self, client: &str, keys: &[String]) -> Vec<String> {
        let mut by_owner: BTreeMap<usize, Vec<&String>> = BTreeMap::new();
        let owned: Vec<_> = self.nodes.iter().map(|node| node.itself().map(|seen| seen.slots)).collect();
        for key in keys {
            let owns = |slots: &Option<Vec<RangeInclusive<u16>>>| {
                slots.iter().flatten().any(|range| range.contains(&slot_of(key)))
            };
            if let Some(owner) = owned.iter().position(owns) {
                by_owner.entry(owner).or_default().push(key);
            }
        }
        let without = |(owner, keys): (usize, Vec<&String>)| {
            let counts = subscribers(&self.nodes[owner], client, &keys);
            keys.into_iter().filter(move |key| counts.get(*key) == Some(&0)).cloned().collect::<Vec<_>>()
        };
        by_owner.into_iter().flat_map(without).collect()
    }

    /// Fails if a client believes to hear keys for longer than [`SOON`] while their owner has no subscription of it. `hears` is what the
    /// client believes: in the same process
    ///
    /// ```ignore
    /// let store = Arc::new(RedisLockProcessor::connect(&cluster.url(0)).unwrap());
    /// let generator = DLockGenerator::new(Arc::clone(&store)).unwrap();
    /// let client = client_of(&generator.generate("X", "free").unwrap().lock_owned().unwrap()…);
    /// cluster.assert_hears(&client, &keys, |key| store.queue().unwrap().hears(&client, key));
    /// ```
    ///
    /// In another process: what it says when it is asked. Costs one look if all is well.
    #[track_caller]
    pub(crate) fn assert_hears(&self, client: &str, keys: &[String], hears: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        let mut deaf = keys.to_vec();
        loop {
            deaf.retain(|key| hears(key));
            deaf = self.unsubscribed(client, &deaf);
            // What is not believed any more was no mistake for long.
            deaf.retain(|key| hears(key));
            if deaf.is_empty() {
                return;
            }
            assert!(begun.elapsed() < SOON, "{client} believes to hear these, and is subscribed to none: {deaf:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How many subscribers a node has for a client's channel of each key; nothing if it does not answer.
fn subscribers<'a>(node: &Node, client: &str, keys: &[&'a String]) -> HashMap<&'a String, u64> {
    let mut counts = HashMap::new();
    for some in keys.chunks(500) {
        let channels: Vec<_> = some.iter().map(|key| channel(client, key)).collect();
        let mut words = vec!["PUBSUB", "SHARDNUMSUB"];
        words.extend(channels.iter().map(String::as_str));
        // Names and numbers in turn.
        let told: Vec<(String, u64)> = node.ask(&words).unwrap_or_default();
        counts.extend(some.iter().zip(told).map(|(key, (_, count))| (*key, count)));
    }
    counts
}

/// The client of a locker.
pub(crate) fn client_of(locker: &str) -> &str {
    locker.rsplit_once('-').expect("a locker ends with the number of a tenure").0
}

#[test]
fn a_channel_is_in_the_slot_of_its_key() {
    assert_eq!(slot_of(&channel("c", "DLOCK_a_b")), slot_of("DLOCK_a_b"));
    assert_eq!(client_of("host-1-ff-9"), "host-1-ff");
}
