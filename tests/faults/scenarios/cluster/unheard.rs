//! A lock is released when its slot has gone to another node, and none of those who wait is heard there yet.

use super::super::unheard::{LEASE, Patience, bounds, eight, outsider, served};
use super::moved::move_slot;
use crate::checker::waits::Kept;
use crate::scene::Scene;
use crate::stage::Stage;
use crate::support::crew::{eventually, hang, spawn};
use crate::work::KEY;
use crate::worker::now;
use crossbeam_channel::{Receiver, Sender, bounded};

/// Shows: G8, G10, S4.
#[test]
fn waiters_that_are_unheard_when_their_slot_has_moved_keep_their_places() {
    after_a_move(None);
}

/// Shows: G8, G10, S4.
#[test]
fn waiters_that_are_unheard_when_a_replica_has_taken_over_keep_their_places() {
    released_unheard("Cluster: planned failover, lock released while nobody is heard", None, |scene| {
        let failover = scene.plan_failover(0);
        scene.promoted(&failover);
    });
}

pub(crate) fn after_a_move(mutant: Option<&'static str>) {
    released_unheard("Cluster: slot moved, lock released while nobody is heard", mutant, |scene| {
        move_slot(scene, |_, _| ());
    });
}

/// Another client alone is heard, and is given the lock. When it releases that, all hear, and are served in the order in which they came; the holder
/// came last.
fn released_unheard(name: &'static str, mutant: Option<&'static str>, go_over: impl FnOnce(&mut Scene)) {
    let setup = eight(name).in_cluster(LEASE).with(mutant);
    let report = Stage::open_patient_cluster().play(setup, bounds(), |scene| {
        let lock = outsider(&scene.server);
        let mut order = scene.held_and_waited_for(0);
        scene.fault();
        let at = now();
        order.iter().for_each(|process| scene.stop(*process));
        go_over(scene);
        assert!(order.iter().all(|process| !scene.heard().contains(process)), "they stand still");
        let patience = Patience::with(&scene.server);
        let ([tell_got, end], [got, is_over]) = channels();
        let other = spawn(move || {
            let guard = lock.lock().unwrap();
            tell_got.send(()).unwrap();
            is_over.recv().unwrap();
            let released = now();
            guard.unlock().unwrap();
            released
        });
        eventually("the other one waits", || scene.server.waiters_of(KEY.2).len() == order.len() + 1);
        scene.let_go(0);
        got.recv_timeout(hang()).expect("it is heard");
        order.iter().for_each(|process| scene.resume(*process));
        let all = scene.all_but(&[]);
        scene.wait_until_heard(&all);
        eventually("all wait", || scene.queue().len() == all.len());
        drop(patience);
        end.send(()).unwrap();
        let released = other.join();
        scene.kept.push(Kept { at, until: released });
        order.push(0);
        let served: Vec<_> = served(scene, released).into_iter().map(|(process, _)| process).collect();
        assert_eq!(served, order, "served in another order than they came");
    });
    report.assert_clean_without_loss();
}

fn channels() -> ([Sender<()>; 2], [Receiver<()>; 2]) {
    let [(a, b), (c, d)] = [(); 2].map(|()| bounded(1));
    ([a, c], [b, d])
}
