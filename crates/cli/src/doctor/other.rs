//! Examines a store of another kind through the port alone: takes a lock that nobody else has, and gives it back.

use super::finding::{Finding, Severity, Subject};
use crate::output::one_line;
use crate::timing::{BETWEEN_WRITES, EXAMINED_FOR, ROUND_TRIP_LONG};
use redis_dlock::Error;
use redis_dlock::port::{Claim, LockProcessor, Operations};
use std::thread;
use std::time::{Duration, Instant};

/// How many pairs of writes are measured. The median counts.
const TIMES: usize = 5;

pub(super) fn examine(scheme: &str, store: &dyn LockProcessor, limit: Duration) -> Vec<Finding> {
    let finding = |subject, severity, message: &str, advice: Option<&str>| Finding {
        server: format!("{scheme}://…"),
        subject,
        severity,
        message: one_line(message),
        advice: advice.map(str::to_owned),
    };
    match median_of_pairs(store, limit) {
        Ok(median) => {
            let message = format!("a lock and its release take {} ms", median.as_millis());
            let time = if median > 2 * ROUND_TRIP_LONG {
                finding(Subject::RoundTrip, Severity::Notice, &message, Some("look at the servers and the network"))
            } else {
                finding(Subject::RoundTrip, Severity::Fine, &message, None)
            };
            vec![
                finding(Subject::Connection, Severity::Fine, "the server answers", None),
                finding(Subject::Rights, Severity::Fine, "the login may lock", None),
                time,
            ]
        }
        Err(error @ Error::Denied { .. }) => {
            let advice = "give the user the rights that the documentation of the store lists";
            vec![finding(Subject::Rights, Severity::Wrong, &error.to_string(), Some(advice))]
        }
        Err(error) => {
            let advice = "check the address, the network, TLS, and whether the server runs";
            vec![finding(Subject::Connection, Severity::Wrong, &error.to_string(), Some(advice))]
        }
    }
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
