//! The holds of a run, put in order by their tokens.

use redis_dlock::Moment;

/// One hold, on the clock that all processes of the machine share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) process: usize,
    /// Counted over all clients of the process.
    pub(super) thread: usize,
    pub(super) token: u64,
    /// Just before `lock()`.
    pub(super) asked: Moment,
    /// Just after it.
    pub(super) begin: Moment,
    /// Just before `unlock()`.
    pub(super) end: Moment,
}

/// Orders holds by their tokens, and sees to it that none began before the one before it had ended.
pub(super) fn exclusive(mut holds: Vec<Hold>) -> Vec<Hold> {
    holds.sort_by_key(|hold| hold.token);
    for pair in holds.windows(2) {
        assert!(pair[0].token < pair[1].token, "a token each: {pair:?}");
        assert!(pair[0].end <= pair[1].begin, "one at a time, in the order of the tokens: {pair:?}");
    }
    holds
}

/// Lengths of the runs of holds of one process without another's, in order.
pub(super) fn runs(holds: &[Hold]) -> Vec<usize> {
    holds.chunk_by(|a, b| a.process == b.process).map(<[_]>::len).collect()
}

/// Jain's index of shares: 1 when all are the same, 1/n when one has everything.
pub(super) fn jain(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share * share) as f64).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn jains_index_is_one_for_like_shares_and_a_fraction_for_one_of_many() {
    assert!((jain(&[7, 7, 7, 7]) - 1.0).abs() < 1e-9);
    assert!((jain(&[9, 0, 0, 0]) - 0.25).abs() < 1e-9);
    assert!((jain(&[1, 3]) - 0.8).abs() < 1e-9);
}
