//! Unit tests of `src/store/memory/fence.rs`.

use super::*;

/// Shows: S2.
#[test]
fn numbers_follow_the_clock_and_never_fall() {
    assert_eq!(next(0, 5_000_000), 5_000_000, "the first number is the time");
    assert_eq!(next(5_000_000, 5_000_700), 5_000_001, "a little behind: count");
    assert_eq!(next(5_000_000, 5_010_002), 5_010_002, "far behind: catch up");
    assert_eq!(next(5_000_000, 5_010_001), 5_000_001, "just not far behind");
    assert_eq!(next(5_000_000, 4_000_000), 5_000_001, "the clock was stepped back");
    assert_eq!(next(7, 0), 8, "a clock before 1970");
}

/// Shows: S2.
#[test]
fn ranges_begin_above_what_was_issued() {
    assert_eq!(range_after(5_000_000, 5_000_300), Some(5_000_001..=5_000_300));
    assert_eq!(range_after(0, 5_000_000), Some(4_990_001..=5_000_000), "no more than the slack");
    assert_eq!(range_after(5_000_000, 5_000_000), None);
    assert_eq!(range_after(5_000_000, 4_000_000), None);
}

/// Shows: S2.
#[test]
fn threads_never_share_a_number() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let mut numbers = Vec::new();
                for n in 0..2_000 {
                    if n % 10 == 0 {
                        numbers.extend(issue_range().into_iter().flat_map(|r| [*r.start(), *r.end()]));
                    }
                    numbers.push(issue());
                }
                // A range of one number has the same start and end.
                numbers.dedup();
                assert!(numbers.is_sorted_by(|a, b| a < b), "numbers of one thread rise");
                numbers
            })
        })
        .collect();
    let mut all: Vec<_> = threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect();
    let issued = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), issued);
}

#[test]
fn numbers_do_not_outrun_the_clock() {
    let start = wall_clock();
    let mut last = 0;
    for _ in 0..20_000 {
        last = issue();
    }
    // Other tests of this process also issue numbers, no faster than one a microsecond. The clock is not stepped in between.
    assert!(last <= wall_clock() + 1 && last >= start, "{start} {last}");
}
