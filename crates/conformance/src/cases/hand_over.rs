//! Who gets a key that is given away.

use crate::suite::Suite;
use redis_dlock::port::{AcquireOutcome, ReleaseOutcome};
use std::time::Duration;

/// Shows: G7, G8, G10.
pub(crate) fn grants_in_the_order_of_waiting(suite: &Suite) {
    let a = suite.client();
    let holder = a.tenure("k");
    let mut last = holder.acquire();
    let clients = [suite.client(), suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let tenures = clients.each_ref().map(|client| client.waiter("k"));

    let mut releasing = &holder;
    for (n, (tenure, inbox)) in tenures.iter().zip(&mut inboxes).enumerate() {
        let behind = 2 - n as u64;
        assert_eq!(releasing.release(), ReleaseOutcome::Released { waiting: behind });
        let grant = inbox.hear_granted(tenure);
        assert!(grant.number > last.number);
        assert_eq!(grant.waiting, behind);
        assert!(tenure.holds());
        (releasing, last) = (tenure, grant);
    }
    assert_eq!(releasing.release(), ReleaseOutcome::Released { waiting: 0 });
    assert_eq!(suite.holder("k"), None);
    inboxes.iter_mut().for_each(crate::InboxReader::hear_nothing);
}

/// Shows: G10, L1.
pub(crate) fn skips_the_dead(suite: &Suite) {
    let holder = suite.client().holder("k");
    let dead: Vec<_> = (0..100).map(|_| suite.client().waiter("k")).collect();
    let (alive, mut inbox) = suite.listener();
    let winner = alive.waiter("k");
    let behind = suite.client().waiter("k");
    assert_eq!(suite.waiting("k"), 102);

    let waiting = 1 + suite.kept(100);
    assert_eq!(holder.release(), ReleaseOutcome::Released { waiting });
    assert_eq!(inbox.hear_granted(&winner).waiting, waiting);
    assert_eq!(behind.poll_waiting().holder.as_ref(), Some(&winner.locker));

    suite.outlast_the_unheard("k");
    let next = alive.waiter("k");
    // The one behind them is passed over for the first time.
    assert_eq!(winner.release(), ReleaseOutcome::Released { waiting: suite.kept(1) });
    assert_eq!(inbox.hear_granted(&next).waiting, suite.kept(1));
    dead.iter().for_each(crate::tenure::Tenure::poll_gone);
    suite.outlast_the_unheard("k");
    assert_eq!(next.release(), ReleaseOutcome::Released { waiting: 0 });
    behind.poll_gone();
}

/// Shows: L1.
pub(crate) fn skips_a_client_that_hung_up(suite: &Suite) {
    let client = suite.client();
    drop(client.listen());
    // A server may need a moment to see that a socket was closed.
    for n in 0..100 {
        let key = format!("k{n}");
        let holder = suite.client().holder(&key);
        client.waiter(&key);
        holder.release();
        if suite.holder(&key).is_none() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("still given to a client without an inbox");
}

pub(crate) fn gives_a_waiter_its_own_lease(suite: &Suite) {
    let holder = suite.client().holder("k");
    let (client, _inbox) = suite.listener();
    let waiter = client.tenure_with("k", suite.short());
    waiter.wait();
    holder.release();
    let found = suite.inspect("k");
    assert_eq!(found.holder.as_ref(), Some(&waiter.locker));
    assert!(suite.is_left(found.remaining, suite.short()));
}

/// Shows: L1, L2.
pub(crate) fn frees_the_key_when_all_waiters_are_dead(suite: &Suite) {
    let holder = suite.client().holder("k");
    let dead = [suite.client().waiter("k"), suite.client().waiter("k")];
    let waiting = suite.kept(2);
    assert_eq!(holder.release(), ReleaseOutcome::Released { waiting });
    assert_eq!(suite.inspect("k"), redis_dlock::port::Inspection::free().with_waiting(waiting));
    suite.outlast_the_unheard("k");
    assert_eq!(suite.client().tenure("k").acquire().waiting, 0);
    dead.iter().for_each(crate::tenure::Tenure::poll_gone);
}

/// Shows: G8, S5.
pub(crate) fn gives_a_free_key_to_the_head_before_the_asker(suite: &Suite) {
    suite.client().holder("k");
    let (waiter, mut inbox) = suite.heard_waiter("k");
    assert!(suite.store().delete("k"));

    let asker = suite.client().tenure("k");
    let busy = asker.fail();
    assert_eq!(busy.holder.as_ref(), Some(&waiter.locker));
    assert!(suite.is_left(busy.remaining, suite.long()));
    assert_eq!(inbox.hear_granted(&waiter).waiting, 0);
    asker.poll_gone();
}

/// Shows: G8, S5.
pub(crate) fn gives_a_free_key_to_the_head_and_queues_the_asker(suite: &Suite) {
    suite.client().holder("k");
    let dead = suite.client().waiter("k");
    let clients = [suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let waiter = clients[0].waiter("k");
    assert!(suite.store().delete("k"));

    let asker = clients[1].tenure("k");
    assert_eq!(asker.wait().holder.as_ref(), Some(&waiter.locker));
    assert_eq!(inboxes[0].hear_granted(&waiter).waiting, 1 + suite.kept(1), "the asker waits behind the winner");
    suite.outlast_the_unheard("k");
    waiter.release();
    assert_eq!(inboxes[1].hear_granted(&asker).waiting, 0);
    dead.poll_gone();
}

/// Shows: L1.
pub(crate) fn gives_a_free_key_to_the_asker_when_all_waiters_are_dead(suite: &Suite) {
    for wait in [false, true] {
        let first = suite.client().holder("k");
        let dead = suite.client().waiter("k");
        assert!(suite.store().delete("k"));
        let asker = suite.client().tenure("k");
        assert!(matches!(asker.ask(wait), AcquireOutcome::Acquired(grant) if grant.waiting == suite.kept(1)));
        first.poll_gone();
        assert!(asker.holds());
        suite.outlast_the_unheard("k");
        assert_eq!(asker.release(), ReleaseOutcome::Released { waiting: 0 });
        dead.poll_gone();
    }
}

/// Shows: G10, L1.
pub(crate) fn gives_a_free_key_to_a_polling_waiter_without_an_inbox(suite: &Suite) {
    suite.client().holder("k");
    let waiter = suite.client().tenure_with("k", suite.short());
    waiter.wait();
    let behind = suite.client().waiter("k");
    assert!(suite.store().delete("k"));
    assert_eq!(waiter.poll_acquired().waiting, 1);
    assert!(suite.is_left(suite.inspect("k").remaining, suite.short()));
    assert_eq!(behind.poll_waiting().holder.as_ref(), Some(&waiter.locker));
}

pub(crate) fn answers_a_polling_winner_instead_of_telling_it(suite: &Suite) {
    suite.client().holder("k");
    let (waiter, mut inbox) = suite.heard_waiter("k");
    assert!(suite.store().delete("k"));
    waiter.poll_acquired();
    suite.client().waiter("k");
    inbox.hear_contended(&waiter);
}

/// Shows: G8.
pub(crate) fn gives_a_free_key_to_the_live_head_not_to_the_polling_waiter(suite: &Suite) {
    suite.client().holder("k");
    let (head, mut inbox) = suite.heard_waiter("k");
    let second = suite.client().waiter("k");
    assert!(suite.store().delete("k"));

    assert_eq!(second.poll_waiting().holder.as_ref(), Some(&head.locker));
    assert_eq!(inbox.hear_granted(&head).waiting, 1);
    assert!(head.holds());
    assert_eq!(head.release(), ReleaseOutcome::Released { waiting: suite.kept(1) });
    suite.outlast_the_unheard("k");
    suite.client().holder("k");
    second.poll_gone();
}

/// Shows: L1.
pub(crate) fn gives_a_free_key_to_the_polling_waiter_past_the_dead(suite: &Suite) {
    suite.client().holder("k");
    let dead = suite.client().waiter("k");
    let second = suite.client().waiter("k");
    assert!(suite.store().delete("k"));
    assert_eq!(second.poll_acquired().waiting, suite.kept(1));
    suite.outlast_the_unheard("k");
    assert_eq!(second.release(), ReleaseOutcome::Released { waiting: 0 });
    dead.poll_gone();
}
