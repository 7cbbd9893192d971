//! Unit tests of `src/port/lock_processor.rs`.

use super::*;

/// A store that answers everything alike.
#[derive(Debug)]
struct Alike(Vec<Outcome>);

impl LockProcessor for Alike {
    fn run(&self, _: &[Request<'_>], _: Limit) -> Vec<Result<Outcome, Error>> {
        self.0.iter().cloned().map(Ok).collect()
    }
}

#[test]
fn an_outcome_of_another_kind_and_no_outcome_are_errors_that_leave_all_open() {
    let claim = Claim::new("key", "client", "client-1", Duration::from_secs(30));
    for outcomes in [vec![], vec![Outcome::Poll(PollOutcome::Gone)]] {
        let store = Alike(outcomes);
        let failure = store.acquire(&claim, Duration::ZERO).expect_err("no outcome of an acquire");
        assert!(matches!(failure, Error::Backend { failure: BackendFailure::Unknown, .. }), "{failure}");
        assert_eq!(store.poll(&claim, Duration::ZERO).is_ok(), !store.0.is_empty());
    }
}
