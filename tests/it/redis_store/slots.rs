//! Every name of a lock, and its helper keys, fall into one slot of Redis Cluster, asked of a real one.

#[allow(dead_code)]
#[path = "../../../src/store/redis/script/keys.rs"]
mod keys;

use crate::support::RedisServer;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

#[test]
fn helper_keys_share_the_slot_of_their_lock_key() {
    let cluster = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let mut admin = cluster.connection();
    let piece = prop_oneof![Just("{".to_owned()), Just("}".to_owned()), Just(" ".to_owned()), "[a-z:_]{1,3}", "\\PC"];
    let mut runner = TestRunner::default();
    let random = vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let mut names: Vec<String> = (0..3000).map(|_| random.new_tree(&mut runner).unwrap().current()).collect();
    names.extend(["", " ", "a}b", "{}", "{}x", "{x}y", "{{x}}", "a{b}{c}", "}{", "\n{\0}"].map(str::to_owned));
    names.push("x".repeat(10_000));

    let mut questions = redis::pipe();
    for name in &names {
        for key in [name.clone(), keys::queue_key(name), keys::gapped_key(name), keys::slot_fence_key(name)] {
            questions.cmd("CLUSTER").arg("KEYSLOT").arg(key);
        }
    }
    let slots: Vec<u16> = questions.query(&mut admin).unwrap();
    for (name, slots) in names.iter().zip(slots.chunks(4)) {
        assert!(slots.iter().all(|s| *s == keys::slot_of(name.as_bytes())), "{name:?} {slots:?}");
    }
}
