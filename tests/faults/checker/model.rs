//! Property X: the history is one of a reentrant fenced mutex whose holds may also end by their lease, as Jepsen models such locks
//! (`jepsen.hazelcast`'s reentrant fenced mutex). That is, the mutex could have executed all calls one by one in some order, each at some moment
//! between its beginning and its end.
//!
//! The search is Lowe's just-in-time linearisation: a call is put in order when its end is reached, after as many of
//! the calls then under way as the mutex allows. A call that failed did nothing. An acquire whose outcome is unknown may have happened or not. If it
//! has, its hold is given back later, so leaving both out changes nothing for the others. After an unlock whose outcome is unknown, the hold may end
//! at any later time. So may a hold once its thread does not know any more that it is valid.

use super::holds::{Call, End, Hold};
use super::{Property, Violation};
use crate::history::{Actor, Nanos, Op};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mutex {
    owner: Option<(Actor, u32)>,
    /// The token of the last hold.
    token: u64,
}

impl Mutex {
    /// The mutex after a call with this end, if it can have this end.
    fn after(self, call: &Call) -> Option<Self> {
        match (call.op, &call.end, self.owner) {
            (Op::Unlock, End::Left { count }, Some((owner, held))) if owner == call.actor && held == count + 1 => {
                Some(Self { owner: (*count > 0).then_some((owner, *count)), ..self })
            }
            (Op::Unlock, _, _) => None,
            (_, End::Got { token, count: 1 }, None) if *token > self.token => {
                Some(Self { owner: Some((call.actor, 1)), token: *token })
            }
            (_, End::Got { token, count }, Some((owner, held)))
                if owner == call.actor && *token == self.token && *count == held + 1 =>
            {
                Some(Self { owner: Some((owner, *count)), ..self })
            }
            _ => None,
        }
    }
}

/// A way things may have gone: the mutex, and which calls under way have happened (by their place).
type Way = (Mutex, BTreeSet<usize>);

/// What a thread does at a moment.
enum Step {
    Begins(usize),
    Ends(usize),
    /// The thread's hold may end by itself from now on.
    MayEnd(Actor),
}

/// Checks the order of the calls. Not called for a store that drops live leases, because two may have the lock there.
pub(super) fn check(calls: &[Call], holds: &[Hold]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut steps: Vec<(Nanos, u8, Step)> = Vec::new();
    for (place, call) in calls.iter().enumerate() {
        if matches!(call.end, End::Got { .. } | End::Left { .. }) && !is_left_out(call, holds) {
            steps.push((call.begin, 1, Step::Begins(place)));
            steps.push((call.end_at, 2, Step::Ends(place)));
        }
    }
    for hold in holds {
        if let Some(from) = may_end_from(hold) {
            // The hold may end even before its thread was told: others may have got the lock if the thread never knew it to be valid.
            steps.push((from.max(hold.asked), 3, Step::MayEnd(hold.actor)));
        }
    }
    steps.sort_by_key(|(at, rank, _)| (*at, *rank));

    let mut ways = BTreeSet::from([(Mutex { owner: None, token: 0 }, BTreeSet::new())]);
    let mut under_way: BTreeSet<usize> = BTreeSet::new();
    let mut may_end: HashSet<Actor> = HashSet::new();
    for (_, _, step) in steps {
        match step {
            Step::Begins(place) => {
                under_way.insert(place);
                // An earlier hold of this thread has ended, because a thread without a hold asks.
                if calls[place].op != Op::Unlock && may_end.remove(&calls[place].actor) {
                    free(&mut ways, calls[place].actor);
                }
            }
            Step::MayEnd(actor) => {
                may_end.insert(actor);
            }
            Step::Ends(place) => {
                let next = search(&ways, place, &under_way, &may_end, calls);
                if next.is_empty() {
                    let states: Vec<_> = ways.iter().map(|(mutex, _)| mutex).collect();
                    violations.push(Violation::of(
                        Property::X,
                        format!("no reentrant mutex does {:?}; before it, it was one of {states:?}", calls[place]),
                    ));
                    return violations;
                }
                ways = next;
                under_way.remove(&place);
            }
        }
    }
    violations
}

/// Returns all ways in which a call has happened when its end is reached, without that call.
fn search(
    ways: &BTreeSet<Way>,
    place: usize,
    under_way: &BTreeSet<usize>,
    may_end: &HashSet<Actor>,
    calls: &[Call],
) -> BTreeSet<Way> {
    let (mut open, mut seen, mut done): (Vec<Way>, _, _) =
        (ways.iter().cloned().collect(), BTreeSet::new(), BTreeSet::new());
    while let Some(way) = open.pop() {
        if !seen.insert(way.clone()) {
            continue;
        }
        let (mutex, happened) = way;
        if happened.contains(&place) {
            let mut rest = happened;
            rest.remove(&place);
            done.insert((mutex, rest));
            continue;
        }
        for call in under_way.difference(&happened) {
            if let Some(after) = mutex.after(&calls[*call]) {
                let mut more = happened.clone();
                more.insert(*call);
                open.push((after, more));
            }
        }
        if mutex.owner.is_some_and(|(owner, _)| may_end.contains(&owner)) {
            open.push((Mutex { owner: None, ..mutex }, happened));
        }
    }
    done
}

/// The hold of a thread that has none any more is over.
fn free(ways: &mut BTreeSet<Way>, actor: Actor) {
    let freed = std::mem::take(ways).into_iter().map(|(mutex, happened)| {
        let owner = mutex.owner.filter(|(owner, _)| *owner != actor);
        (Mutex { owner, ..mutex }, happened)
    });
    *ways = freed.collect();
}

/// The moment from which a hold may end without a call. `None` if it was unlocked while its thread knew it to be valid.
fn may_end_from(hold: &Hold) -> Option<Nanos> {
    let known = hold.until.min(hold.lost.unwrap_or(Nanos::MAX));
    let is_clean = hold.confirmed && hold.unlocked.is_some_and(|unlocked| unlocked < known);
    (!is_clean).then(|| known.min(hold.unlock.unwrap_or(Nanos::MAX)))
}

/// Whether a call is a reentry into, or an unlock of, a hold that may have ended by itself: it changes nothing any more.
fn is_left_out(call: &Call, holds: &[Hold]) -> bool {
    let is_first = matches!(call.end, End::Got { count: 1, .. });
    let hold = holds.iter().rev().find(|hold| hold.actor == call.actor && hold.since <= call.begin);
    !is_first && hold.and_then(may_end_from).is_some_and(|from| from <= call.end_at)
}

/// Checks that after every call the thread's count is the one that its calls imply, whatever the store does.
pub(super) fn check_counts(calls: &[Call]) -> Vec<Violation> {
    let mut held: HashMap<Actor, u32> = HashMap::new();
    let mut violations = Vec::new();
    for call in calls {
        let count = held.entry(call.actor).or_default();
        let (expected, said) = match call.end {
            End::Got { count: said, .. } => (*count + 1, said),
            End::Left { count: said } => (count.saturating_sub(1), said),
            // An unlock ends one hold, whatever the store says.
            End::Fail { count: said } | End::Unknown { count: said } if call.op == Op::Unlock => {
                (count.saturating_sub(1), said)
            }
            End::Fail { count: said } | End::Unknown { count: said } => (*count, said),
            End::Never => continue,
        };
        *count = said;
        if expected != said {
            let story = format!("after {call:?} the thread holds the lock {said} times, not {expected}");
            violations.push(Violation::of(Property::X, story));
        }
    }
    violations
}
