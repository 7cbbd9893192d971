use super::*;

const LINE: SubscriberId = SubscriberId(1);

fn subscriptions() -> SlotSubscriptions {
    SlotSubscriptions::new("l", Waker::new().expect("sockets"))
}

/// Has slots be heard that somebody has got ready to hear of before.
fn hear(subscriptions: &SlotSubscriptions, slots: &[Slot], now: Instant) {
    subscriptions.take_due(now);
    subscriptions.ask(slots, LINE);
    slots.iter().for_each(|slot| _ = subscriptions.confirm(*slot, LINE));
}

fn failure() -> Error {
    Error::backend(BackendFailure::NotExecuted, "refused")
}

#[test]
fn a_slot_is_heard_from_its_confirmation_to_its_loss() {
    let subscriptions = subscriptions();
    assert!(subscriptions.get_ready(70, Duration::ZERO).is_err());
    let now = Instant::now();
    assert_eq!(subscriptions.take_due(now), [70]);
    assert!(subscriptions.take_due(now).is_empty(), "it was taken");
    subscriptions.ask(&[70], LINE);
    assert!(!subscriptions.hears(70));
    assert_eq!(subscriptions.confirm(70, LINE), Some(true), "a thread went on");
    assert!(subscriptions.hears(70) && !subscriptions.hears(6));
    assert!(subscriptions.get_ready(70, Duration::ZERO).is_ok());
    assert!(subscriptions.lose(70, Some(LINE), None, |_| now));
    assert!(!subscriptions.hears(70));
    assert_eq!(subscriptions.take_due(now), [70]);
    subscriptions.ask(&[70], LINE);
    assert_eq!(subscriptions.confirm(70, LINE), Some(false));
    assert!(subscriptions.confirm(71, LINE).is_none() && !subscriptions.hears(71), "nobody wants it");
}

/// A slot goes to and fro between two servers, and the answers come late.
#[test]
fn only_the_line_that_was_asked_last_has_a_say() {
    let subscriptions = subscriptions();
    let later = SubscriberId(2);
    let now = Instant::now();
    let _ = subscriptions.get_ready(1, Duration::ZERO);
    subscriptions.take_due(now);
    subscriptions.ask(&[1], LINE);
    assert!(!subscriptions.lose(1, Some(LINE), None, |_| now), "another owner");
    assert!(subscriptions.confirm(1, LINE).is_none() && !subscriptions.hears(1), "the earlier owner, late");
    assert_eq!(subscriptions.take_due(now), [1], "it is subscribed all the same");
    subscriptions.ask(&[1], later);
    assert!(subscriptions.confirm(1, LINE).is_none() && !subscriptions.hears(1));
    assert_eq!(subscriptions.confirm(1, later), Some(true));
    assert!(!subscriptions.lose(1, Some(LINE), None, |_| now) && subscriptions.hears(1), "the earlier line breaks");
    assert!(subscriptions.lose(1, Some(later), None, |_| now) && !subscriptions.hears(1));
}

#[test]
fn who_waits_for_a_slot_goes_on_when_it_is_heard_or_refused() {
    let subscriptions = subscriptions();
    const LONG: Duration = Duration::from_secs(20);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| subscriptions.get_ready(1, LONG));
        let refused = scope.spawn(|| subscriptions.get_ready(2, LONG));
        let mut due = Vec::new();
        while due.len() < 2 {
            due.extend(subscriptions.take_due(Instant::now()));
        }
        subscriptions.ask(&[1, 2], LINE);
        subscriptions.confirm(1, LINE);
        subscriptions.lose(2, Some(LINE), Some(failure()), |failures| {
            assert_eq!(failures, 1);
            Instant::now() + LONG
        });
        assert!(heard.join().expect("no panic").is_ok());
        assert_eq!(refused.join().expect("no panic").expect_err("refused").to_string(), failure().to_string());
    });
    assert!(subscriptions.get_ready(2, LONG).is_err(), "it is not tried again yet");
    assert!(subscriptions.take_due(Instant::now()).is_empty() && subscriptions.next_due().is_some());
    subscriptions.hasten(|slot| slot == 2, Instant::now());
    assert_eq!(subscriptions.take_due(Instant::now()), [2], "it has another owner");
    subscriptions.close();
    assert!(subscriptions.get_ready(3, LONG).is_err() && begun.elapsed() < LONG);
}

#[test]
fn slots_that_nobody_needs_are_forgotten_and_the_others_stay() {
    let subscriptions = subscriptions();
    for slot in [1, 2] {
        let _ = subscriptions.get_ready(slot, Duration::ZERO);
    }
    hear(&subscriptions, &[1, 2], Instant::now());
    subscriptions.note_need(2, Duration::from_secs(1000));
    let now = Instant::now();
    assert!(subscriptions.take_idle(now + IDLE_SLOT / 2).is_empty());
    assert_eq!(subscriptions.take_idle(now + IDLE_SLOT + IDLE_SLOT / 2), [1]);
    assert!(!subscriptions.hears(1) && subscriptions.hears(2));
    // Too many: the oldest go first, and only as many as there are too many.
    for slot in 3..MANY as Slot + 10 {
        let _ = subscriptions.get_ready(slot, Duration::ZERO);
    }
    assert!(subscriptions.take_idle(Instant::now()).is_empty(), "a thread that has got ready is about to wait");
    let gone = subscriptions.take_idle(Instant::now() + READY);
    assert_eq!(gone, (3..11).collect::<Vec<_>>());
}

/// A thread waits for a slot that cannot be subscribed for now, and many others are there.
#[test]
fn a_slot_is_not_forgotten_under_a_thread_that_waits_for_it() {
    const LONG: Duration = Duration::from_secs(20);
    let subscriptions = subscriptions();
    for slot in 1..MANY as Slot + 10 {
        let _ = subscriptions.get_ready(slot, Duration::ZERO);
    }
    let long_after = Instant::now() + 2 * IDLE_SLOT;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| subscriptions.get_ready(0, LONG));
        while !subscriptions.state.lock().slots.contains_key(&0) {
            std::thread::yield_now();
        }
        let gone = subscriptions.take_idle(long_after);
        assert!(gone.len() > MANY && !gone.contains(&0));
        assert_eq!(subscriptions.take_due(long_after), [0]);
        subscriptions.ask(&[0], LINE);
        assert!(subscriptions.confirm(0, LINE).is_some());
        assert!(waits.join().expect("no panic").is_ok());
    });
}

/// A slot moves, and the reply to a join comes just then: nobody asks about a tenure with a long lease for hours.
#[test]
fn what_a_reply_says_is_noted_also_while_the_slot_is_unheard() {
    let subscriptions = subscriptions();
    let lease = Duration::from_secs(100_000);
    for slot in [1, 2] {
        let _ = subscriptions.get_ready(slot, Duration::ZERO);
    }
    let now = Instant::now();
    hear(&subscriptions, &[1, 2], now);
    [1, 2].iter().for_each(|slot| assert!(subscriptions.lose(*slot, Some(LINE), None, |_| now)));
    subscriptions.note_need(1, lease);
    subscriptions.note_need(3, lease);
    hear(&subscriptions, &[1, 2], now);
    assert_eq!(subscriptions.take_idle(now + READY + 2 * IDLE_SLOT), [2]);
    assert!(subscriptions.hears(1), "whose tenure waits");
    subscriptions.note_need(2, lease);
    assert!(
        !subscriptions.state.lock().slots.contains_key(&2) && !subscriptions.hears(3),
        "nobody has got ready there"
    );
}
