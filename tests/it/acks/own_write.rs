//! Since Redis 7.2 `WAIT` answers for the last write of its own connection. What gives a right must be such a write, even where the key was
//! given to the locker over another connection.

use super::{LEASE, builder, failure, replicated, signal_replicas, value};
use crate::support::{Asking, claim};
use redis_dlock::BackendFailure;
use redis_dlock::processor::{AcquireOutcome, Operations};
use rustix::process::Signal;
use std::time::Duration;

const KEY: &str = "DLOCK_ACKS_own-write";
const LIMIT: Duration = Duration::from_secs(2);

#[test]
fn what_another_connection_wrote_counts_by_a_write_of_its_own() {
    let service = replicated(1);
    let master = &service.servers[0];
    let store = |acks| builder(&master.url(), acks).connect().unwrap();
    let other = store(0);
    // Each has a connection that has written nothing.
    let [asks, extends, counts, ends] = [(); 4].map(|()| store(1));
    let [ours, next] = ["own-1", "own-2"].map(|locker| claim(KEY, locker, LEASE));
    signal_replicas(&service, Signal::STOP);
    let grant = || assert!(matches!(other.ask(&ours, false, LIMIT), Ok(AcquireOutcome::Acquired(_))));
    grant();
    assert_eq!(failure(asks.poll(&ours, LIMIT)), BackendFailure::Unacknowledged);
    assert_eq!(value(master, KEY), None);
    grant();
    assert_eq!(failure(extends.extend(&ours, LIMIT)), BackendFailure::Unacknowledged);
    assert_eq!(failure(counts.extend_fresh(&ours, LIMIT)), BackendFailure::Unacknowledged);
    assert_eq!(value(master, KEY).as_deref(), Some("own-1"));
    assert_eq!(failure(ends.end_with(&ours, Some(&next), LIMIT)), BackendFailure::Unknown);
    assert_eq!(value(master, KEY).as_deref(), Some("own-2"));
    signal_replicas(&service, Signal::CONT);
}
