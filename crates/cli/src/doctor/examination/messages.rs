//! Whether a client that waits can be told of a grant: it subscribes, a script sees the subscription, and a message arrives.

use super::{Examination, words_of};
use crate::doctor::finding::Subject;
use redis_dlock::Error;

/// The commands of a single server: to subscribe, to ask for subscribers, to publish.
const SERVER: [&str; 3] = ["SUBSCRIBE", "NUMSUB", "PUBLISH"];

/// The commands of a Cluster, in the same order.
const CLUSTER: [&str; 3] = ["SSUBSCRIBE", "SHARDNUMSUB", "SPUBLISH"];

/// A script that returns how many subscribers it sees, and publishes a message.
const TELL: &str = "\
local seen = redis.pcall('PUBSUB', ARGV[1], KEYS[1])
if seen.err then return seen end
local told = redis.pcall(ARGV[2], KEYS[1], 'hello')
if type(told) == 'table' and told.err then return told end
return seen[2]";

const HIDDEN: &str = "the subscription is confirmed, and scripts see no subscriber: a proxy on the way subscribes by itself, or at another server";
const PAST_THE_PROXY: &str = "connect clients past the proxy, or switch their hand-over off with listener(false): a hand-over passes over whoever it does not see";

pub(super) fn look(examination: &mut Examination) {
    let channel = inbox(examination);
    let [subscribe, count, publish] = if examination.tag.is_some() { CLUSTER } else { SERVER };
    let mut listener = examination.server.clone();
    match listener.ask(&[subscribe, &channel], examination.left()) {
        Ok(_) => {}
        Err(error @ Error::Denied { .. }) => {
            let right = subscribe.to_lowercase();
            let advice = format!(
                "give the login +{right} &DLOCK:1:*; without +{right}, waiting locks poll, and without &DLOCK:1:* there are no locks"
            );
            return examination.findings.wrong(Subject::Messages, words_of(&error), &advice);
        }
        Err(error) => return examination.findings.failed(Subject::Messages, &error),
    }
    match examination.ask(&["EVAL", TELL, "1", &channel, count, publish]) {
        Ok(seen) if seen.first().is_some_and(|seen| seen == "0") => {
            return examination.findings.wrong(Subject::Messages, HIDDEN, PAST_THE_PROXY);
        }
        Ok(_) => {}
        // `rights.rs` examines the right.
        Err(Error::Denied { .. }) => return,
        Err(error) => return examination.findings.failed(Subject::Messages, &error),
    }
    match listener.next_message(examination.left()) {
        Ok(Some(_)) => {
            examination.findings.fine(Subject::Messages, "scripts see a subscription, and a message arrives");
        }
        Ok(None) => {
            let advice = "look for a proxy that holds messages back; until then, waiting locks poll";
            examination.findings.wrong(Subject::Messages, "a message to a subscriber did not arrive", advice);
        }
        Err(error) => examination.findings.failed(Subject::Messages, &error),
    }
}

/// The channel of a client that does not exist.
pub(super) fn inbox(examination: &Examination) -> String {
    let slot = examination.tag.map_or_else(String::new, |tag| format!("{{{tag}}}:"));
    format!("DLOCK:1:{slot}inbox:doctor-{}-0", std::process::id())
}
