//! Unit tests of `src/store/redis/script/acks.rs`.

use super::*;
use crate::port::{Busy, Claim, Extension, Grant, NotOurs, ReleaseDelay};

fn acks() -> ReplicaAcks {
    ReplicaAcks::new(2, Duration::from_millis(50)).expect("some are wanted")
}

fn error(line: &str) -> Value {
    ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
}

fn failure(result: Result<(), Error>) -> Option<BackendFailure> {
    match result {
        Ok(()) => None,
        Err(Error::Backend { failure, .. }) => Some(failure),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn none_wanted_is_no_setting() {
    assert_eq!(ReplicaAcks::new(0, Duration::from_millis(50)), None);
    assert_eq!(acks().command(), b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$2\r\n50\r\n");
}

#[test]
fn only_what_gives_a_right_needs_acknowledgements() {
    use BackendFailure::{Unacknowledged, Unknown};
    let claim = |locker| Claim::new("k", "l", locker, Duration::from_secs(1));
    let (one, next, ended) = (claim("l-1"), claim("l-2"), Claim::new("k", "l", "l-1", Duration::ZERO));
    let delay = Request::DelayRelease(one, ReleaseDelay::new("a mark", Duration::from_secs(1)));
    let (grant, busy) = (|| Grant::new(7, 0), || Busy::new("l-3", None));
    let extended = || Outcome::Extend(ExtendOutcome::Extended(Extension::while_waiting(0)));
    let replies = [None, Some(Value::Int(0)), Some(Value::Int(1)), Some(error("UNBLOCKED force unblock"))];
    for confirmation in replies.iter().map(Option::as_ref) {
        let of_extension = Some(if confirmation.is_none() { Unknown } else { Unacknowledged });
        for (request, outcome, expected) in [
            (Request::Acquire(one), Outcome::Acquire(AcquireOutcome::Acquired(grant())), Some(Unacknowledged)),
            (Request::Join(one), Outcome::Acquire(AcquireOutcome::Acquired(grant())), Some(Unacknowledged)),
            (Request::Poll(one), Outcome::Poll(PollOutcome::Acquired(grant())), Some(Unacknowledged)),
            (Request::Extend(one), extended(), of_extension),
            (Request::ExtendWithNumbers(one), extended(), of_extension),
            (delay, Outcome::DelayRelease(DelayReleaseOutcome::Delayed), of_extension),
            (delay, Outcome::DelayRelease(DelayReleaseOutcome::NotOurs(NotOurs::new(None))), None),
            (Request::HandOver(one, next), Outcome::Release(ReleaseOutcome::Passed(grant())), Some(Unknown)),
            (Request::Acquire(one), Outcome::Acquire(AcquireOutcome::Busy(busy())), None),
            (Request::Poll(one), Outcome::Poll(PollOutcome::Waiting(busy())), None),
            (Request::Poll(one), Outcome::Poll(PollOutcome::Gone), None),
            (Request::HandOver(one, next), Outcome::Release(ReleaseOutcome::Queued(busy())), None),
            (Request::Release(one), Outcome::Release(ReleaseOutcome::Released { waiting: 0 }), None),
            (Request::Extend(ended), extended(), None),
        ] {
            assert_eq!(failure(acks().check(&request, &outcome, confirmation)), expected, "{request:?}");
        }
    }
    for enough in [2, 3] {
        let taken = Outcome::Acquire(AcquireOutcome::Acquired(grant()));
        assert_eq!(failure(acks().check(&Request::Acquire(one), &taken, Some(&Value::Int(enough)))), None);
    }
}

#[test]
fn who_cannot_wait_is_told_so() {
    let denied = acks().count(Some(&error("NOPERM User x has no permissions to run the 'wait' command")));
    assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    let unknown = acks().count(Some(&error("ERR unknown command 'WAIT', with args beginning with: '2' '50'")));
    assert!(matches!(unknown, Err(Error::Unsupported { .. })), "{unknown:?}");
}
