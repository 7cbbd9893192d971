//! Waiters that nobody hears for a moment: they are passed over, and keep their places.

use crate::suite::Suite;
use redis_dlock::port::{AcquireOutcome, Gap, Inspection, NotOurs, ReleaseOutcome};
use std::time::Duration;

/// Ends during no test.
const GAP: Gap = Gap::new(Duration::from_secs(30), Duration::from_secs(60));

fn released(waiting: u64) -> ReleaseOutcome {
    ReleaseOutcome::Released { waiting }
}

/// Shows: G8, S4.
pub(crate) fn gives_a_waiter_that_is_heard_again_its_old_place(suite: &Suite) {
    let holder = suite.client().holder("k");
    let clients = [suite.client(), suite.client(), suite.client()];
    let first = clients[0].waiter("k");
    let mut inboxes = [1, 2].map(|n: usize| clients[n].listen());
    let second = clients[1].waiter("k");
    assert_eq!(holder.release(), released(1));
    assert_eq!(inboxes[0].hear_granted(&second).waiting, 1, "the first one still waits");
    let third = clients[2].waiter("k");
    assert_eq!(first.poll_waiting().holder.as_ref(), Some(&second.locker));

    let mut inbox = clients[0].listen();
    assert_eq!(second.release(), released(1));
    assert_eq!(inbox.hear_granted(&first).waiting, 1, "before the one that came later");
    assert_eq!(first.release(), released(0));
    assert_eq!(inboxes[1].hear_granted(&third).waiting, 0);
}

/// Shows: L2.
pub(crate) fn drops_the_unheard_when_their_time_is_over(suite: &Suite) {
    let holder = suite.client().holder("k");
    let dead = [suite.client().waiter("k"), suite.client().waiter("k")];
    let (client, mut inbox) = suite.listener();
    let winner = client.waiter("k");
    assert_eq!(holder.release(), released(2));
    assert_eq!(inbox.hear_granted(&winner).waiting, 2);
    let next = client.waiter("k");
    suite.outlast_the_unheard("k");
    assert_eq!(suite.waiting("k"), 3, "time alone drops nobody");
    assert_eq!(winner.release(), released(0));
    assert_eq!(inbox.hear_granted(&next).waiting, 0);
    dead.iter().for_each(crate::tenure::Tenure::poll_gone);
}

/// Shows: L1.
pub(crate) fn frees_the_key_while_nobody_is_heard(suite: &Suite) {
    let holder = suite.client().holder("k");
    let kept = [suite.client().waiter("k"), suite.client().waiter("k")];
    assert_eq!(holder.release(), released(2));
    assert_eq!(suite.inspect("k"), Inspection::free().with_waiting(2));
    // The first one counts as heard when it asks.
    assert_eq!(kept[0].poll_acquired().waiting, 1);
    assert_eq!(kept[1].poll_waiting().holder.as_ref(), Some(&kept[0].locker));
}

/// Shows: S4, L1.
pub(crate) fn gives_the_key_to_a_waiter_that_asks_and_keeps_the_order_of_the_others(suite: &Suite) {
    let holder = suite.client().holder("k");
    let clients = [suite.client(), suite.client(), suite.client()];
    let [first, second, third] = clients.each_ref().map(|client| client.waiter("k"));
    assert!(suite.store().delete("k"));
    assert_eq!(second.poll_acquired().waiting, 2);
    holder.poll_gone();
    for waiter in [&third, &first] {
        assert_eq!(waiter.poll_waiting().holder.as_ref(), Some(&second.locker));
    }
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    assert_eq!(second.release(), released(1));
    assert_eq!(inboxes[0].hear_granted(&first).waiting, 1);
    assert_eq!(first.release(), released(0));
    assert_eq!(inboxes[2].hear_granted(&third).waiting, 0);
}

/// Shows: S4, L1.
pub(crate) fn gives_the_key_to_an_asker_while_nobody_is_heard(suite: &Suite) {
    for wait in [false, true] {
        let holder = suite.client().holder("k");
        let client = suite.client();
        let waiter = client.waiter("k");
        assert!(suite.store().delete("k"));
        let asker = suite.client().tenure("k");
        assert!(matches!(asker.ask(wait), AcquireOutcome::Acquired(grant) if grant.waiting == 1));
        holder.poll_gone();
        let mut inbox = client.listen();
        assert_eq!(asker.release(), released(0));
        assert_eq!(inbox.hear_granted(&waiter).waiting, 0);
        waiter.release();
    }
}

/// Shows: S4, L1.
pub(crate) fn passes_the_key_to_the_next_locker_while_nobody_is_heard(suite: &Suite) {
    let clients = [suite.client(), suite.client()];
    let (holder, next) = (clients[0].holder("k"), clients[0].tenure("k"));
    let waiter = clients[1].waiter("k");
    assert!(matches!(holder.release_to(&next), ReleaseOutcome::Passed(grant) if grant.waiting == 1));
    let last = clients[0].tenure("k");
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    assert!(matches!(next.release_to(&last), ReleaseOutcome::Queued(_)));
    assert_eq!(inboxes[1].hear_granted(&waiter).waiting, 1);
    assert_eq!(waiter.release(), released(0));
    inboxes[0].hear_granted(&last);
}

/// Shows: S4.
pub(crate) fn counts_the_time_anew_when_nobody_is_unheard_any_more(suite: &Suite) {
    let holder = suite.client().holder("k");
    let clients = [suite.client(), suite.client()];
    let early = clients[0].waiter("k");
    let mut inbox = clients[1].listen();
    let winner = clients[1].waiter("k");
    assert_eq!(holder.release(), released(1));
    assert_eq!(inbox.hear_granted(&winner).waiting, 1);
    let next = clients[1].waiter("k");
    let mut inbox_of_early = clients[0].listen();
    assert_eq!(winner.release(), released(1));
    assert_eq!(inbox_of_early.hear_granted(&early).waiting, 1);

    // The time that began with the first release is over.
    suite.outlast_the_unheard("k");
    let late = suite.client().waiter("k");
    assert_eq!(early.release(), released(1));
    assert_eq!(inbox.hear_granted(&next).waiting, 1);
    assert_eq!(next.release(), released(1), "it is passed over, and not dropped");
    assert_eq!(late.poll_acquired().waiting, 0);
}

/// Shows: S4, L2.
pub(crate) fn gives_each_of_the_unheard_a_time_of_its_own(suite: &Suite) {
    let holder = suite.client().holder("k");
    let clients = [suite.client(), suite.client()];
    let dead = suite.client().waiter("k");
    let mut inbox = clients[1].listen();
    let winner = clients[1].waiter("k");
    assert_eq!(holder.release(), released(1));
    assert_eq!(inbox.hear_granted(&winner).waiting, 1);
    let [late, next, last] = [0, 1, 1].map(|n: usize| clients[n].waiter("k"));

    // The time of the dead one is over. That of the late one begins.
    suite.outlast_the_unheard("k");
    assert_eq!(winner.release(), released(2));
    assert_eq!(inbox.hear_granted(&next).waiting, 2);
    dead.poll_gone();
    let mut inbox_of_late = clients[0].listen();
    assert_eq!(next.release(), released(1));
    assert_eq!(inbox_of_late.hear_granted(&late).waiting, 1, "before the one that came later");
    assert_eq!(late.release(), released(0));
    assert_eq!(inbox.hear_granted(&last).waiting, 0);
}

/// Shows: S4.
pub(crate) fn counts_the_time_anew_when_the_first_is_heard_again_and_polls(suite: &Suite) {
    for is_heard in [true, false] {
        let holder = suite.client().holder("k");
        let clients = [suite.client(), suite.client()];
        let first = clients[0].waiter("k");
        let second = suite.client().waiter("k");
        let mut inbox = clients[1].listen();
        let winner = clients[1].waiter("k");
        assert_eq!(holder.release(), released(2));
        assert_eq!(inbox.hear_granted(&winner).waiting, 2);
        let next = clients[1].waiter("k");
        let _inbox_of_first = is_heard.then(|| clients[0].listen());
        first.poll_waiting();
        inbox.hear_contended(&winner);
        first.release();

        // The time that began with the first release is over.
        suite.outlast_the_unheard("k");
        let kept = u64::from(is_heard);
        assert_eq!(winner.release(), released(kept));
        assert_eq!(inbox.hear_granted(&next).waiting, kept);
        suite.outlast_the_unheard("k");
        assert_eq!(next.release(), released(0));
        second.poll_gone();
    }
}

pub(crate) fn counts_those_who_are_kept(suite: &Suite) {
    let holder = suite.client().holder("k");
    let kept = [suite.client().waiter("k"), suite.client().waiter("k")];
    let (winner, _inbox) = suite.heard_waiter("k");
    holder.release();
    for waiting in [2, 1, 0] {
        assert_eq!(suite.waiting("k"), waiting);
        assert_eq!(winner.extended().waiting, waiting);
        assert_eq!(winner.poll_acquired().waiting, waiting);
        if let Some(leaving) = waiting.checked_sub(1) {
            kept[usize::try_from(leaving).unwrap()].release();
        }
    }
}

pub(crate) fn tells_the_holder_when_the_first_of_them_polls(suite: &Suite) {
    let holder = suite.client().holder("k");
    let kept = [suite.client().waiter("k"), suite.client().waiter("k")];
    let (winner, mut inbox) = suite.heard_waiter("k");
    holder.release();
    inbox.hear_granted(&winner);
    kept[1].poll_waiting();
    inbox.hear_nothing();
    kept[0].poll_waiting();
    inbox.hear_contended(&winner);
    kept[0].release();
    kept[1].poll_waiting();
    inbox.hear_contended(&winner);
    inbox.hear_nothing();
}

/// Shows: L2.
pub(crate) fn leaves_nothing_of_those_who_give_up(suite: &Suite) {
    let holder = suite.client().holder("k");
    let kept = [suite.client().waiter("k"), suite.client().waiter("k")];
    assert_eq!(holder.release(), released(2));
    for waiter in &kept {
        assert_eq!(waiter.release(), ReleaseOutcome::NotOurs(NotOurs::new(None)));
    }
    assert_eq!(suite.store().leftovers(), [""; 0]);
}

pub(crate) fn goes_on_behind_a_gap(suite: &Suite) {
    // A waiter that is kept, and one that has the key.
    let prepare = || {
        let holder = suite.client().holder("k");
        let clients = [suite.client(), suite.client()];
        let kept = clients[0].waiter("k");
        let inbox = clients[1].listen();
        let winner = clients[1].waiter("k");
        assert_eq!(holder.release(), released(1));
        assert_eq!(winner.release_with(None, GAP), released(1));
        assert_eq!(suite.inspect("k"), Inspection::free().with_waiting(1));
        assert_eq!(kept.poll_waiting().holder, None);
        drop(inbox);
        (clients, kept)
    };
    let (clients, kept) = prepare();
    let mut inbox = clients[0].listen();
    suite.store().pass_time_of_gaps("k", GAP.length);
    assert_eq!(suite.waiting("k"), 1);
    // The gap is over, and so is the time of the unheard. But it is heard.
    assert_eq!(suite.client().tenure("k").fail().holder.as_ref(), Some(&kept.locker));
    assert_eq!(inbox.hear_granted(&kept).waiting, 0);
    kept.release();

    // Whoever gives up in a gap leaves nothing but the gap.
    suite.store().pass_time_of_gaps("k", GAP.every);
    let (_, kept) = prepare();
    assert_eq!(kept.release(), ReleaseOutcome::NotOurs(NotOurs::new(None)));
    assert_eq!(suite.inspect("k"), Inspection::free());
    suite.store().pass_time_of_gaps("k", GAP.every);
    assert!(matches!(suite.client().tenure("k").ask(true), AcquireOutcome::Acquired(grant) if grant.waiting == 0));
}
