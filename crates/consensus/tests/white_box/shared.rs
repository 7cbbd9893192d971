//! Holds that share a session, where the answers to requests of one of them are lost.

use super::servers::{Creation, Lost, Servers, step, unanswered};
use crate::deadline::Deadline;
use crate::kv::Kv;
use crate::names::Names;
use crate::store::ConsensusStore;
use redis_dlock::Error;
use redis_dlock::port::{
    AcquireOutcome, Claim, ExtendOutcome, Limit, LockProcessor, Operations, Outcome, ProbeOutcome, ReleaseOutcome,
    Request,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const ROOT: &str = "dlock/";
const LONG: Duration = Duration::from_secs(3600);

fn claim<'a>(key: &'a str, locker: &'a str) -> Claim<'a> {
    Claim::new(key, "a", locker, LONG)
}

fn take(store: &ConsensusStore, claim: &Claim<'_>) {
    let taken = store.acquire(claim, LONG).expect("an answer");
    assert!(matches!(taken, AcquireOutcome::Acquired(_)), "{} is not free: {taken:?}", claim.key);
}

fn extend(store: &ConsensusStore, claims: &[Claim<'_>]) {
    let requests: Vec<_> = claims.iter().map(|claim| Request::Extend(*claim)).collect();
    for (claim, outcome) in claims.iter().zip(store.run(&requests, Limit::Call(LONG))) {
        let is_extended = matches!(outcome, Ok(Outcome::Extend(ExtendOutcome::Extended(_))));
        assert!(is_extended, "{} is lost: {outcome:?}", claim.locker);
    }
}

fn holds(store: &ConsensusStore, claim: &Claim<'_>) {
    let probed = store.probe(claim, LONG).expect("an answer");
    assert!(matches!(probed, ProbeOutcome::Ours), "{} is lost: {probed:?}", claim.locker);
}

/// Extends holds so often that they are moved, but does not move them yet.
fn extend_long(store: &ConsensusStore, claims: &[Claim<'_>]) {
    (0..4).for_each(|_| extend(store, claims));
}

/// Has holds share a session.
fn share(store: &ConsensusStore, claims: &[Claim<'_>]) {
    extend_long(store, claims);
    store.between_rounds(LONG);
}

/// The holds of x and y.
fn both() -> [Claim<'static>; 2] {
    [claim("x", "a-1"), claim("y", "a-2")]
}

/// A store whose client holds x and y by one session.
fn sharing() -> (Servers, ConsensusStore) {
    let servers = Servers::like_consul();
    let store = holding(&servers, &both());
    share(&store, &both());
    assert_eq!(session(&servers, "x"), session(&servers, "y"));
    (servers, store)
}

fn session(servers: &Servers, key: &str) -> String {
    servers.holder(&Names::new(ROOT).lock(key)).expect("a session")
}

/// A store whose client holds keys, each by a session of its own.
fn holding(servers: &Servers, claims: &[Claim<'_>]) -> ConsensusStore {
    let store = ConsensusStore::new(Arc::new(servers.clone()), ROOT);
    claims.iter().for_each(|claim| take(&store, claim));
    store
}

/// Claims of so many keys.
fn many(count: usize) -> Vec<Claim<'static>> {
    static NAMES: LazyLock<Vec<[String; 2]>> =
        LazyLock::new(|| (0..130).map(|n| [format!("k{n}"), format!("a-{n}")]).collect());
    NAMES[..count].iter().map(|[key, locker]| claim(key, locker)).collect()
}

/// A store whose client holds so many keys.
fn holding_many(count: usize) -> (Servers, ConsensusStore, Vec<Claim<'static>>) {
    let (servers, claims) = (Servers::like_consul(), many(count));
    let store = holding(&servers, &claims);
    (servers, store, claims)
}

/// A store of which nobody knows whether it has moved k onto the session of x and y. It has not.
fn undecided() -> (Servers, ConsensusStore) {
    let (servers, store) = sharing();
    let all = [claim("k", "a-3"), claim("y", "a-2")];
    take(&store, &all[0]);
    extend_long(&store, &all);
    servers.lose_next(Lost::NeverExecuted);
    store.between_rounds(LONG);
    (servers, store)
}

/// All ends well with the others, and nothing is left.
fn end(servers: &Servers, store: &ConsensusStore) {
    for _ in 0..3 {
        step();
    }
    extend(store, &both());
    both().iter().for_each(|claim| drop(store.release(claim, LONG).expect("an answer")));
    assert_eq!(servers.leftovers(), [], "left in the store");
}

/// A release of a moved hold is not answered. It is repeated, or settled, and the client takes the key again, and moves that hold, too.
pub(super) fn releases() {
    let (servers, store) = sharing();
    let all = [claim("k", "a-3"), claim("y", "a-2")];
    take(&store, &all[0]);
    share(&store, &all);
    servers.lose_next(Lost::some());
    assert!(store.release(&all[0], LONG).is_err());
    if thread_rng().gen_bool(0.5) {
        store.release(&all[0], LONG).expect("an answer");
    } else {
        store.settle(&all[0], LONG).expect("an answer");
    }
    let again = [claim("k", "a-4"), claim("y", "a-2")];
    take(&store, &again[0]);
    share(&store, &again);
    for _ in 0..3 {
        step();
        holds(&store, &again[0]);
    }
    store.release(&again[0], LONG).expect("an answer");
    end(&servers, &store);
}

/// A request that moves a hold is not answered, or executed twice and refused the second time. The hold goes on, and ends as any other.
fn moves_as(lost: Lost, extends: bool) {
    let (servers, store) = sharing();
    let store = Arc::new(store);
    let all = [claim("k", "a-3"), claim("y", "a-2")];
    take(&store, &all[0]);
    extend_long(&store, &all);
    servers.lose_next(lost);
    store.between_rounds(LONG);
    // A request may be executed while the hold is extended.
    let other = extends.then(|| {
        let store = Arc::clone(&store);
        thread::spawn(move || extend(&store, &[claim("k", "a-3"), claim("y", "a-2")]))
    });
    for _ in 0..3 {
        step();
        if extends {
            extend(&store, &all);
            assert!(matches!(store.extend(&all[0], LONG), Ok(ExtendOutcome::Extended(_))), "k is lost");
        }
        if thread_rng().gen_bool(0.5) {
            store.between_rounds(LONG);
        }
        holds(&store, &all[0]);
    }
    other.into_iter().for_each(|other| other.join().expect("no loss"));
    match thread_rng().gen_range(0..3) {
        0 => store.settle(&all[0], LONG).expect("an answer"),
        1 => {
            let released = store.release(&all[0], LONG).expect("an answer");
            assert!(matches!(released, ReleaseOutcome::Released { .. }), "k is lost: {released:?}");
        }
        _ => {
            let passed = store.hand_over(&all[0], &claim("k", "a-4"), LONG).expect("an answer");
            assert!(matches!(passed, ReleaseOutcome::Passed(_)), "k is lost: {passed:?}");
            extend(&store, &[claim("k", "a-4"), claim("y", "a-2")]);
            store.release(&claim("k", "a-4"), LONG).expect("an answer");
        }
    }
    take(&store, &claim("k", "a-5"));
    for _ in 0..3 {
        step();
        holds(&store, &claim("k", "a-5"));
    }
    store.release(&claim("k", "a-5"), LONG).expect("an answer");
    end(&servers, &store);
}

pub(super) fn moves() {
    moves_as(if thread_rng().gen_bool(0.3) { Lost::Twice } else { Lost::some() }, thread_rng().gen_bool(0.7));
}

/// A hold that may not be moved keeps no other from it, and is extended as before.
fn moves_some() {
    let (servers, store, claims) = holding_many(60);
    servers.keep(&Names::new(ROOT).lock("k0"), || Error::denied("no right"));
    share(&store, &claims);
    // After a pause of one round.
    (0..2).for_each(|_| store.between_rounds(LONG));
    let is_moved = |claim: &Claim<'_>| store.sessions.of(claim.locker).expect("a tenure").session.is_shared;
    assert!(!is_moved(&claims[0]) && claims[1..].iter().all(is_moved), "59 of 60");
    let before = servers.renewals();
    extend(&store, &claims);
    // Its own, and the two that others share: one of these it had to leave undecided.
    assert!(servers.renewals() - before <= 3);
}

/// A server that has just begun to lead does not know the shared session yet. Nobody else is asked about again.
fn renews_again() {
    let (servers, store, shared) = holding_many(60);
    share(&store, &shared);
    let all = many(70);
    all[60..].iter().for_each(|claim| take(&store, claim));
    let [before, looks] = [servers.begin_to_lead(), servers.looks()];
    extend(&store, &all);
    assert_eq!(servers.renewals() - before, 2 + 10);
    assert_eq!(servers.looks() - looks, 70 + 60);
}

/// No write is answered any more, as by a leader whose disk stalls: it renews sessions from its memory. All goes on as without moves, and one
/// round of them leaves few undecided.
fn moves_none() {
    let (servers, store, claims) = holding_many(60);
    extend_long(&store, &claims);
    servers.keep(ROOT, unanswered);
    for round in 1..=20 {
        store.between_rounds(LONG);
        let before = [servers.refusals(), servers.renewals(), servers.looks()];
        extend(&store, &claims);
        let after = [servers.refusals(), servers.renewals(), servers.looks()];
        let sent: Vec<_> = before.iter().zip(after).map(|(before, after)| after - before).collect();
        assert_eq!(sent, [0, 61, 60], "round {round}: no write, each session once, and each key");
    }
    // In the rounds 1, 3, 6, 11 and 20.
    assert_eq!(servers.refusals(), 5);
    servers.keep("nothing", unanswered);
    (0..40).for_each(|_| store.between_rounds(LONG));
    let before = servers.renewals();
    extend(&store, &claims);
    assert!(servers.renewals() - before <= 2, "all are decided, and the others moved");
}

/// No session to share is to be had: it is on the node of an agent, and would end with that one; or its creation has no answer.
fn creates_none(creation: Creation) {
    let (servers, store, claims) = holding_many(60);
    extend_long(&store, &claims);
    servers.create(creation);
    let before = servers.created();
    for _ in 1..=20 {
        store.between_rounds(LONG);
        extend(&store, &claims);
    }
    let sessions: std::collections::BTreeSet<_> = claims.iter().map(|claim| session(&servers, claim.key)).collect();
    assert_eq!(sessions.len(), 60, "none is moved");
    // One is on the node of an agent, which the store knows then; or in the rounds 1, 3, 6, 11 and 20.
    assert_eq!(servers.created() - before, if creation == Creation::OnAgents { 1 } else { 5 });
}

/// The session onto which holds were perhaps moved is ended, or their own: they are decided before the next extension but one.
fn loses_one_of_two() {
    let (servers, store) = sharing();
    let all = [claim("k", "a-3"), claim("y", "a-2")];
    take(&store, &all[0]);
    extend_long(&store, &all);
    let [own, shared] = ["k", "y"].map(|key| session(&servers, key));
    let is_moved = thread_rng().gen_bool(0.5);
    servers.lose_next(if is_moved { Lost::Executed } else { Lost::NeverExecuted });
    store.between_rounds(LONG);
    servers.end_session(if is_moved { &own } else { &shared }, Deadline::after(LONG)).expect("an answer");
    // Such a failure is tried again.
    let outcomes = store.run(&[Request::Extend(all[0])], Limit::Call(LONG));
    assert!(!matches!(outcomes[0], Ok(Outcome::Extend(ExtendOutcome::NotOurs(_)))), "k is lost");
    store.between_rounds(LONG);
    extend(&store, &all[..1]);
}

/// Then a new number has no answer, either. Nobody extends x any more, or a person ends the session of x and y: k is decided all the same.
fn decides_in_doubt(is_ended: bool) {
    let (servers, store) = undecided();
    let [k, y] = [claim("k", "a-3"), claim("y", "a-2")];
    servers.lose_next(Lost::NeverExecuted);
    assert!(matches!(store.extend_with_numbers(&k, LONG), Ok(ExtendOutcome::Extended(_))));
    let earlier = session(&servers, "x");
    if is_ended {
        servers.end_session(&earlier, Deadline::after(LONG)).expect("an answer");
        // Such a failure is tried again.
        drop(store.extend(&k, LONG));
    } else {
        store.sessions.age("a-1");
    }
    let all = if is_ended { vec![k] } else { vec![k, y] };
    for _ in 0..3 {
        store.between_rounds(LONG);
        extend(&store, &all);
    }
    let before = servers.renewals_of(&earlier);
    extend(&store, &all);
    assert_eq!(servers.renewals_of(&earlier), before, "it is renewed for ever");
}

/// A server that has just begun to lead has the shared session renewed once more, and not the own one of k. That lives from its own renewal on.
fn counts_from_the_renewal() {
    let (servers, store) = undecided();
    let own = session(&servers, "k");
    servers.begin_to_lead();
    extend(&store, &[claim("y", "a-2"), claim("k", "a-3")]);
    let session = store.sessions.of("a-3").expect("a tenure").session;
    assert_eq!(session.id, own);
    assert!(session.until <= servers.renewed_at(&own) + session.life.time, "it counts as living longer than it does");
}

/// Sessions that nobody shares live from the begin of the renewals of which their own is one, not from that of all.
fn counts_in_chunks() {
    let (servers, store, claims) = holding_many(130);
    extend(&store, &claims);
    let last = store.sessions.of(claims[129].locker).expect("a tenure").session;
    let first = servers.renewed_at(&session(&servers, claims[0].key));
    assert!(
        last.until >= first + last.life.time,
        "a hand-over renews it, and a later tenure creates one, before it must"
    );
}

/// One hold may not be written. The others leave a session of which one is not extended any more as soon as without that one.
fn retires_in_a_pause(rounds: usize) {
    let (servers, store, claims) = holding_many(60);
    servers.keep(&Names::new(ROOT).lock("k0"), || Error::denied("no right"));
    share(&store, &claims);
    for _ in 0..rounds {
        store.between_rounds(LONG);
        extend(&store, &claims);
    }
    let session = |claim: &Claim<'_>| store.sessions.of(claim.locker).expect("a tenure").session.id;
    let earlier = session(&claims[59]);
    store.sessions.age(claims[59].locker);
    let of_it = |claim: &&Claim<'_>| session(claim) == earlier;
    assert!(claims[..59].iter().filter(of_it).count() > 0);
    store.between_rounds(LONG);
    assert_eq!(claims[..59].iter().filter(of_it).count(), 0, "they keep it in the pause of the other one");
}

/// A client comes to have no node of its own when holds share a session already: none is created to move them onto.
fn creates_none_for_the_retired() {
    let (servers, store) = sharing();
    store.sessions.age("a-1");
    servers.create(Creation::OnAgents);
    let before = servers.created();
    for _ in 0..20 {
        store.between_rounds(LONG);
        extend(&store, &[claim("y", "a-2")]);
    }
    assert_eq!(servers.created() - before, 1);
}

/// Where nothing is shared, nothing is kept for it.
fn keeps_no_key() {
    let store = holding(&Servers::like_etcd(), &both());
    share(&store, &both());
    assert_eq!(store.sessions.to_move(0).len(), 0);
}

/// Its session is ended by a person: all are lost, each is told, and later ones share another session.
fn loses_it() {
    let (servers, store) = sharing();
    let earlier = session(&servers, "x");
    servers.end_session(&earlier, Deadline::after(LONG)).expect("an answer");
    let [x, y] = both();
    for outcome in store.run(&[Request::Extend(x), Request::Extend(y)], Limit::Call(LONG)) {
        assert!(matches!(outcome, Ok(Outcome::Extend(ExtendOutcome::NotOurs(_)))), "{outcome:?}");
    }
    let again = [claim("x", "a-3"), claim("y", "a-4")];
    again.iter().for_each(|claim| take(&store, claim));
    share(&store, &again);
    let [x, y] = ["x", "y"].map(|key| session(&servers, key));
    assert!(x == y && x != earlier, "{x}, {y}");
}

/// Nobody extends one of two holds any more. The other one leaves their session, which nobody renews from then on; no request deletes anything.
pub(super) fn retires() {
    let (servers, store) = sharing();
    let [x, y] = both();
    let earlier = session(&servers, "x");
    store.sessions.age(y.locker);
    if thread_rng().gen_bool(0.5) {
        servers.lose_next(Lost::some());
    }
    for _ in 0..4 {
        store.between_rounds(LONG);
        extend(&store, &[x]);
    }
    assert_ne!(session(&servers, "x"), earlier, "it is renewed for ever");
    assert_eq!(session(&servers, "y"), earlier, "a copy may hold it");
    let before = servers.renewals_of(&earlier);
    extend(&store, &[x]);
    assert_eq!(servers.renewals_of(&earlier), before, "it is renewed for ever");
    servers.end_session(&earlier, Deadline::after(LONG)).expect("an answer");
    extend(&store, &[x]);
    let again = [x, claim("y", "a-3")];
    take(&store, &again[1]);
    share(&store, &again);
    again.iter().for_each(|claim| drop(store.release(claim, LONG).expect("an answer")));
    assert_eq!(servers.leftovers(), [], "left in the store");
}

#[test]
fn nothing_is_moved_without_a_session_that_lasts_and_few_are_asked_for() {
    for creation in [Creation::OnAgents, Creation::Unanswered] {
        shuttle::check_random(move || creates_none(creation), 1);
    }
}

#[test]
fn a_pause_keeps_nobody_on_a_retired_session() {
    for rounds in (60..130).step_by(10) {
        shuttle::check_random(move || retires_in_a_pause(rounds), 1);
    }
}

/// How many schedules of a scenario are played with faults: each mend was found within a tenth of them.
const SCHEDULES: usize = 3000;

/// Extends both holds together. Returns those that are told of a loss.
fn lost(store: &ConsensusStore) -> Vec<String> {
    let claims = both();
    let outcomes = store.run(&claims.map(Request::Extend), Limit::Call(LONG));
    let is_lost = |outcome: &_| matches!(outcome, Ok(Outcome::Extend(ExtendOutcome::NotOurs(_))));
    claims.iter().zip(outcomes).filter(|(_, outcome)| is_lost(outcome)).map(|(claim, _)| claim.key.to_owned()).collect()
}

/// Whatever a thread asks about a hold, it is told of no loss, also if a server has just begun to lead.
fn keeps(store: &ConsensusStore, claim: &Claim<'_>) {
    let is_lost = match thread_rng().gen_range(0..3) {
        0 => matches!(store.extend(claim, LONG), Ok(ExtendOutcome::NotOurs(_))),
        1 => matches!(store.extend_with_numbers(claim, LONG), Ok(ExtendOutcome::NotOurs(_))),
        _ => matches!(store.probe(claim, LONG), Ok(ProbeOutcome::NotOurs(_))),
    };
    assert!(!is_lost, "{} is lost", claim.locker);
}

/// Repeats a request of which any number may fail.
fn until_answered<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        if let Ok(answer) = ask() {
            return answer;
        }
    }
}

/// Some threads extend and probe two holds while one of them moves them.
fn at_once(faults: u32) {
    let servers = Servers::like_consul();
    let store = Arc::new(holding(&servers, &both()));
    (0..3).for_each(|_| extend(&store, &both()));
    servers.set_faults(faults);
    let ask_some = |n: usize| {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            for _ in 0..3 {
                match both().get(n) {
                    Some(claim) => keeps(&store, claim),
                    None => {
                        assert_eq!(lost(&store), [""; 0], "is lost");
                        store.between_rounds(LONG);
                    }
                }
            }
        })
    };
    let threads: Vec<_> = (0..3).map(ask_some).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no loss"));
    servers.set_faults(0);
    end(&servers, &store);
}

/// One of two holds ends while a thread extends both and moves them. Whoever has its key next keeps it, and the other hold goes on.
pub(super) fn ends(faults: u32) {
    let servers = Servers::like_consul();
    let store = Arc::new(holding(&servers, &both()));
    (0..3).for_each(|_| extend(&store, &both()));
    if thread_rng().gen_bool(0.3) {
        share(&store, &both());
    }
    servers.set_faults(faults);
    let of_both = {
        let store = Arc::clone(&store);
        let ask = move |_| {
            assert!(!lost(&store).contains(&"y".to_owned()), "y is lost");
            store.between_rounds(LONG);
        };
        thread::spawn(move || (0..3).for_each(ask))
    };
    let (ended, next) = (claim("x", "a-1"), claim("x", "a-9"));
    let passed = match thread_rng().gen_range(0..3) {
        0 => {
            until_answered(|| store.settle(&ended, LONG));
            false
        }
        1 => {
            match store.release(&ended, LONG) {
                Ok(outcome) => assert!(matches!(outcome, ReleaseOutcome::Released { .. }), "x is lost: {outcome:?}"),
                Err(_) => until_answered(|| store.settle(&ended, LONG)),
            }
            false
        }
        _ => match store.hand_over(&ended, &next, LONG) {
            Ok(outcome) => {
                assert!(matches!(outcome, ReleaseOutcome::Passed(_)), "x is lost: {outcome:?}");
                true
            }
            Err(_) => {
                [&ended, &next].iter().for_each(|claim| until_answered(|| store.settle(claim, LONG)));
                false
            }
        },
    };
    let another = ConsensusStore::new(Arc::new(servers.clone()), ROOT);
    let of_another = Claim::new("x", "b", "b-1", LONG);
    let (later, has_it) = if passed { (&*store, &next) } else { (&another, &of_another) };
    if !passed {
        until_answered(|| match later.acquire(has_it, LONG) {
            Ok(outcome) => {
                assert!(matches!(outcome, AcquireOutcome::Acquired(_)), "x is not free: {outcome:?}");
                Ok(())
            }
            Err(error) => {
                until_answered(|| later.settle(has_it, LONG));
                Err(error)
            }
        });
    }
    for _ in 0..4 {
        step();
        keeps(later, has_it);
    }
    if later.release(has_it, LONG).is_err() {
        until_answered(|| later.settle(has_it, LONG));
    }
    of_both.join().expect("no loss");
    servers.set_faults(0);
    let released = store.release(&claim("y", "a-2"), LONG).expect("an answer");
    assert!(matches!(released, ReleaseOutcome::Released { .. }), "y is lost: {released:?}");
    assert_eq!(servers.leftovers(), [], "left in the store");
}

#[test]
fn holds_that_are_moved_while_others_ask_about_them_are_not_lost() {
    shuttle::check_random(|| at_once(0), 300);
    shuttle::check_random(|| at_once(4), SCHEDULES);
}

#[test]
fn a_hold_that_ends_while_it_is_moved_takes_nothing_with_it() {
    shuttle::check_random(|| ends(0), 300);
    shuttle::check_random(|| ends(4), SCHEDULES);
}

played! {
    a_release_without_an_answer_ends_no_other_hold_and_no_later_one: releases, 300;
    a_move_without_an_answer_loses_nothing_and_keeps_nothing: moves, SCHEDULES;
    a_hold_that_may_not_be_moved_keeps_no_other_from_it: moves_some, 10;
    a_shared_session_that_a_server_does_not_know_yet_is_renewed_once_more: renews_again, 1;
    an_extension_sends_no_write_and_moves_without_an_answer_become_few: moves_none, 1;
    a_hold_with_two_sessions_survives_the_end_of_the_one_that_does_not_hold_it: loses_one_of_two, 300;
    an_undecided_hold_whose_new_number_has_no_answer_keeps_no_session: || decides_in_doubt(false), 20;
    an_undecided_hold_whose_new_number_has_no_answer_survives_the_end_of_the_other_session: || decides_in_doubt(true), 20;
    a_session_lives_from_the_begin_of_its_own_renewal: counts_from_the_renewal, 1;
    a_session_that_nobody_shares_lives_from_the_begin_of_its_chunk: counts_in_chunks, 1;
    nobody_creates_a_session_for_the_retired_that_would_end_with_an_agent: creates_none_for_the_retired, 1;
    a_store_that_shares_nothing_keeps_no_keys: keeps_no_key, 1;
    a_session_that_has_ended_is_shared_no_more: loses_it, 20;
    a_hold_that_nobody_extends_retires_the_session: retires, 300;
}
