//! A loss can cross any step of the holder. These tests have every order of the two, as the workers record it, with each mistake in the counts.

use super::{Property, judge};
use crate::history::Event;

/// Returns the properties that the events, one a line, violate, each once.
#[track_caller]
fn broken(history: &str) -> Vec<Property> {
    let lines = history.lines().map(str::trim).filter(|line| !line.is_empty());
    let events: Vec<Event> = lines.map(|line| line.parse().unwrap()).collect();
    let mut broken: Vec<_> =
        judge(events, &mut Vec::new(), false).violations.into_iter().map(|violation| violation.property).collect();
    broken.dedup();
    broken
}

/// Thread 0.0 holds the lock once, until 1000 as far as it knows; thread 1.0 gets it at 2000.
fn around(middle: &str) -> Vec<Property> {
    let (before, after) = ("10 0.0 lock\n20 0.0 got 5 1 1000\n30 1.0 lock\n", "\n2000 1.0 got 6 1 3000");
    broken(&format!("{before}{middle}{after}"))
}

#[test]
fn a_loss_that_crosses_a_reentry_is_right_either_way() {
    for middle in [
        // The reentry comes first; the loss is seen at once, or later.
        "900 0.0 lock \n 1001 0.0 got 5 2 0 \n 1002 0.0 lost",
        "900 0.0 lock \n 950 0.0 got 5 2 1000 \n 1500 0.0 lost",
        // The loss comes first.
        "900 0.0 lock \n 1001 0.0 fail 1 lost \n 1002 0.0 lost",
        "900 0.0 lock \n 1001 0.0 fail 1 lost",
    ] {
        let depth = if middle.contains("got 5 2") { 2 } else { 1 };
        let unlocks: String = (0..depth)
            .rev()
            .map(|left| format!("\n1600 0.0 unlock \n 1601 0.0 lost \n 1601 0.0 fail {left} lost"))
            .collect();
        assert_eq!(around(middle), [], "still inside");
        assert_eq!(around(&format!("{middle}{unlocks}")), [], "{middle}");
    }
    assert_eq!(around("900 0.0 lock \n 1001 0.0 fail 2 lost"), [Property::X], "a reentry that fails and counts");
    assert_eq!(around("900 0.0 lock \n 950 0.0 got 5 1 1000"), [Property::X], "one that does not count");
}

#[test]
fn a_loss_that_crosses_an_inner_unlock_is_right_either_way() {
    let inner = |rest: &str| around(&format!("40 0.0 lock \n 50 0.0 got 5 2 1000 \n{rest}"));
    for rest in [
        "990 0.0 unlock \n 1001 0.0 left 1 \n 1002 0.0 lost",
        "990 0.0 unlock \n 1001 0.0 lost \n 1001 0.0 fail 1 lost",
        "1001 0.0 lost \n 1002 0.0 unlock \n 1003 0.0 lost \n 1003 0.0 fail 1 lost",
    ] {
        assert_eq!(inner(rest), [], "still inside");
        let outer = "\n1600 0.0 unlock \n 1601 0.0 lost \n 1601 0.0 fail 0 lost";
        assert_eq!(inner(&format!("{rest}{outer}")), [], "{rest}");
        let late = "\n2600 0.0 unlock \n 2601 0.0 lost \n 2601 0.0 fail 0 lost";
        assert_eq!(inner(&format!("{rest}{late}")), [], "beside the next holder");
    }
    assert_eq!(inner("990 0.0 unlock \n 1001 0.0 lost \n 1001 0.0 fail 2 lost"), [Property::X], "that leaves nothing");
    assert_eq!(inner("990 0.0 unlock \n 1001 0.0 lost \n 1001 0.0 fail 0 lost"), [Property::X], "that leaves all");
}

#[test]
fn a_loss_that_crosses_the_last_unlock_is_right_either_way() {
    for end in [
        "990 0.0 unlock \n 1001 0.0 lost \n 1001 0.0 fail 0 lost",
        "990 0.0 unlock \n 1001 0.0 left 0",
        "990 0.0 unlock \n 1700 0.0 unknown 0 no answer",
        // The answer comes when the next one has the lock already, of whatever it says.
        "990 0.0 unlock \n 2100 0.0 left 0",
        "990 0.0 unlock \n 2100 0.0 unknown 0 no answer",
        "990 0.0 unlock \n 2100 0.0 lost \n 2100 0.0 fail 0 lost",
        "1001 0.0 lost \n 2500 0.0 unlock \n 2600 0.0 fail 0 lost",
        // The process ends first: in the unlock, in a reentry, in a hold.
        "990 0.0 unlock",
        "990 0.0 lock",
        "990 0.0 valid 1000",
    ] {
        assert_eq!(around(end), [], "{end}");
        if end.contains(" 0 ") || end.contains("left 0") {
            let again = "3100 1.0 unlock \n 3200 1.0 fail 0 lost \n 3300 0.0 lock \n 3400 0.0 got 7 1 4000";
            assert_eq!(around(&format!("{end}\n{again}")), [], "{end}, and once more");
        }
    }
    assert_eq!(
        around("990 0.0 unlock \n 1001 0.0 lost \n 1001 0.0 fail 1 lost"),
        [Property::X],
        "that does not end it"
    );
    assert_eq!(around("990 0.0 unlock \n 995 0.0 left 1"), [Property::X]);
}

/// A process that stood still between the store's word and its own look: others may have had the lock since.
#[test]
fn a_hold_that_is_over_when_its_thread_is_told_is_right_before_and_after_others() {
    for until in [0, 900] {
        let late =
            format!("10 0.0 lock \n 20 1.0 lock \n 2000 1.0 got 6 1 3000 \n 2100 0.0 got 5 1 {until} \n 2101 0.0 lost");
        assert_eq!(broken(&late), []);
        let given_back = "2150 0.0 unlock \n 2160 0.0 fail 0 lost \n 2170 1.0 unlock \n 2180 1.0 left 0";
        assert_eq!(broken(&format!("{late}\n{given_back}\n2190 0.0 lock \n 2200 0.0 got 7 1 3200")), []);
    }
    // One that was valid when its thread was told is none of these.
    let valid = "10 0.0 lock \n 20 1.0 lock \n 2000 1.0 got 6 1 3000 \n 2100 0.0 got 5 1 2200";
    assert!(broken(valid).contains(&Property::X));
}

#[test]
fn a_hold_that_no_call_has_led_to_is_found() {
    assert_eq!(broken("10 0.0 lock \n 20 0.0 fail 1 the store has panicked"), [Property::X]);
    assert_eq!(broken("10 0.0 try \n 20 0.0 unknown 1 no answer"), [Property::X]);
}
