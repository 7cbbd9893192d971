//! What is denied in the middle of an operation: the answer says what was done.

use crate::suite::Suite;
use crate::tenure::Tenure;
use redis_dlock::port::ReleaseOutcome;

/// Shows: S6.
pub(crate) fn leaves_the_key_with_the_holder(suite: &Suite) {
    let (a, next) = (suite.client().holder("k"), suite.client().tenure("k"));
    for command in ["DEL", "SET", "INCR"] {
        suite.while_denied(&[command], || a.release_denied(Some(&next).filter(|_| command != "DEL")));
        assert!(a.holds(), "{command}");
        next.poll_gone();
    }
    let (client, mut inbox) = suite.listener();
    let dead = suite.client().waiter("k");
    let b = client.waiter("k");
    let refuse = |command, next_lockers: &[Option<&Tenure>]| {
        suite.while_denied(&[command], || next_lockers.iter().for_each(|next| a.release_denied(*next)));
        assert!(a.holds(), "{command}");
        assert_eq!(b.poll_waiting().holder.as_ref(), Some(&a.locker), "{command}");
        next.poll_gone();
    };
    // The dead one is passed over. Its time begins with the last of these.
    refuse("INCR", &[None, Some(&next)]);
    refuse("LPUSH", &[None, Some(&next)]);
    refuse("LREM", &[Some(&next)]);
    suite.outlast_the_unheard("k");
    // Now it is dropped.
    for command in ["INCR", "LPOP", "SET"] {
        refuse(command, &[None, Some(&next)]);
    }
    assert_eq!(a.release(), ReleaseOutcome::Released { waiting: 0 });
    inbox.hear_granted(&b);
    dead.poll_gone();
}

/// Shows: S4, S6.
pub(crate) fn leaves_those_who_are_passed_over(suite: &Suite) {
    let clients = [suite.client(), suite.client(), suite.client()];
    let mut inbox = clients[2].listen();
    let (a, next) = (clients[0].holder("k"), clients[0].tenure("k"));
    let (unheard, b) = (clients[1].waiter("k"), clients[2].waiter("k"));
    suite.while_denied(&["SET"], || a.release_denied(Some(&next)));
    assert!(a.holds());
    assert_eq!((suite.waiting("k"), a.extended().waiting), (2, 2));
    next.poll_gone();
    inbox.hear_nothing();
    // Both have a place. Whoever was to be given the key may stand before the one that was passed over.
    let mut inbox_of_unheard = clients[1].listen();
    assert_eq!(a.release(), ReleaseOutcome::Released { waiting: 1 });
    let mut both = [(&unheard, &mut inbox_of_unheard), (&b, &mut inbox)];
    both.sort_by_key(|(tenure, _)| !tenure.holds());
    for ((tenure, inbox), waiting) in both.into_iter().zip([1, 0]) {
        assert_eq!(inbox.hear_granted(tenure).waiting, waiting);
        tenure.release();
    }
}

/// Shows: S4, S6.
pub(crate) fn leaves_a_waiter_where_it_was(suite: &Suite) {
    let a = suite.client().holder("k");
    let clients = [suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let [b, c] = clients.each_ref().map(|client| client.waiter("k"));
    suite.store().delete("k");
    for command in ["SET", "INCR", "LPOP"] {
        suite.store().deny(&[command]);
        c.poll_denied();
        b.poll_denied();
        suite.client().tenure("k").ask_denied(true);
        suite.store().deny(&[]);
        assert_eq!((suite.holder("k"), suite.waiting("k")), (None, 2), "{command}");
    }
    suite.while_denied(&["LREM"], || b.release_denied(None));
    assert_eq!(c.poll_waiting().holder.as_ref(), Some(&b.locker));
    inboxes[0].hear_granted(&b);
    suite.while_denied(&["PEXPIRE"], || b.poll_denied());
    assert!(b.holds());
    b.release();
    inboxes[1].hear_granted(&c);
    a.poll_gone();
}

/// Shows: S6.
pub(crate) fn leaves_an_asker_nowhere(suite: &Suite) {
    for command in ["SET", "INCR"] {
        let a = suite.client().tenure("k");
        suite.while_denied(&[command], || a.ask_denied(true));
        a.poll_gone();
        assert_eq!(suite.store().leftovers(), [""; 0], "{command}");
    }
    let (a, b) = (suite.client().holder("k"), suite.client().tenure("k"));
    suite.store().deny(&["RPUSH"]);
    b.ask_denied(true);
    assert_eq!(b.fail().holder.as_ref(), Some(&a.locker));
    suite.store().deny(&[]);
    b.poll_gone();
    assert_eq!(suite.waiting("k"), 0);
}

/// Shows: L1.
pub(crate) fn tells_the_winner_when_the_queue_takes_no_more(suite: &Suite) {
    let (a, next) = (suite.client().holder("k"), suite.client().tenure("k"));
    let clients = [suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let [b, c] = clients.each_ref().map(|client| client.waiter("k"));
    suite.store().deny(&["RPUSH"]);
    assert!(matches!(a.release_to(&next), ReleaseOutcome::Queued(busy) if busy.holder.as_ref() == Some(&b.locker)));
    inboxes[0].hear_granted(&b);
    next.poll_gone();
    suite.store().delete("k");
    let d = suite.client().tenure("k");
    d.ask_denied(true);
    inboxes[1].hear_granted(&c);
    suite.store().deny(&[]);
    d.poll_gone();
    assert!(c.holds());
}

pub(crate) fn leaves_open_what_it_cannot_undo(suite: &Suite) {
    let (client, mut inbox) = suite.listener();
    let (a, b) = (suite.client().holder("k"), client.waiter("k"));
    // Made once: each client of some stores has a thread that keeps the machine busy.
    let others = [suite.client(), suite.client()];
    // The first waiter has left the queue when it cannot be given the key, and cannot be put back. A store whose fence is too far behind the
    // clock is refused to set it, before anything else is done. So a number is issued just before, again where this machine was slow.
    let is_unknown = |_| {
        // On a busy machine the rounds may outlive a lease.
        a.extended();
        b.poll_waiting();
        let (c, next) = (others[0].holder("other"), others[1].tenure("other"));
        c.release_to(&next);
        next.release();
        suite.while_denied(&["SET", "LPUSH"], || a.releases_unknown())
    };
    assert!((0..1000).any(is_unknown));
    b.poll_gone();
    assert!(a.holds());
    inbox.hear_nothing();
}

/// Shows: G2, L1.
pub(crate) fn gives_no_key_to_the_locker_that_is_released(suite: &Suite) {
    let a = suite.client().holder("k");
    let clients = [suite.client(), suite.client()];
    let mut inboxes = clients.each_ref().map(|client| client.listen());
    let [b, c] = clients.each_ref().map(|client| client.waiter("k"));
    // As a script of version 0.1.0 leaves it when its LPOP is denied.
    suite.store().overwrite("k", &b.locker, Some(suite.long()));
    assert_eq!(b.release(), ReleaseOutcome::Released { waiting: 0 });
    inboxes[1].hear_granted(&c);
    inboxes[0].hear_nothing();
    suite.store().overwrite("k", &a.locker, Some(suite.long()));
    let alone = clients[0].waiter("k");
    suite.store().overwrite("k", &alone.locker, Some(suite.long()));
    assert_eq!(alone.release(), ReleaseOutcome::Released { waiting: 0 });
    assert_eq!((suite.holder("k"), suite.waiting("k")), (None, 0));
}
