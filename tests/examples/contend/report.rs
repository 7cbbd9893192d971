//! What is printed: the order of the holds, and the proof.

use crate::history::{Hold, overlaps};
use crate::worker::Visit;
use std::time::Duration;

/// So many holds are shown at each end of the list.
const SHOWN: usize = 8;

/// Prints the visits, which are sorted by the begin of their holds.
pub(crate) fn print(visits: &[Visit], all: bool, locked: bool) {
    let Some(first) = visits.first() else { return };
    println!("\n    #  process  thread      from [ms]   held [ms]  counter      {}", if locked { "token" } else { "" });
    for (place, Visit { hold, read }) in visits.iter().enumerate() {
        if !all && visits.len() > 2 * SHOWN && (SHOWN..visits.len() - SHOWN).contains(&place) {
            if place == SHOWN {
                println!("  ...  {} more, --all shows them", visits.len() - 2 * SHOWN);
            }
            continue;
        }
        let (from, held) = (millis(hold.begin.since(first.hold.begin)), millis(hold.end.since(hold.begin)));
        let token = if locked { hold.token.to_string() } else { String::new() };
        println!(
            "{:>5}  {:>7}  {:>6}  {from:>13.3}  {held:>10.3}  {read:>4} -> {:<4} {token}",
            place + 1,
            hold.process,
            hold.thread,
            read + 1,
        );
    }
}

/// Checks, and prints what was checked; whether nothing was lost.
pub(crate) fn prove(visits: &[Visit], expected: u64, count: u64, locked: bool) -> bool {
    let holds: Vec<_> = visits.iter().map(|visit| visit.hold).collect();
    let changes = |differ: fn(&Hold, &Hold) -> bool| holds.windows(2).filter(|pair| differ(&pair[0], &pair[1])).count();
    let between_processes = changes(|a, b| a.process != b.process);
    let between_threads = changes(|a, b| a.process == b.process && a.thread != b.thread);
    if let (Some(first), Some(last)) = (holds.first(), holds.iter().map(|hold| hold.end).max()) {
        let took = millis(last.since(first.begin));
        println!(
            "\n{} holds in {took:.0} ms; moves to another thread: {between_threads}, to another process: {between_processes}\n",
            holds.len()
        );
    }

    let mut sound = check(holds.len() as u64 == expected, &format!("{expected} holds wanted, {} had", holds.len()));
    let lost = expected.saturating_sub(count);
    sound &= check(count == expected, &format!("the counter stands at {count} of {expected}: {lost} writes lost"));
    let overlaps = overlaps(&holds).len();
    sound &= check(overlaps == 0, &format!("{overlaps} holds began before the one before had ended"));
    if locked {
        let falls = holds.windows(2).filter(|pair| pair[0].token >= pair[1].token).count();
        sound &= check(falls == 0, &format!("{falls} fencing tokens not greater than the one before"));
    }
    println!("{}", if sound { "\nNothing was lost." } else { "\nSomething was lost." });
    sound
}

fn check(good: bool, finding: &str) -> bool {
    println!("{}  {finding}", if good { "ok    " } else { "FAILED" });
    good
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
