//! Unit tests of `src/client/worker.rs`.

use super::*;
use crate::clock::SystemClock;
use crossbeam_channel::{Receiver, Sender, bounded};

struct Probe {
    worker: Worker,
    rounds: Sender<()>,
    gate: Receiver<()>,
}

fn probe(rounds: Sender<()>, gate: Receiver<()>) -> Arc<Probe> {
    let clock = Timer::new(Arc::new(SystemClock));
    Arc::new_cyclic(|this| Probe {
        worker: Worker::new("test-worker", &clock, &Process::this(), this, round),
        rounds,
        gate,
    })
}

fn round(probe: &Probe, _now: Moment) -> Moment {
    let _ = probe.rounds.send(());
    let _ = probe.gate.recv();
    Moment::NEVER
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.worker.stop();
    }
}

/// Shows: L6.
#[test]
fn the_last_handle_may_go_while_its_worker_works() {
    let (rounds, seen) = bounded(0);
    let (open, gate) = bounded(0);
    let probe = probe(rounds, gate);
    assert!(probe.worker.start().expect("thread"));
    probe.worker.wake_by(Moment::from_nanos(0));
    seen.recv().expect("a round");
    let weak = Arc::downgrade(&probe);
    drop(probe);
    open.send(()).expect("the round waits");
    // The worker drops the last handle, and so itself, without joining itself.
    assert!(seen.recv().is_err());
    assert!(weak.upgrade().is_none());
}

/// Shows: L6.
#[test]
fn stop_joins_and_refuses_a_new_start() {
    let (rounds, _seen) = bounded(8);
    let (open, gate) = bounded(8);
    drop(open);
    let probe = probe(rounds, gate);
    assert!(probe.worker.start().expect("thread"));
    probe.worker.stop();
    assert!(matches!(probe.worker.start(), Err(Error::ShutDown)));
}

#[test]
fn items_come_out_once_in_order() {
    let at = Moment::from_nanos;
    let mut schedule = Schedule::new();
    schedule.put(1, at(30), "c");
    schedule.put(2, at(10), "a");
    schedule.put(3, at(20), "b");
    schedule.put(1, at(5), "c");
    schedule.put(4, at(20), "d");
    assert_eq!(schedule.remove(3), Some("b"));
    assert_eq!(schedule.remove(3), None);
    assert_eq!(schedule.next(), at(5));
    assert_eq!(schedule.take_due(at(19), 1), ["c"]);
    assert_eq!(schedule.take_due(at(19), 9), ["a"]);
    assert_eq!(schedule.len(), 1);
    assert_eq!(schedule.take_due(at(20), 9), ["d"]);
    assert!(schedule.due.is_empty() && schedule.places.is_empty());
    assert_eq!(schedule.next(), Moment::NEVER);
}
