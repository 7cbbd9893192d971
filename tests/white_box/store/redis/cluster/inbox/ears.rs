use super::*;

const LINE: LineId = LineId(1);

fn ears() -> Ears {
    Ears::new("l", Waker::new().expect("sockets"))
}

fn failure() -> Error {
    Error::backend(BackendFailure::NotExecuted, "refused")
}

#[test]
fn a_slot_is_heard_from_its_confirmation_to_its_loss() {
    let ears = ears();
    assert!(ears.get_ready(70, "k", Duration::ZERO).is_err());
    let now = Instant::now();
    assert_eq!(ears.take_due(now), [70]);
    assert!(ears.take_due(now).is_empty(), "it was taken");
    ears.ask(&[70], LINE);
    assert!(!ears.hears(70));
    assert_eq!(ears.confirm(70, LINE).expect("asked for"), ["k"], "whose thread went on");
    assert!(ears.hears(70) && !ears.hears(6));
    assert!(ears.get_ready(70, "k", Duration::ZERO).is_ok());
    assert!(ears.lose(70, Some(LINE), None, |_| now));
    assert!(!ears.hears(70));
    assert_eq!(ears.take_due(now), [70]);
    ears.ask(&[70], LINE);
    assert_eq!(ears.confirm(70, LINE), Some(vec![]));
    assert!(ears.confirm(71, LINE).is_none() && !ears.hears(71), "nobody wants it");
}

/// A slot goes to and fro between two servers, and the answers come late.
#[test]
fn only_the_line_that_was_asked_last_has_a_say() {
    let ears = ears();
    let later = LineId(2);
    let now = Instant::now();
    let _ = ears.get_ready(1, "k", Duration::ZERO);
    ears.take_due(now);
    ears.ask(&[1], LINE);
    assert!(!ears.lose(1, Some(LINE), None, |_| now), "another owner");
    assert!(ears.confirm(1, LINE).is_none() && !ears.hears(1), "the earlier owner, late");
    assert_eq!(ears.take_due(now), [1], "it is subscribed all the same");
    ears.ask(&[1], later);
    assert!(ears.confirm(1, LINE).is_none() && !ears.hears(1));
    assert_eq!(ears.confirm(1, later).expect("asked for"), ["k"]);
    assert!(!ears.lose(1, Some(LINE), None, |_| now) && ears.hears(1), "the earlier line breaks");
    assert!(ears.lose(1, Some(later), None, |_| now) && !ears.hears(1));
}

#[test]
fn who_waits_for_a_slot_goes_on_when_it_is_heard_or_refused() {
    let ears = ears();
    const LONG: Duration = Duration::from_secs(20);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| ears.get_ready(1, "k", LONG));
        let refused = scope.spawn(|| ears.get_ready(2, "k", LONG));
        let mut due = Vec::new();
        while due.len() < 2 {
            due.extend(ears.take_due(Instant::now()));
        }
        ears.ask(&[1, 2], LINE);
        ears.confirm(1, LINE);
        ears.lose(2, Some(LINE), Some(failure()), |failures| {
            assert_eq!(failures, 1);
            Instant::now() + LONG
        });
        assert!(heard.join().expect("no panic").is_ok());
        assert_eq!(refused.join().expect("no panic").expect_err("refused").to_string(), failure().to_string());
    });
    assert!(ears.get_ready(2, "k", LONG).is_err(), "it is not tried again yet");
    assert!(ears.take_due(Instant::now()).is_empty() && ears.next_due().is_some());
    ears.hasten(|slot| slot == 2, Instant::now());
    assert_eq!(ears.take_due(Instant::now()), [2], "it has another owner");
    ears.close();
    assert!(ears.get_ready(3, "k", LONG).is_err() && begun.elapsed() < LONG);
}

#[test]
fn slots_that_nobody_needs_are_forgotten_and_the_others_stay() {
    let ears = ears();
    for slot in [1, 2] {
        let _ = ears.get_ready(slot, "k", Duration::ZERO);
    }
    ears.take_due(Instant::now());
    ears.ask(&[1, 2], LINE);
    [1, 2].iter().for_each(|slot| drop(ears.confirm(*slot, LINE)));
    ears.note_need(2, Duration::from_secs(1000));
    let now = Instant::now();
    assert!(ears.take_idle(now + IDLE_SLOT / 2).is_empty());
    assert_eq!(ears.take_idle(now + IDLE_SLOT + IDLE_SLOT / 2), [1]);
    assert!(!ears.hears(1) && ears.hears(2));
    // Too many: the oldest go first, and only as many as there are too many.
    for slot in 3..MANY as Slot + 10 {
        let _ = ears.get_ready(slot, "k", Duration::ZERO);
    }
    assert!(ears.take_idle(Instant::now()).is_empty(), "a thread that has got ready is about to wait");
    let gone = ears.take_idle(Instant::now() + READY);
    assert_eq!(gone, (3..11).collect::<Vec<_>>());
}

/// A thread waits for a slot that cannot be subscribed for now, and many others are there.
#[test]
fn a_slot_is_not_forgotten_under_a_thread_that_waits_for_it() {
    const LONG: Duration = Duration::from_secs(20);
    let ears = ears();
    for slot in 1..MANY as Slot + 10 {
        let _ = ears.get_ready(slot, "k", Duration::ZERO);
    }
    let long_after = Instant::now() + 2 * IDLE_SLOT;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ears.get_ready(0, "k", LONG));
        while !ears.state.lock().slots.contains_key(&0) {
            std::thread::yield_now();
        }
        let gone = ears.take_idle(long_after);
        assert!(gone.len() > MANY && !gone.contains(&0));
        assert_eq!(ears.take_due(long_after), [0]);
        ears.ask(&[0], LINE);
        assert!(ears.confirm(0, LINE).is_some());
        assert!(waits.join().expect("no panic").is_ok());
    });
}

/// A slot moves, and the reply to a join comes just then: nobody asks about a tenure with a long lease for hours.
#[test]
fn what_a_reply_says_is_noted_also_while_the_slot_is_unheard() {
    let ears = ears();
    let lease = Duration::from_secs(100_000);
    for slot in [1, 2] {
        let _ = ears.get_ready(slot, "k", Duration::ZERO);
    }
    let now = Instant::now();
    ears.take_due(now);
    ears.ask(&[1, 2], LINE);
    [1, 2].iter().for_each(|slot| drop(ears.confirm(*slot, LINE)));
    [1, 2].iter().for_each(|slot| assert!(ears.lose(*slot, Some(LINE), None, |_| now)));
    ears.note_need(1, lease);
    ears.note_need(3, lease);
    ears.take_due(now);
    ears.ask(&[1, 2], LINE);
    [1, 2].iter().for_each(|slot| drop(ears.confirm(*slot, LINE)));
    assert_eq!(ears.take_idle(now + READY + 2 * IDLE_SLOT), [2]);
    assert!(ears.hears(1), "whose tenure waits");
    ears.note_need(2, lease);
    assert!(!ears.state.lock().slots.contains_key(&2) && !ears.hears(3), "nobody has got ready there");
}
