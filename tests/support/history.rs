//! The holds of a run, as the threads of several processes record them: a line each, put in order by their tokens.

use redis_dlock::Moment;
use std::fmt;
use std::str::FromStr;

/// One hold, on the clock that all processes of the machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) process: usize,
    /// Counted over all clients of the process.
    pub(crate) thread: usize,
    /// Zero where there is no lock.
    pub(crate) token: u64,
    /// Just before `lock()`.
    pub(crate) asked: Moment,
    /// Just after it.
    pub(crate) begin: Moment,
    /// Just before `unlock()`.
    pub(crate) end: Moment,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, thread, token, asked, begin, end } = self;
        let [asked, begin, end] = [asked, begin, end].map(|moment| moment.as_nanos());
        write!(f, "{process} {thread} {token} {asked} {begin} {end}")
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok([process, thread, token, asked, begin, end]) = numbers.as_deref() else {
            return Err(format!("no hold: {line:?}"));
        };
        let [asked, begin, end] = [asked, begin, end].map(|nanos| Moment::from_nanos(*nanos));
        Ok(Self { process: *process as usize, thread: *thread as usize, token: *token, asked, begin, end })
    }
}

/// Orders holds by their tokens, and sees to it that none began before the one before it had ended.
pub(crate) fn exclusive(mut holds: Vec<Hold>) -> Vec<Hold> {
    holds.sort_by_key(|hold| hold.token);
    for pair in holds.windows(2) {
        assert!(pair[0].token < pair[1].token, "a token each: {pair:?}");
    }
    let overlaps = overlaps(&holds);
    assert!(overlaps.is_empty(), "one at a time, in the order of the tokens: {overlaps:?}");
    holds
}

/// The holds that began before all in front of them had ended, each behind the one that ended last.
pub(crate) fn overlaps<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> Vec<[Hold; 2]> {
    let (mut last, mut overlaps) = (None::<Hold>, Vec::new());
    for hold in holds {
        overlaps.extend(last.filter(|last| hold.begin < last.end).map(|last| [last, *hold]));
        last = last.filter(|last| last.end > hold.end).or(Some(*hold));
    }
    overlaps
}

/// Lengths of the runs of holds of one process without another's, in order.
pub(crate) fn runs(holds: &[Hold]) -> Vec<usize> {
    holds.chunk_by(|a, b| a.process == b.process).map(<[_]>::len).collect()
}

/// Jain's index of shares: 1 when all are the same, 1/n when one has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share * share) as f64).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn holds_are_read_as_they_were_written_and_overlaps_are_seen() {
    let hold = |thread, times: [u64; 2]| {
        let [begin, end] = times.map(Moment::from_nanos);
        Hold { process: 1, thread, token: 1024, asked: begin, begin, end }
    };
    let holds = [hold(0, [1, 3]), hold(1, [3, 9]), hold(2, [4, 5]), hold(3, [8, 9]), hold(4, [9, 9])];
    for hold in holds {
        assert_eq!(hold.to_string().parse(), Ok(hold));
    }
    assert!("1 2 3 4 5".parse::<Hold>().is_err() && "1 2 3 4 5 six".parse::<Hold>().is_err());
    assert_eq!(overlaps(&holds), [[holds[1], holds[2]], [holds[1], holds[3]]]);
}

#[test]
fn jains_index_is_one_for_like_shares_and_a_fraction_for_one_of_many() {
    assert!((jain(&[7, 7, 7, 7]) - 1.0).abs() < 1e-9);
    assert!((jain(&[9, 0, 0, 0]) - 0.25).abs() < 1e-9);
    assert!((jain(&[1, 3]) - 0.8).abs() < 1e-9);
}
