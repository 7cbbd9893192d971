//! The checker itself, on generated histories: those of a correct lock are accepted, and each kind of mistake is found.

use super::lateness::{Late, Lateness};
use super::tokens::{Update, check_updates};
use super::waits::{Kept, latest_news, longest_wait};
use super::{Absence, Property, judge};
use crate::history::{Actor, Event, Nanos, Op, What};
use proptest::prelude::*;
use std::time::Duration;

/// One hold of a generated history: times between the steps of a correct lock.
#[derive(Clone, Debug)]
struct Turn {
    thread: u32,
    /// How long before the hold its thread asked, how long its last unlock took to be answered.
    asked_before: u64,
    /// How long the store's answers took, both ways.
    reply: u64,
    length: u64,
    reentries: u32,
    ending: Ending,
    gap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Unlocked,
    /// The answer to the unlock was lost.
    Unanswered,
    /// The lease ended, and the thread unlocks long after.
    Lost,
    /// The process was killed.
    Killed,
}

const LEASE: u64 = 1_000_000;

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let ending = prop_oneof![
        6 => Just(Ending::Unlocked),
        1 => Just(Ending::Unanswered),
        1 => Just(Ending::Lost),
        1 => Just(Ending::Killed),
    ];
    let turn = (0..4u32, 1..3_000_000u64, 1..400_000u64, 10..500_000u64, 0..3u32, ending, 1..2_000_000u64).prop_map(
        |(thread, asked_before, reply, length, reentries, ending, gap)| Turn {
            thread,
            asked_before,
            reply,
            length,
            reentries,
            ending,
            gap,
        },
    );
    proptest::collection::vec(turn, 1..20)
}

/// What a correct lock would have done: the events, and each hold's place among them.
fn history(turns: &[Turn]) -> Vec<Event> {
    let mut events = Vec::new();
    // A killed thread never comes back: each kill makes the next thread of that number another process.
    let mut process = [0; 4];
    let mut idle_from = [0; 4];
    let mut free_at: Nanos = 10_000_000;
    for (n, turn) in turns.iter().enumerate() {
        let slot = turn.thread as usize;
        let actor = Actor { process: process[slot], thread: turn.thread };
        let token = (n as u64 + 1) * 1024;
        let mut note = |at, what| events.push(Event { at, actor, what });
        // The store gives the lock at `taken`, and the thread learns of it later.
        let taken = free_at.max(idle_from[slot] + 2) + 1;
        let asked = taken.saturating_sub(turn.asked_before).max(idle_from[slot] + 1);
        let since = taken + turn.reply;
        note(asked, What::Begin(Op::Lock));
        let until = taken + LEASE;
        note(since, What::Got { token, count: 1, until });
        let mut at = since;
        for depth in 0..turn.reentries {
            note(at + 1, What::Begin(Op::Try));
            note(at + 2, What::Got { token, count: depth + 2, until });
            at += 3;
        }
        let end = (at + turn.length).min(until - 100);
        note(end - 1, What::Valid { until });
        if turn.ending == Ending::Killed {
            process[slot] += 1;
            free_at = until + turn.gap;
            continue;
        }
        let unlock = if turn.ending == Ending::Lost { until + turn.length } else { end };
        if turn.ending == Ending::Lost {
            note(until + 5, What::Lost);
        }
        for depth in (0..=turn.reentries).rev() {
            let begin = unlock + 2 * u64::from(turn.reentries - depth);
            note(begin, What::Begin(Op::Unlock));
            let answer = match turn.ending {
                Ending::Lost => What::Fail { count: depth, why: "lost".to_owned() },
                Ending::Unanswered if depth == 0 => What::Unknown { count: 0, why: "no answer".to_owned() },
                _ => What::Left { count: depth },
            };
            let answered = if depth == 0 { begin + turn.reply } else { begin + 1 };
            note(answered, answer);
            idle_from[slot] = answered;
        }
        let last_unlock = unlock + 2 * u64::from(turn.reentries);
        free_at = match turn.ending {
            // It is executed between its sending and its answer.
            Ending::Unlocked => last_unlock + turn.reply / 2,
            Ending::Unanswered => last_unlock + turn.gap % LEASE,
            _ => until + turn.gap,
        };
    }
    events
}

fn found(events: Vec<Event>) -> Vec<Property> {
    judge(events, &mut Vec::new(), false).violations.into_iter().map(|violation| violation.property).collect()
}

/// Places of events of a kind.
fn places(events: &[Event], is: impl Fn(&What) -> bool) -> Vec<usize> {
    (0..events.len()).filter(|place| is(&events[*place].what)).collect()
}

fn first_got(what: &What) -> bool {
    matches!(what, What::Got { count: 1, .. })
}

proptest! {
    #[test]
    fn histories_of_a_correct_lock_are_accepted(turns in turns()) {
        let verdict = judge(history(&turns), &mut Vec::new(), false);
        prop_assert_eq!(verdict.violations, vec![]);
        prop_assert_eq!(verdict.holds.len(), turns.len());
    }

    /// Deadline counted too late, or a key given away too early.
    #[test]
    fn a_hold_that_begins_while_another_is_valid_is_found(turns in turns(), which in any::<prop::sample::Index>()) {
        let mut events = history(&turns);
        let got = places(&events, first_got);
        let event = events[*which.get(&got)].clone();
        let What::Got { token, .. } = event.what else { unreachable!() };
        let actor = Actor { process: 9, thread: 9 };
        let at = event.at + 1;
        events.push(Event { at: event.at, actor, what: What::Begin(Op::Lock) });
        events.push(Event { at, actor, what: What::Got { token: token + 1, count: 1, until: at + LEASE } });
        prop_assert!(found(events).contains(&Property::M));
    }

    #[test]
    fn a_token_that_does_not_rise_is_found(turns in turns(), which in any::<prop::sample::Index>(), same: bool) {
        let mut events = history(&turns);
        let got = places(&events, first_got);
        prop_assume!(got.len() > 1);
        let place = which.index(got.len() - 1) + 1;
        let What::Got { token: before, .. } = events[got[place - 1]].what else { unreachable!() };
        let actor = events[got[place]].actor;
        let What::Got { token: old, .. } = events[got[place]].what else { unreachable!() };
        let wrong = if same { before } else { before - 1 };
        for event in events.iter_mut().filter(|event| event.actor == actor) {
            if let What::Got { token, .. } = &mut event.what && *token == old {
                *token = wrong;
            }
        }
        prop_assert!(found(events).contains(&Property::F));
    }

    #[test]
    fn a_token_that_changes_on_reentry_is_found(turns in turns(), which in any::<prop::sample::Index>()) {
        let mut events = history(&turns);
        let inner = places(&events, |what| matches!(what, What::Got { count: 2.., .. }));
        prop_assume!(!inner.is_empty());
        if let What::Got { token, .. } = &mut events[*which.get(&inner)].what {
            *token += 1;
        }
        prop_assert!(found(events).contains(&Property::F));
    }

    /// A resent acquire that counts twice.
    #[test]
    fn a_count_that_is_one_too_many_is_found(turns in turns(), which in any::<prop::sample::Index>()) {
        let mut events = history(&turns);
        let got = places(&events, |what| matches!(what, What::Got { .. }));
        if let What::Got { count, .. } = &mut events[*which.get(&got)].what {
            *count += 1;
        }
        prop_assert!(found(events).contains(&Property::X));
    }

    /// An unlock that frees the lock although its thread still holds it once.
    #[test]
    fn a_lock_that_is_free_before_its_last_unlock_is_found(turns in turns()) {
        let mut events = history(&turns);
        // The holder goes on for ever after its first inner unlock, and others get the lock all the same.
        let inner = places(&events, |what| matches!(what, What::Left { count: 1.. }));
        prop_assume!(!inner.is_empty());
        let place = inner[0];
        let actor = events[place].actor;
        let (at, token) = (events[place].at, Nanos::MAX / 2);
        events.truncate(place + 1);
        let other = Actor { process: 9, thread: 9 };
        prop_assert_ne!(actor, other);
        events.push(Event { at: at + 1, actor: other, what: What::Begin(Op::Lock) });
        events.push(Event { at: at + 2, actor: other, what: What::Got { token, count: 1, until: at + LEASE } });
        let found = found(events);
        prop_assert!(found.contains(&Property::M) && found.contains(&Property::X), "{found:?}");
    }

    #[test]
    fn an_update_that_is_lost_is_found(length in 2..20u64, which in any::<prop::sample::Index>()) {
        let mut updates: Vec<_> = (0..length).map(|n| Update { token: n, from: n, to: n + 1 }).collect();
        prop_assert!(check_updates(&updates).is_empty());
        // Made from a value that was replaced meanwhile.
        let place = which.index(updates.len() - 1) + 1;
        updates[place].from -= 1;
        prop_assert_eq!(check_updates(&updates).len(), 1);
    }
}

fn two_holds(until: Nanos, told: Option<Nanos>, next: Nanos) -> Vec<super::Hold> {
    let (one, other) = (Actor { process: 0, thread: 0 }, Actor { process: 1, thread: 0 });
    let event = |at, actor, what| Event { at, actor, what };
    let mut events = vec![
        event(1, one, What::Begin(Op::Lock)),
        event(2, one, What::Got { token: 1, count: 1, until }),
        event(3, other, What::Begin(Op::Lock)),
        event(next, other, What::Got { token: 2, count: 1, until: next + 10 }),
    ];
    events.extend(told.map(|at| event(at, one, What::Lost)));
    judge(events, &mut Vec::new(), false).holds
}

#[test]
fn the_wait_for_a_lock_that_is_free_counts_from_the_end_of_its_lease() {
    let nanos = Duration::from_nanos;
    let holds = two_holds(100, None, 150);
    let longest_wait =
        |holds: &[_], absences: &[_], kept: &[_], from| longest_wait(holds, absences, &Lateness::default(), kept, from);
    assert_eq!(longest_wait(&holds, &[], &[], 0), nanos(50));
    assert_eq!(longest_wait(&holds, &[], &[], 151), nanos(0), "before the fault");
    assert_eq!(longest_wait(&holds, &[], &[Kept { at: 50, until: 140 }], 0), nanos(10));
    assert_eq!(longest_wait(&holds, &[Absence { process: 1, from: 90, to: 120 }], &[], 0), nanos(0));
    let late = |process| Lateness::new(vec![Late { process: Some(process), from: 90, to: 120 }], &[], 1000);
    assert_eq!(super::waits::longest_wait(&holds, &[], &late(1), &[], 0), nanos(30));
    assert_eq!(super::waits::longest_wait(&holds, &[], &late(0), &[], 0), nanos(50), "of another process");
}

#[test]
fn news_of_a_loss_count_from_the_deadline_or_from_the_return_of_the_process() {
    let nanos = Duration::from_nanos;
    let holds = two_holds(100, Some(130), 150);
    let latest_news =
        |holds: &[_], absences: &[_], gone_at| latest_news(holds, absences, &Lateness::default(), gone_at);
    assert_eq!(latest_news(&holds, &[], None), nanos(30));
    let away = |from, to| Absence { process: 0, from, to };
    assert_eq!(latest_news(&holds, &[away(90, 125)], None), nanos(5));
    assert_eq!(latest_news(&holds, &[away(90, 110), away(112, 127)], None), nanos(3));
    assert_eq!(latest_news(&holds, &[away(105, 125)], None), nanos(30), "it could have known");
    assert_eq!(latest_news(&holds, &[], Some(60)), nanos(70));
    assert_eq!(latest_news(&two_holds(100, Some(80), 150), &[], None), nanos(0));
    let late = Lateness::new(vec![Late { process: Some(0), from: 110, to: 115 }], &[], 1000);
    assert_eq!(super::waits::latest_news(&holds, &[], &late, None), nanos(25));
}

#[test]
fn a_call_that_outlasts_its_time_is_found() {
    let actor = Actor { process: 0, thread: 0 };
    let events = |end| {
        vec![
            Event { at: 1, actor, what: What::Begin(Op::TryFor(100)) },
            Event { at: end, actor, what: What::Fail { count: 0, why: "busy".to_owned() } },
        ]
    };
    assert_eq!(found(events(150_000_000)), []);
    assert_eq!(found(events(700_000_000)), [Property::C]);
    let stopped = Absence { process: 0, from: 5, to: 600_000_000 };
    assert!(judge(events(700_000_000), &mut vec![stopped], false).violations.is_empty());
    let mut away = events(700_000_000);
    away.push(Event { at: 600_000_000, actor, what: What::Away { since: 5 } });
    assert_eq!(found(away), []);
}
