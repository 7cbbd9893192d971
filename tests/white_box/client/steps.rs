//! Tests of the table: each row is an answer in a situation, and the step that follows.

use super::*;
use crate::config::DLockConfig;
use crate::timing::{MOST_RECALLS, RECALL_TRIPS};
use std::sync::Arc;

/// A locker that was sent; `answered` says whether a reply has told of it.
fn unsettled(locker: &str, answered: bool) -> Unsettled {
    let settings = Arc::new(DLockConfig::new("STEPS", "x"));
    Unsettled { locker: Arc::from(locker), settings, answered, counts_from: Moment::from_nanos(0) }
}

/// What may have been answered.
#[derive(Clone, Copy, Debug)]
enum Said {
    Gone,
    /// The store has looked at the key alone. It knows when the lease ends.
    Looked,
    /// The store has looked at the key alone, and does not know when the lease ends.
    LookedInVain,
    /// The locker stands in the queue.
    Queued,
    /// The locker may yet get into the queue.
    UnderWay,
    /// There was no reply.
    Unknown,
    /// The same, and the locker needs no cleaning up.
    UnknownPoll,
    NotExecuted,
    Unacknowledged,
    Denied,
}

impl Said {
    fn answer(self) -> Answer {
        let failed = |failure, unsettled| Answer::Failed { error: Error::backend(failure, "a test"), unsettled };
        let busy = |remaining, unsettled| Answer::Busy { busy: Busy::new("other-1", remaining), unsettled };
        let left = Some(Duration::from_secs(9));
        match self {
            Self::Gone => Answer::Gone,
            Self::Looked => busy(left, None),
            Self::LookedInVain => busy(None, None),
            Self::Queued => busy(left, Some(unsettled("mine", true))),
            Self::UnderWay => busy(left, Some(unsettled("mine", false))),
            Self::Unknown => failed(BackendFailure::Unknown, Some(unsettled("mine", false))),
            Self::UnknownPoll => failed(BackendFailure::Unknown, None),
            Self::NotExecuted => failed(BackendFailure::NotExecuted, None),
            Self::Unacknowledged => failed(BackendFailure::Unacknowledged, None),
            Self::Denied => Answer::Failed { error: Error::denied("a test"), unsettled: None },
        }
    }
}

const ALL: [Said; 10] = [
    Said::Gone,
    Said::Looked,
    Said::LookedInVain,
    Said::Queued,
    Said::UnderWay,
    Said::Unknown,
    Said::UnknownPoll,
    Said::NotExecuted,
    Said::Unacknowledged,
    Said::Denied,
];

/// What is seen if nothing is special: there is time.
fn seen() -> Seen {
    Seen {
        now: Moment::from_nanos(1_000_000_000),
        took: Duration::from_millis(1),
        is_over: false,
        is_closed: false,
        has_time: true,
        wants_place: false,
        is_released: false,
        may_recall: false,
        is_refused: false,
    }
}

/// The words for special circumstances.
fn seen_as(words: &str, said: Said, is_one_attempt: bool) -> Seen {
    let has = |word| words.split(' ').any(|w| w == word);
    assert!(words.split(' ').all(|w| ["", "over", "closed", "place", "ours", "lingers", "unheard"].contains(&w)));
    Seen {
        is_over: has("over"),
        is_closed: has("closed"),
        has_time: !is_one_attempt && !has("over"),
        wants_place: has("place"),
        is_released: has("ours"),
        may_recall: has("lingers"),
        is_refused: matches!(said, Said::Denied) || has("unheard") && matches!(said.answer(), Answer::Failed { .. }),
        ..seen()
    }
}

fn said_by(step: &Step) -> String {
    match step {
        Step::Ask(place) => format!("ask {place:?}"),
        Step::Poll { after, .. } if after.is_zero() => "poll".to_owned(),
        Step::Poll { .. } => "pause, poll".to_owned(),
        Step::End { abandoned, failure } => {
            let abandoned = if abandoned.is_some() { ", abandon" } else { "" };
            format!("end{abandoned}{}", if failure.is_some() { ", fail" } else { "" })
        }
        Step::Refuse(_) => "refuse".to_owned(),
        Step::Wait(_) => "wait".to_owned(),
    }
}

/// Plays a conversation: answers with circumstances, and the step after each.
fn play(is_one_attempt: bool, conversation: &[(Said, &str, &str)]) {
    let mut asking = Asking::new(is_one_attempt, false);
    for (n, (said, words, expected)) in conversation.iter().enumerate() {
        let step = asking.next(said.answer(), &seen_as(words, *said, is_one_attempt));
        assert_eq!(said_by(&step), *expected, "answer {n} of {conversation:?}, one attempt: {is_one_attempt}");
    }
}

#[test]
fn a_thread_that_waits_follows_the_table() {
    use Said::*;
    let rows: &[&[(Said, &str, &str)]] = &[
        // Nothing is known yet.
        &[(Gone, "", "ask IfHeard")],
        &[(Gone, "over", "end")],
        &[(Looked, "", "wait")],
        &[(Looked, "closed", "refuse")],
        &[(Looked, "ours lingers", "wait")],
        &[(Queued, "", "wait")],
        &[(NotExecuted, "", "wait")],
        &[(NotExecuted, "unheard", "refuse")],
        &[(Unacknowledged, "over", "wait")],
        &[(UnknownPoll, "", "wait")],
        &[(Denied, "", "refuse")],
        &[(Unknown, "over", "wait")],
        &[(Unknown, "closed", "refuse")],
        &[(UnderWay, "over", "wait")],
        // An acquire is settled, once.
        &[(Unknown, "", "poll"), (Unknown, "", "wait")],
        &[(Unknown, "", "poll"), (Gone, "", "ask IfHeard"), (Unknown, "", "wait")],
        &[(Unknown, "", "poll"), (Gone, "over", "end, fail")],
        &[(Unknown, "", "poll"), (Queued, "", "wait")],
        // The store has looked at the key alone: a place is asked for, once.
        &[(Looked, "place", "ask OnceHeard"), (Looked, "place", "wait")],
        &[(Looked, "place over", "wait")],
        &[(Looked, "place", "ask OnceHeard"), (NotExecuted, "over", "end")],
        &[(Looked, "place", "ask OnceHeard"), (Unknown, "over", "end, abandon")],
        &[(Looked, "place", "ask OnceHeard"), (Unacknowledged, "over", "wait")],
        &[(Looked, "place", "ask OnceHeard"), (NotExecuted, "over closed", "refuse")],
        &[(Looked, "place", "ask OnceHeard"), (Unknown, "", "poll"), (Gone, "over", "end")],
        // The locker may yet get into the queue: it is polled, once.
        &[(UnderWay, "", "poll"), (UnderWay, "", "wait")],
        &[(UnderWay, "", "poll"), (NotExecuted, "over", "end")],
    ];
    rows.iter().for_each(|row| play(false, row));
}

#[test]
fn a_single_attempt_follows_the_table() {
    use Said::*;
    let rows: &[&[(Said, &str, &str)]] = &[
        // It has polled for the place of a waiter before it. Nobody has said to it that the lock is busy.
        &[(Gone, "", "ask None"), (Looked, "", "refuse")],
        &[(Gone, "", "ask None"), (NotExecuted, "", "refuse")],
        &[(Gone, "closed", "ask None"), (Unknown, "closed", "refuse")],
        &[(UnderWay, "", "poll"), (Gone, "", "end")],
        &[(Looked, "", "refuse")],
        &[(Looked, "place", "refuse")],
        &[(NotExecuted, "", "refuse")],
        &[(Denied, "", "refuse")],
        &[(Unknown, "", "poll"), (Gone, "", "end, fail")],
        &[(Unknown, "", "poll"), (Unknown, "", "refuse")],
        &[(UnderWay, "", "poll"), (Queued, "", "end, abandon")],
        &[(Queued, "", "end, abandon")],
        // It has the place of a task that came before it.
        &[(Queued, "lingers", "pause, poll"), (Queued, "", "end, abandon")],
        &[(Queued, "lingers", "pause, poll"), (Gone, "", "ask None")],
        // A request that has overtaken the release is repeated, once.
        &[(Looked, "ours", "ask None"), (Looked, "ours", "refuse")],
        &[(Looked, "ours", "ask None"), (NotExecuted, "", "end")],
        &[(Looked, "lingers", "ask ForRecall"), (Looked, "ours", "refuse")],
        // A recall, once.
        &[(Looked, "lingers", "ask ForRecall"), (Queued, "lingers", "pause, poll"), (Queued, "", "end, abandon")],
        &[(Looked, "lingers", "ask ForRecall"), (Gone, "", "ask None"), (Looked, "lingers", "refuse")],
        &[(Looked, "ours lingers", "ask None"), (Looked, "lingers", "ask ForRecall"), (Queued, "", "end, abandon")],
        &[(Looked, "lingers", "ask ForRecall"), (Unknown, "", "poll"), (Queued, "lingers", "pause, poll")],
    ];
    rows.iter().for_each(|row| play(true, row));
}

#[test]
fn where_the_end_of_a_lease_is_known_a_look_without_it_is_repeated() {
    let step =
        |remaining_known| said_by(&Asking::new(false, remaining_known).next(Said::LookedInVain.answer(), &seen()));
    assert_eq!(step(true), "ask OnceHeard");
    assert_eq!(step(false), "wait");
}

/// Every conversation of two answers, in all circumstances.
fn every_conversation(mut check: impl FnMut(bool, &mut Asking, &[(Said, Seen)])) {
    let words: Vec<String> = (0..32_u32)
        .map(|bits| {
            let all = ["over", "closed", "place", "ours", "lingers"];
            let set = all.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1).map(|(_, word)| *word);
            set.collect::<Vec<_>>().join(" ")
        })
        .collect();
    for is_one_attempt in [false, true] {
        let all: Vec<_> = ALL
            .iter()
            .flat_map(|said| words.iter().map(|words| (*said, seen_as(words, *said, is_one_attempt))))
            .collect();
        for first in &all {
            for second in &all {
                check(is_one_attempt, &mut Asking::new(is_one_attempt, false), &[*first, *second]);
            }
        }
    }
}

fn locker_of(answer: &Answer) -> Option<&Unsettled> {
    match answer {
        Answer::Busy { unsettled, .. } | Answer::Failed { unsettled, .. } => unsettled.as_ref(),
        Answer::Gone | Answer::Acquired(_) => None,
    }
}

/// Shows: S19.
#[test]
fn no_step_forgets_a_locker() {
    every_conversation(|_, asking, conversation| {
        for (said, seen) in conversation {
            let has_locker = locker_of(&said.answer()).is_some();
            let kept = match asking.next(said.answer(), seen) {
                Step::Poll { .. } => true,
                Step::End { abandoned, .. } => abandoned.is_some(),
                Step::Refuse(answer) | Step::Wait(answer) => locker_of(&answer).is_some(),
                Step::Ask(_) => false,
            };
            assert_eq!(kept, has_locker, "{said:?}, {seen:?}");
        }
    });
}

/// Shows: S20.
#[test]
fn a_turn_ends_unless_the_store_knows_none_of_the_lockers() {
    every_conversation(|_, asking, conversation| {
        if conversation.iter().all(|(said, _)| matches!(said, Said::Gone)) {
            return;
        }
        // The answers repeat themselves, in turns.
        let ends = conversation
            .iter()
            .cycle()
            .take(40)
            .any(|(said, seen)| !matches!(asking.next(said.answer(), seen), Step::Ask(_) | Step::Poll { .. }));
        assert!(ends, "it goes on: {conversation:?}");
    });
}

/// Shows: S21.
#[test]
fn a_single_attempt_does_not_wait() {
    every_conversation(|is_one_attempt, asking, conversation| {
        for (said, seen) in conversation {
            let step = asking.next(said.answer(), seen);
            let waits = matches!(step, Step::Wait(_) | Step::Ask(QueuePlace::IfHeard | QueuePlace::OnceHeard));
            assert!(!(is_one_attempt && waits), "{conversation:?}: {step:?}");
            if let Step::Poll { after, .. } = step {
                assert!(after.is_zero() || is_one_attempt && asking.attempt.recall.is_some(), "{conversation:?}");
            }
        }
    });
}

/// Shows: S22.
#[test]
fn a_key_that_is_known_to_be_busy_fails_no_call_for_lack_of_time() {
    every_conversation(|_, asking, conversation| {
        for (said, seen) in conversation {
            let was_busy = asking.attempt.is_busy;
            let step = asking.next(said.answer(), seen);
            assert!(asking.attempt.is_busy || !was_busy, "{conversation:?}");
            if was_busy && seen.is_over && !seen.is_closed && matches!(said, Said::NotExecuted | Said::UnknownPoll) {
                assert_eq!(said_by(&step), "end", "{conversation:?}");
            }
        }
    });
}

fn pauses(trip: Duration) -> Vec<u128> {
    let mut now = Moment::from_nanos(1_000_000_000);
    let mut recall = Recall::begin(now, trip);
    let mut pauses = Vec::new();
    while let Some(pause) = recall.pause(now) {
        pauses.push(pause.as_micros());
        now = now + pause + trip;
    }
    pauses
}

#[test]
fn it_asks_a_few_times_in_five_milliseconds_or_five_round_trips() {
    assert_eq!(pauses(Duration::ZERO), [200, 400, 800, 1600, 2000]);
    let slow = pauses(Duration::from_millis(20));
    assert!(slow.len() <= RECALL_TRIPS as usize, "{slow:?}");
    assert!(slow.len() >= 3, "{slow:?}");
}

#[test]
fn it_ends_where_the_clock_stands_still() {
    let now = Moment::from_nanos(1_000_000_000);
    let mut recall = Recall::begin(now, Duration::ZERO);
    assert_eq!((0..100).filter(|_| recall.pause(now).is_some()).count(), MOST_RECALLS as usize);
}
