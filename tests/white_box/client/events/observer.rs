//! Unit tests of `src/client/events/observer.rs`.

use super::*;
use crate::error::BackendFailure;

/// Of two servers one is dead: its key fails again and again while the other key is answered.
#[test]
fn an_answer_about_another_key_does_not_end_an_outage_at_once() {
    let (say, events) = crossbeam_channel::unbounded();
    let told = move |event: &Event| say.send(format!("{event:?}")).expect("the test listens");
    let hooks = Hooks { on_event: Some(Function::Events(Box::new(told))), ..Hooks::default() };
    let observer = hooks.into_observer().expect("a function");
    let at = |ms| Moment::from_nanos(0) + Duration::from_millis(ms);
    let failed = Error::backend(BackendFailure::NotExecuted, "the test wants it so");
    observer.note_answer("lives", None, || at(0));
    for second in 1..10 {
        observer.note_answer("dead", Some(&failed), || at(1000 * second));
        observer.note_answer("lives", None, || at(1000 * second + 500));
    }
    // Nobody asks about the dead key any more.
    observer.note_answer("lives", None, || at(11_999));
    observer.note_answer("lives", None, || at(12_000));
    // A refusal is an answer.
    observer.note_answer("dead", Some(&failed), || at(20_000));
    observer.note_answer("dead", Some(&Error::ShutDown), || at(20_100));
    drop(observer);
    let told: Vec<_> = events.iter().collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].starts_with("StoreFailing") && told[2].starts_with("StoreFailing"), "{told:?}");
    assert_eq!(
        [&*told[1], &*told[3]],
        ["StoreBack(StoreBack { after: 11s })", "StoreBack(StoreBack { after: 100ms })"]
    );
}

#[test]
fn without_a_function_there_is_no_observer() {
    assert!(Hooks::default().into_observer().is_none());
    let hooks = Hooks { slow_after: Some(Duration::ZERO), ..Hooks::default() };
    assert!(hooks.into_observer().is_none());
}
