//! Property C: `try_lock_for` returns when its time is over.

use super::holds::{Call, End};
use super::{Absence, Property, Violation, ms};
use crate::history::{Nanos, Op};

/// How much later a call may come back on a machine that is busy with everything else.
const SLACK: Nanos = 500_000_000;

pub(super) fn check(calls: &[Call], absences: &[Absence]) -> Vec<Violation> {
    let late = calls.iter().filter(|call| match call.op {
        Op::TryFor(limit) if call.end != End::Never => {
            call.end_at > call.begin + limit * 1_000_000 + SLACK
                && !absences.iter().any(|absence| absence.meets(call.actor.process, call.begin, call.end_at))
        }
        _ => false,
    });
    late.map(|call| {
        let (took, begin) = (ms(call.end_at - call.begin), ms(call.begin));
        let story = format!("thread {}: {:?} from {begin} on took {took}: {:?}", call.actor, call.op, call.end);
        Violation::of(Property::C, story)
    })
    .collect()
}
