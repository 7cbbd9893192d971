//! Examines a store of another kind through the port alone: takes a lock that nobody else has, and gives it back.

use super::finding::{Finding, Findings, Subject};
use crate::timing::{BETWEEN_WRITES, EXAMINED_FOR, ROUND_TRIP_LONG};
use redis_dlock::Error;
use redis_dlock::port::{Claim, LockProcessor, Operations};
use std::thread;
use std::time::{Duration, Instant};

/// How many pairs of writes are measured. The median counts.
const TIMES: usize = 5;

pub(super) fn examine(scheme: &str, store: &dyn LockProcessor, limit: Duration) -> Vec<Finding> {
    let mut findings = Findings::of(format!("{scheme}://…"));
    match median_of_pairs(store, limit) {
        Ok(median) => {
            findings.fine(Subject::Connection, "the server answers");
            findings.fine(Subject::Rights, "the login may lock");
            let message = format!("a lock and its release take {} ms", median.as_millis());
            if median > 2 * ROUND_TRIP_LONG {
                findings.notice(Subject::RoundTrip, message, "look at the servers and the network");
            } else {
                findings.fine(Subject::RoundTrip, message);
            }
        }
        Err(error @ Error::Denied { .. }) => {
            let advice = "give the user the rights that the documentation of the store lists";
            findings.wrong(Subject::Rights, error.to_string(), advice);
        }
        Err(error) => {
            let advice = "check the address, the network, TLS, and whether the server runs";
            findings.wrong(Subject::Connection, error.to_string(), advice);
        }
    }
    findings.into_list()
}

/// Takes and releases the lock several times.
fn median_of_pairs(store: &dyn LockProcessor, limit: Duration) -> Result<Duration, Error> {
    let client = format!("doctor-{}", std::process::id());
    let mut times = Vec::new();
    for n in 0..TIMES {
        thread::sleep(BETWEEN_WRITES);
        let (key, locker) = (format!("DLOCK_{client}"), format!("{client}-{n}"));
        let claim = Claim::new(&key, &client, &locker, EXAMINED_FOR);
        let begin = Instant::now();
        store.acquire(&claim, limit)?;
        store.release(&claim, limit)?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    Ok(times[TIMES / 2])
}
