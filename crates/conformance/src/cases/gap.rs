//! Keys that are left free for those that only poll, as JVM DLock does.

use crate::suite::Suite;
use crate::tenure::Tenure;
use redis_dlock::port::{Busy, Gap, Inspection, NotOurs, ReleaseOutcome};
use std::time::Duration;

/// Far shorter than [`LONG`], and ends during no test but by [`end`].
const GAP: Gap = Gap::new(Duration::from_secs(30), Duration::from_secs(60));

const JVM: &str = "10.0.0.5-17";
const RELEASED: ReleaseOutcome = ReleaseOutcome::Released { waiting: 0 };
const FREE: Inspection = Inspection::free();

/// Lets the gap of a key be over.
fn end(suite: &Suite) {
    suite.store().pass_time_of_gaps("k", GAP.length);
}

/// Lets it be so long ago that the next one is due, and the queue forget it.
fn forget(suite: &Suite) {
    suite.store().pass_time_of_gaps("k", GAP.every);
    suite.client().tenure("k").ask(false);
}

fn assert_closed(busy: &Busy) {
    assert_eq!(busy.holder, None);
    let left = busy.remaining.unwrap();
    assert!(left <= GAP.length && left > GAP.length / 2, "{left:?}");
}

/// A tenure of a client of its own that has the key and ends with a gap.
fn make(suite: &Suite) {
    assert_eq!(suite.client().holder("k").release_with(None, GAP), RELEASED);
}

/// As [`make`], while this one waits.
fn make_before(suite: &Suite, waiter: &Tenure) {
    let holder = suite.client().holder("k");
    waiter.wait();
    assert_eq!(holder.release_with(None, GAP), ReleaseOutcome::Released { waiting: 1 });
}

pub(crate) fn leaves_the_key_free_for_pollers_alone(suite: &Suite) {
    make(suite);
    assert_eq!(suite.inspect("k"), FREE);
    assert_closed(&suite.client().tenure("k").fail());
    assert_eq!(suite.inspect("k"), FREE);
    assert!(suite.store().take("k", JVM, suite.long()));
    assert_eq!(suite.holder("k").as_deref(), Some(JVM));
    suite.store().delete("k");
    forget(suite);
}

pub(crate) fn is_waited_for_by_all_of_ours(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let before = client.tenure("k");
    make_before(suite, &before);
    let during = suite.client().tenure("k");
    assert_closed(&during.wait());
    assert_closed(&suite.client().tenure("k").fail());
    for waiter in [&before, &during, &before] {
        assert_closed(&waiter.poll_waiting());
    }
    assert_eq!(suite.inspect("k"), Inspection::free().with_waiting(2));

    suite.store().pass_time_of_gaps("k", GAP.length / 2);
    for busy in [during.poll_waiting(), suite.client().tenure("k").fail()] {
        assert_eq!(busy.holder, None);
        let left = busy.remaining.unwrap();
        assert!(left <= GAP.length / 2 && left > GAP.length / 4, "what is left of it: {left:?}");
    }
    inbox.hear_nothing();
    suite.store().pass_time_of_gaps("k", GAP.length / 2);
    assert_eq!(during.poll_waiting().holder.as_ref(), Some(&before.locker), "the first one is given the key");
    assert_eq!(inbox.hear_granted(&before).waiting, 1);
    forget(suite);
}

/// Shows: G8, S4.
pub(crate) fn keeps_the_queue_and_puts_the_next_locker_behind_it(suite: &Suite) {
    let clients = [suite.client(), suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let [one, two, three] = &clients;
    let (holder, next) = (one.holder("k"), one.tenure("k"));
    let dead = suite.client().waiter("k");
    inboxes[0].hear_contended(&holder);
    let (first, second) = (two.waiter("k"), three.waiter("k"));
    match holder.release_with(Some(&next), GAP) {
        ReleaseOutcome::Queued(busy) => assert_closed(&busy),
        other => panic!("{other:?}"),
    }
    assert_eq!(suite.inspect("k"), Inspection::free().with_waiting(4));
    assert_closed(&next.poll_waiting());
    holder.poll_gone();

    end(suite);
    assert_eq!(suite.waiting("k"), 4, "a gap that is over is no waiter either");
    assert_eq!(next.poll_waiting().holder, Some(first.locker.clone()));
    assert_eq!(inboxes[1].hear_granted(&first).waiting, 2 + suite.kept(1));
    suite.outlast_the_unheard("k");
    assert_eq!(first.release(), ReleaseOutcome::Released { waiting: 1 });
    dead.poll_gone();
    assert_eq!(inboxes[2].hear_granted(&second).waiting, 1);
    assert_eq!(second.release(), RELEASED);
    assert_eq!(inboxes[0].hear_granted(&next).waiting, 0);
    inboxes.iter_mut().for_each(crate::InboxReader::hear_nothing);
    forget(suite);
}

pub(crate) fn ends_with_the_first_acquire_if_nobody_waits(suite: &Suite) {
    let a = suite.client().tenure("k");
    let number = a.acquire().number;
    a.release_with(None, GAP);
    suite.client().tenure("k").fail();
    end(suite);
    let b = suite.client().tenure("k");
    let grant = b.acquire();
    assert!(grant.number > number);
    assert_eq!(grant.waiting, 0);
    assert_eq!(suite.waiting("k"), 0);
    assert_eq!(b.release(), RELEASED);
    suite.client().holder("k").release();
    forget(suite);
}

pub(crate) fn is_made_once_in_its_time_for_all_clients(suite: &Suite) {
    make(suite);
    end(suite);
    // Without a waiter, with a next locker, with a waiter, with both: all as ever.
    let (client, mut inbox) = suite.listener();
    assert_eq!(suite.client().holder("k").release_with(None, GAP), RELEASED);
    let (a, next) = (client.holder("k"), client.tenure("k"));
    assert!(matches!(a.release_with(Some(&next), GAP), ReleaseOutcome::Passed(grant) if grant.waiting == 0));
    let (other, mut other_inbox) = suite.listener();
    let waiter = other.waiter("k");
    inbox.hear_contended(&next);
    assert_eq!(next.release_with(None, GAP), RELEASED);
    other_inbox.hear_granted(&waiter);
    let (first, last) = (client.waiter("k"), other.tenure("k"));
    assert!(
        matches!(waiter.release_with(Some(&last), GAP), ReleaseOutcome::Queued(busy) if busy.holder.as_ref() == Some(&first.locker))
    );
    other_inbox.hear_contended(&waiter);
    assert_eq!(inbox.hear_granted(&first).waiting, 1);
    assert_eq!(first.release(), RELEASED);
    other_inbox.hear_granted(&last);

    suite.store().pass_time_of_gaps("k", GAP.every - GAP.length);
    assert_eq!(last.release_with(None, GAP), RELEASED);
    assert_closed(&suite.client().tenure("k").fail());
    forget(suite);
}

pub(crate) fn is_of_one_key_alone(suite: &Suite) {
    make(suite);
    let other = suite.client().tenure("l");
    other.acquire();
    other.release_with(None, GAP);
    for key in ["k", "l"] {
        assert_closed(&suite.client().tenure(key).fail());
    }
    for key in ["k", "l"] {
        suite.store().pass_time_of_gaps(key, GAP.every);
    }
    suite.client().holder("k");
    suite.client().holder("l");
}

/// Shows: G2, S3.
pub(crate) fn is_made_once_by_a_repeated_release(suite: &Suite) {
    let client = suite.client();
    let (a, next) = (client.holder("k"), client.tenure("k"));
    assert!(matches!(a.release_with(Some(&next), GAP), ReleaseOutcome::Queued(_)));
    suite.store().pass_time_of_gaps("k", GAP.length / 2);
    for _ in 0..2 {
        let nobodys = NotOurs::new(None);
        assert_eq!(a.release_with(Some(&next), GAP), ReleaseOutcome::NotOurs(nobodys.clone()));
        assert_eq!(a.release(), ReleaseOutcome::NotOurs(nobodys));
        assert_eq!(suite.waiting("k"), 1);
        assert!(next.poll_waiting().remaining.unwrap() <= GAP.length / 2);
    }
    assert!(suite.store().take("k", JVM, suite.long()));
    let jvms = NotOurs::new(Some(JVM.to_owned()));
    assert_eq!(a.release_with(Some(&next), GAP), ReleaseOutcome::NotOurs(jvms));
    suite.store().delete("k");
    end(suite);
    assert_eq!(next.poll_acquired().waiting, 0);
    forget(suite);
}

/// Shows: S3.
pub(crate) fn is_not_made_by_a_stranger(suite: &Suite) {
    let a = suite.client().holder("k");
    let waiter = suite.client().waiter("k");
    let (stranger, next) = (suite.client().tenure("k"), suite.client().tenure("k"));
    assert_eq!(stranger.release_with(Some(&next), GAP), ReleaseOutcome::NotOurs(a.not_yours()));
    assert_eq!(waiter.release_with(None, GAP), ReleaseOutcome::NotOurs(a.not_yours()));
    assert!(a.holds());
    assert_eq!(a.release(), RELEASED);
    suite.client().holder("k").release();
    assert_eq!(suite.store().leftovers(), [""; 0]);
}

pub(crate) fn serves_one_poller_after_another(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let waiter = client.tenure("k");
    make_before(suite, &waiter);
    for jvm in ["10.0.0.5-17", "10.0.0.6-1", "jvm"] {
        assert!(suite.store().take("k", jvm, suite.long()));
        assert!(!suite.store().take("k", "another", suite.long()));
        let (polled, asked, seen) = (waiter.poll_waiting(), suite.client().tenure("k").fail(), suite.inspect("k"));
        for (holder, remaining) in
            [(polled.holder, polled.remaining), (asked.holder, asked.remaining), (seen.holder, seen.remaining)]
        {
            assert_eq!(holder.as_deref(), Some(jvm));
            assert!(remaining.unwrap() > GAP.length);
        }
        assert!(suite.store().delete("k"));
        assert_closed(&waiter.poll_waiting());
    }
    inbox.hear_nothing();
    end(suite);
    assert_eq!(waiter.poll_acquired().waiting, 0);
    forget(suite);
}

/// Shows: G8, S5.
pub(crate) fn is_over_when_a_poller_holds_the_key_past_it(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let waiter = client.tenure("k");
    make_before(suite, &waiter);
    assert!(suite.store().take("k", JVM, suite.long()));
    end(suite);
    assert_eq!(waiter.poll_waiting().holder.as_deref(), Some(JVM));
    suite.client().waiter("k");
    assert_eq!(suite.waiting("k"), 2);
    assert!(suite.store().delete("k"));
    // An asker finds the key free: the head is served before it, at once.
    assert_eq!(suite.client().tenure("k").wait().holder, Some(waiter.locker.clone()));
    assert_eq!(inbox.hear_granted(&waiter).waiting, 2);
    forget(suite);
}

/// Shows: S4.
pub(crate) fn outlives_the_queue(suite: &Suite) {
    // On a real server, the queue lives for two of these: far longer than the next few requests take.
    let brief = suite.short() / 4;
    let waiter = suite.client().tenure_with("k", brief);
    make_before(suite, &waiter);
    suite.client().tenure_with("k", brief).wait();
    suite.store().pass_time(brief * 3);
    assert_closed(&suite.client().tenure("k").fail());
    assert_eq!(suite.waiting("k"), 2, "nobody is forgotten in a gap");
    end(suite);
    waiter.poll_gone();
    assert_eq!(suite.client().holder("k").release(), RELEASED);
    forget(suite);
}

/// Shows: L2.
pub(crate) fn can_be_left_by_a_waiter(suite: &Suite) {
    let waiter = suite.client().tenure("k");
    make_before(suite, &waiter);
    assert_eq!(waiter.release(), ReleaseOutcome::NotOurs(NotOurs::new(None)));
    waiter.poll_gone();
    assert_eq!(suite.inspect("k"), FREE);
    assert_closed(&suite.client().tenure("k").fail());
    forget(suite);
}

/// Shows: L2.
pub(crate) fn leaves_nothing_behind(suite: &Suite) {
    let gap = Gap::new(suite.short() / 2, suite.short());
    for _ in 0..2 {
        let a = suite.client().holder("k");
        assert_eq!(a.release_with(None, gap), RELEASED);
        assert_ne!(suite.store().leftovers(), [""; 0]);
        suite.store().pass_time(suite.short());
        assert_eq!(suite.store().leftovers(), [""; 0]);
    }
}
