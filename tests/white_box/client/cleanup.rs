//! Unit tests of `src/client/cleanup.rs`.

use super::*;
use crate::clock::ManualClock;
use crate::error::BackendFailure;

/// The release fails on the earlier server, after the list was told that another one answers.
#[test]
fn a_release_that_was_under_way_when_another_server_answers_is_repeated_at_once() {
    let id = Arc::new(ClientId::of_host("h").expect("random numbers"));
    let cleanup = Cleanup::new(Timer::new(Arc::new(ManualClock::new())), Arc::clone(&id));
    let locker = Arc::from(id.next_locker(Duration::ZERO, Duration::ZERO));
    let failed = || Err::<(), _>(Error::backend(BackendFailure::Unknown, "the connection was cut"));
    let now = cleanup.clock.now();
    cleanup.add("k", &locker, Duration::from_secs(30), Ending::GivenUp, None);
    let first = cleanup.take_due(now).pop().expect("it is due");
    cleanup.hasten(now);
    cleanup.put_back(first, &failed(), CleanupStep::Release, now);
    let second = cleanup.take_due(now).pop().expect("it is due");
    // Once: this one was sent to the server that answers now.
    cleanup.put_back(second, &failed(), CleanupStep::Release, now);
    assert_eq!(cleanup.take_due(now).len(), 0);
    assert!(cleanup.next() > now);
    // A copy of this client has the identity that was given up.
    let third = cleanup.take_due(Moment::NEVER).pop().expect("it is there");
    id.replace().expect("random numbers");
    cleanup.forget_all();
    cleanup.put_back(third, &failed(), CleanupStep::Release, now);
    cleanup.add("k", &locker, Duration::from_secs(30), Ending::GivenUp, None);
    assert_eq!(cleanup.next(), Moment::NEVER);
}
