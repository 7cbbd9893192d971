//! Decides whether histories keep the properties of the lock. It only reads events, and starts nothing.
//!
//! | property | module |
//! |---|---|
//! | **M** no two holds that are both valid by what their threads knew overlap | `exclusion` |
//! | **F** tokens rise with every new hold and are equal on reentry; a store that refuses smaller ones loses no update | `tokens` |
//! | **X** one acquire is one hold: the history is one of a reentrant fenced mutex | `model` |
//! | **K** nobody gets the lock in the time for which an unlock keeps it | `kept` |
//! | **C** a call's own time-out is kept | `patience` |
//! | **O** nobody changes a key that is not theirs, and no tenure is left to its lease | `store`, from the server's side; `entry`, on a consensus store |
//!
//! `windows` says when the store itself may break M, F and K.

pub(crate) mod entry;
mod exclusion;
mod generated;
pub(crate) mod holds;
mod kept;
pub(crate) mod lateness;
mod losses;
mod model;
mod patience;
pub(crate) mod store;
pub(crate) mod tokens;
pub(crate) mod waits;
pub(crate) mod windows;

use crate::history::{Event, Nanos, What};
use holds::Hold;
use lateness::Late;
use std::fmt;
use windows::Lossy;

/// The property that a violation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Property {
    /// Shows: G1, S1.
    M,
    /// Shows: G7, S2.
    F,
    /// Shows: G1, G9, G11.
    X,
    /// Shows: G2, S3.
    O,
    /// Shows: G13.
    K,
    /// Shows: G12.
    C,
    /// Shows: G5.
    T,
    /// Shows: G4, G10, L1.
    V,
    /// Shows: L2, L6.
    Q,
}

/// A counterexample.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) property: Property,
    pub(crate) story: String,
}

impl Violation {
    pub(crate) fn of(property: Property, story: impl Into<String>) -> Self {
        Self { property, story: story.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.story)
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A time that a process did not run: it was stopped, or dead, or the machine was busy with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    pub(crate) process: u32,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

impl Absence {
    /// How long a beat may take before the process counts as absent.
    const AWAY: Nanos = 50_000_000;

    /// What a beat that began then shows.
    pub(crate) fn seen(process: u32, from: Nanos, to: Nanos) -> Option<Self> {
        (to - from > Self::AWAY).then_some(Self { process, from, to })
    }

    pub(crate) fn meets(&self, process: u32, from: Nanos, to: Nanos) -> bool {
        self.process == process && self.from <= to && from <= self.to
    }
}

/// What was found in a history.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    pub(crate) operations: usize,
    pub(crate) holds: Vec<Hold>,
    pub(crate) lates: Vec<Late>,
    /// How long each two threads believed at once that they held the lock, allowed or not.
    pub(crate) both: Vec<Nanos>,
}

/// Judges a history: the events of all threads on one lock. Adds the absences that it shows to `absences`. On a `lossy` store two threads may believe
/// that they hold the lock. So M, and its consequences for X, are not judged there.
pub(crate) fn judge(mut events: Vec<Event>, absences: &mut Vec<Absence>, lossy: impl Into<Lossy>) -> Verdict {
    let lossy = lossy.into();
    let away = |event: &Event| match event.what {
        What::Away { since } => Some((event.actor.process, since, event.at)),
        _ => None,
    };
    absences.extend(events.iter().filter_map(away).filter_map(|(process, from, to)| Absence::seen(process, from, to)));
    let lates = events.iter().filter_map(away).map(|(process, from, to)| Late::beat(Some(process), from, to)).collect();
    // The order of each thread's own events stays.
    events.sort_by_key(|event| event.at);
    let calls = holds::calls(&events);
    let holds = holds::holds(&events);
    let mut violations = tokens::check(&holds, &lossy);
    violations.extend(model::check_counts(&calls));
    violations.extend(exclusion::check(&holds, &lossy));
    violations.extend(kept::check(&holds, &lossy));
    if lossy == Lossy::Never {
        violations.extend(model::check(&calls, &holds));
    }
    violations.extend(patience::check(&calls, absences));
    let both = exclusion::overlaps(&holds).iter().map(exclusion::Both::length).collect();
    Verdict { violations, operations: calls.len(), holds, lates, both }
}

/// Shows a moment to people, by the last digits of the clock in milliseconds. Seconds since the beginning would need the whole history.
pub(crate) fn ms(at: Nanos) -> String {
    if at == Nanos::MAX {
        return "never".to_owned();
    }
    format!("{}.{:03} ms", at / 1_000_000 % 10_000_000, at / 1_000 % 1_000)
}
