//! Leaders: campaigns, terms, and what follows a loss.

use crate::support::crew::{HANG, eventually, spawn, spawn_with};
use crate::support::lab::{Lab, config, is_listener_on, on_both_stores};
use crossbeam_channel::unbounded;
use redis_dlock::{CancelToken, Error, Leader, LossCause};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

on_both_stores!(
    terms_follow_one_another_in_the_order_of_the_campaigns,
    a_lost_term_is_followed_by_another_campaign,
    a_campaign_and_the_pause_before_it_end_when_they_are_cancelled,
    a_term_ends_by_a_panic_and_by_resigning,
    a_term_that_is_moved_away_keeps_the_next_campaign_waiting,
    a_closed_generator_ends_the_campaigns,
    a_closed_generator_ends_the_pause_before_a_campaign,
    no_pause_follows_a_term_that_was_not_lost,
);

fn leader(lab: &Lab) -> Leader {
    lab.generator().leader_with(config("x", 30_000)).unwrap()
}

/// Shows: G1, G7, G8.
fn terms_follow_one_another_in_the_order_of_the_campaigns(lab: &Lab) {
    const CANDIDATES: usize = 4;
    const TERMS: usize = 3;
    let first = leader(lab);
    let (say, terms) = unbounded();
    let leads = Arc::new(AtomicBool::new(false));
    let hold = first.lock().hold().unwrap();
    let candidates: Vec<_> = (0..CANDIDATES)
        .map(|n| {
            let (leader, say, leads) = (leader(lab), say.clone(), Arc::clone(&leads));
            let mut left = TERMS;
            let candidate = spawn(move || {
                leader.run(|term| {
                    assert!(!leads.swap(true, Ordering::SeqCst), "two lead at once");
                    say.send((n, term.token())).unwrap();
                    left -= 1;
                    assert!(term.is_valid() && term.ensure_valid().is_ok() && term.loss().is_none());
                    leads.store(false, Ordering::SeqCst);
                    if left == 0 { ControlFlow::Break(n) } else { ControlFlow::Continue(()) }
                })
            });
            if is_listener_on() {
                eventually("it campaigns", || lab.waiting(first.lock().key()) == n as u64 + 1);
            }
            candidate
        })
        .collect();
    hold.release().unwrap();
    let ended: Vec<_> = candidates.into_iter().map(|candidate| lab.join(candidate).unwrap()).collect();
    assert!(ended.into_iter().eq(0..CANDIDATES), "each returns its value");
    let terms: Vec<_> = terms.try_iter().collect();
    assert_eq!(terms.len(), CANDIDATES * TERMS);
    assert!(terms.is_sorted_by(|a, b| a.1 < b.1), "{terms:?}");
    if is_listener_on() {
        assert!(terms.iter().take(CANDIDATES).map(|(n, _)| *n).eq(0..CANDIDATES), "{terms:?}");
    }
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G6.
fn a_lost_term_is_followed_by_another_campaign(lab: &Lab) {
    let leader = lab.generator().leader_with(config("x", 1500)).unwrap();
    let key = leader.lock().key().to_owned();
    let mut tokens = Vec::new();
    let cause = lab.time.during(|| {
        let mut cause = None;
        leader.run(|term| {
            tokens.push(term.token());
            if tokens.len() == 2 {
                return ControlFlow::Break(cause.take());
            }
            lab.delete(&key);
            term.lost().recv().expect("it is told");
            assert!(!term.is_valid() && term.remaining().is_zero());
            cause = term.loss().map(|loss| loss.cause);
            ControlFlow::Continue(())
        })
    });
    assert_eq!(cause.unwrap(), Some(LossCause::Deleted));
    assert!(tokens[0] < tokens[1]);
}

fn a_campaign_and_the_pause_before_it_end_when_they_are_cancelled(lab: &Lab) {
    let (leader, other) = (leader(lab), leader(lab));
    let cancel = CancelToken::new();
    let hold = other.lock().hold().unwrap();
    let (candidate, token) = (leader.clone(), cancel.clone());
    let campaign = spawn(move || candidate.run_cancellable(&token, |_| ControlFlow::Break(())).unwrap());
    eventually("it campaigns", || leader.lock().queue_length() == 1);
    cancel.cancel();
    assert_eq!(campaign.join(), None);
    hold.release().unwrap();
    assert_eq!(leader.run_cancellable(&cancel, |_| ControlFlow::Break(())).unwrap(), None, "before it asks");
    // A campaign that has ended leaves nothing at its token, which may serve very many.
    let (cancel, unused) = (CancelToken::new(), format!("{:?}", CancelToken::new()));
    assert_eq!(leader.run_cancellable(&cancel, |_| ControlFlow::Break(())).unwrap(), Some(()));
    assert_eq!(format!("{cancel:?}"), unused);
    let long = lab.generator().leader_with(config("x", 3_600_000)).unwrap();
    let (cancel, key) = (CancelToken::new(), long.lock().key().to_owned());
    let mut terms = 0;
    let ended = lab.time.during(|| {
        long.run_cancellable(&cancel, |term| {
            terms += 1;
            lab.delete(&key);
            assert!(matches!(term.resign(), Err(Error::LeaseLost(_))));
            cancel.cancel();
            ControlFlow::<()>::Continue(())
        })
    });
    assert_eq!((ended.unwrap(), terms), (None, 1));
}

fn a_term_ends_by_a_panic_and_by_resigning(lab: &Lab) {
    let leader = leader(lab);
    let panics = spawn_with(&leader, move |candidate| candidate.run::<()>(|_| std::panic::resume_unwind(Box::new(()))));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics.join())).is_err());
    eventually("a panic ends the term", || lab.leftovers().is_empty());
    let other = self::leader(lab);
    let resigned = other.run(|term| {
        term.resign().unwrap();
        ControlFlow::Break(lab.holder(leader.lock().key()).is_none())
    });
    assert!(resigned.unwrap(), "the key is free while the closure goes on");
}

fn a_term_that_is_moved_away_keeps_the_next_campaign_waiting(lab: &Lab) {
    let leader = leader(lab);
    let (say, terms) = unbounded();
    let campaign = spawn_with(&leader, move |candidate| {
        let mut count = 0;
        candidate.run(|term| {
            count += 1;
            say.send(term).unwrap();
            if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    let term = terms.recv().unwrap();
    eventually("it campaigns again", || leader.lock().queue_length() == 1);
    assert!(term.is_valid() && terms.is_empty());
    let token = term.token();
    drop(term);
    assert!(terms.recv().unwrap().token() > token);
    campaign.join().unwrap();
}

fn a_closed_generator_ends_the_campaigns(lab: &Lab) {
    let generator = lab.generator();
    let leader = generator.leader_with(config("x", 30_000)).unwrap();
    let _hold = leader.lock().hold().unwrap();
    let campaign = spawn_with(&leader, move |candidate| candidate.run(|_| ControlFlow::Break(())));
    eventually("it campaigns", || leader.lock().queue_length() == 1);
    generator.close();
    assert!(matches!(campaign.join(), Err(Error::ShutDown)));
}

/// The pauses together would be longer than a test may take.
fn a_closed_generator_ends_the_pause_before_a_campaign(lab: &Lab) {
    let start = Instant::now();
    for _ in 0..10 {
        let generator = lab.generator();
        let leader = generator.leader_with(config("x", 3_600_000)).unwrap();
        let (say, lost) = unbounded();
        let (candidate, (go_on, deleted)) = (leader.clone(), unbounded::<()>());
        let campaign = spawn(move || {
            candidate.run(|term| {
                say.send(()).unwrap();
                deleted.recv().unwrap();
                assert!(matches!(term.resign(), Err(Error::LeaseLost(_))));
                say.send(()).unwrap();
                ControlFlow::<()>::Continue(())
            })
        });
        lost.recv().unwrap();
        lab.delete(leader.lock().key());
        go_on.send(()).unwrap();
        lost.recv().unwrap();
        generator.close();
        assert!(matches!(campaign.join(), Err(Error::ShutDown)));
    }
    assert!(start.elapsed() < HANG);
}

/// The pauses together would be longer than a test may take.
fn no_pause_follows_a_term_that_was_not_lost(lab: &Lab) {
    let leader = leader(lab);
    let mut terms = 0;
    let ended = spawn(move || {
        leader.run(|_| {
            terms += 1;
            if terms == 10 { ControlFlow::Break(terms) } else { ControlFlow::Continue(()) }
        })
    });
    assert_eq!(ended.join().unwrap(), 10);
}
