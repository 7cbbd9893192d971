//! Telling nodes where slots belong: `CLUSTER SETSLOT`.

use redis::{Connection, RedisResult, Value};

/// Says the same of each slot to a node, to which these connections lead. Some say it of a slot each at the same time: Redis saves its
/// file once for many, and Valkey, which answers a connection when the replicas of the node know it, waits for many at once.
fn say(node: &mut [Connection], slots: &[u16], what: &str, id: &str) -> RedisResult<()> {
    let shares: Vec<_> = slots.chunks(slots.len().div_ceil(node.len()).max(1)).collect();
    for (connection, share) in node.iter_mut().zip(&shares) {
        let mut all = redis::pipe();
        for slot in *share {
            all.cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(what).arg(id);
        }
        connection.send_packed_command(&all.get_packed_pipeline())?;
    }
    // All answers are read, also after a refusal: what comes next on the connection must be the answer to what is said next.
    let mut said = Ok(());
    for (connection, share) in node.iter_mut().zip(&shares) {
        for _ in *share {
            said = said.and(connection.recv_response().and_then(Value::extract_error).map(drop));
        }
    }
    said
}

/// Says it to a node that must agree.
pub(super) fn require(node: &mut [Connection], slots: &[u16], what: &str, id: &str) {
    say(node, slots, what, id).unwrap();
}

/// Tells a node the new owner of some slots. One that refuses, or that leaves its clients, was told already, by the owner: a master
/// becomes a replica of whoever took its last slot.
pub(super) fn tell(node: &mut [Connection], slots: &[u16], owner: &str) {
    let _ = say(node, slots, "NODE", owner);
}
