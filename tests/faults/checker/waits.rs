//! Properties V and T: how long a free lock stayed without a holder while threads waited, and how late a loss was known.

use super::Absence;
use super::holds::Hold;
use super::lateness::Lateness;
use crate::history::{Nanos, Op};
use std::time::Duration;

/// What the test knows of the store: it looked at one moment, and the key was to stay until another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) at: Nanos,
    pub(crate) until: Nanos,
}

/// The longest time for which the lock was free, or its holder's lease over, while a thread that could run waited for it:
/// among the holds that began from `from` on. Lateness of the machine does not count.
pub(crate) fn longest_wait(
    holds: &[Hold],
    absences: &[Absence],
    late: &Lateness,
    kept: &[Kept],
    from: Nanos,
) -> Duration {
    let waits = holds.windows(2).filter(|pair| pair[1].since >= from).filter_map(|pair| {
        let (before, next) = (&pair[0], &pair[1]);
        let mut free = match (before.unlocked, before.lost) {
            (Some(unlocked), None) => unlocked,
            // What is over is released late, or never.
            _ => before.until,
        };
        for kept in kept.iter().filter(|kept| before.since <= kept.at && kept.at <= next.since) {
            free = free.max(kept.until);
        }
        let waits = matches!(next.op, Op::Lock | Op::Lead | Op::TryFor(_));
        let begin = free.max(next.asked);
        let absent = absences.iter().any(|absence| absence.meets(next.actor.process, begin, next.since));
        let late = late.within(Some(next.actor.process), begin, next.since);
        (waits && !absent).then(|| next.since.saturating_sub(begin).saturating_sub(late))
    });
    Duration::from_nanos(waits.max().unwrap_or(0))
}

/// The longest time between the end of a hold's lease, as its thread knew it, and the moment when the thread was told. A process
/// that does not run cannot know: there it counts from its return. When the store lost its keys at `gone_at`, it
/// counts from then. What the machine was late for does not count.
pub(crate) fn latest_news(holds: &[Hold], absences: &[Absence], late: &Lateness, gone_at: Option<Nanos>) -> Duration {
    let news = holds.iter().filter_map(|hold| {
        let mut over = hold.until;
        if let Some(gone_at) = gone_at.filter(|gone_at| (hold.since..hold.claimed_until()).contains(gone_at)) {
            over = gone_at;
        }
        // An unlock tells by itself, when it comes back.
        if hold.unlock.is_some_and(|unlock| unlock <= over) {
            return None;
        }
        let (over, lost) = (back(absences, hold.actor.process, over), hold.lost?);
        let late = late.within(Some(hold.actor.process), over, lost);
        Some(lost.saturating_sub(over).saturating_sub(late))
    });
    Duration::from_nanos(news.max().unwrap_or(0))
}

/// The moment, or the process's return if it does not run then. A process that only runs for a moment between two absences cannot do anything,
/// either.
fn back(absences: &[Absence], process: u32, at: Nanos) -> Nanos {
    const MOMENT: Nanos = 50_000_000;
    let mut since = at;
    while let Some(absence) = absences.iter().find(|absence| {
        let begin = if since == at { at } else { since.saturating_add(MOMENT) };
        absence.process == process && absence.from <= begin && absence.to > since
    }) {
        since = absence.to;
    }
    since
}
