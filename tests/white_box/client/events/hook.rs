//! Unit tests of `src/client/events/hook.rs`.

use super::*;
use crate::error::LossCause;
use crate::event::SlowWait;
use crossbeam_channel::{Receiver, bounded, unbounded};
use std::thread::ThreadId;
use std::time::Duration;

/// Longer than any step takes.
const HANG: Duration = Duration::from_secs(20);

fn loss() -> Event {
    let (key, locker) = ("lost".to_owned(), "c-1".to_owned());
    Event::Lost(LeaseLoss { key, locker, cause: LossCause::Deadline, ago: Duration::ZERO })
}

fn slow_wait() -> Event {
    let key = "slow".to_owned();
    Event::SlowWait(SlowWait { key, waited: Duration::ZERO, thread: None, reason: None, circle: Vec::new() })
}

/// A function for each lane. Each says on which thread it is called, and of what; that of slow waits then blocks until `go` has a word for it.
struct Scene {
    hook: Arc<Hook>,
    losses: Receiver<ThreadId>,
    waits: Receiver<ThreadId>,
    go: crossbeam_channel::Sender<()>,
}

impl Scene {
    fn new() -> Self {
        let (say_loss, losses) = unbounded();
        let (say_wait, waits) = unbounded();
        let (go, gate) = bounded(0);
        let on_lost = move |_: &LeaseLoss| say_loss.send(thread::current().id()).expect("the test listens");
        let on_slow_wait = move |_: &SlowWait| {
            say_wait.send(thread::current().id()).expect("the test listens");
            let _ = gate.recv();
        };
        let slow_waits = [Function::SlowWaits(Box::new(on_slow_wait))];
        let hook = Hook::of(Some(Function::Losses(Box::new(on_lost))), slow_waits).expect("functions");
        Self { hook, losses, waits, go }
    }

    fn tell(&self, event: &Event) {
        self.hook.queue(event).finish();
    }

    /// Waits until one thread is left, which waits for events.
    fn rests(&self) {
        let begun = std::time::Instant::now();
        loop {
            let queue = self.hook.queue.lock();
            if queue.threads == 1 && queue.is_awaited {
                return;
            }
            drop(queue);
            assert!(begun.elapsed() < HANG, "{} threads", self.hook.queue.lock().threads);
            thread::yield_now();
        }
    }
}

#[test]
fn one_thread_tells_both_lanes_while_nothing_blocks() {
    let scene = Scene::new();
    scene.tell(&loss());
    let first = scene.losses.recv_timeout(HANG).expect("it is told");
    for _ in 0..3 {
        scene.rests();
        scene.tell(&slow_wait());
        assert_eq!(scene.waits.recv_timeout(HANG), Ok(first));
        scene.go.send_timeout((), HANG).expect("it blocks");
        scene.rests();
        scene.tell(&loss());
        assert_eq!(scene.losses.recv_timeout(HANG), Ok(first));
    }
    let weak = Arc::downgrade(&scene.hook);
    scene.hook.end();
    drop(scene);
    let begun = std::time::Instant::now();
    while weak.strong_count() > 0 {
        assert!(begun.elapsed() < HANG, "its thread ends");
        thread::yield_now();
    }
}

/// The losses come while the thread is in a function that does not return.
/// Shows: G6.
#[test]
fn a_lane_never_waits_for_the_other_one() {
    let scene = Scene::new();
    for _ in 0..3 {
        scene.tell(&slow_wait());
        let blocked = scene.waits.recv_timeout(HANG).expect("it is told");
        for _ in 0..3 {
            scene.tell(&loss());
            assert_ne!(scene.losses.recv_timeout(HANG).expect("it is told"), blocked);
            assert!(scene.hook.queue.lock().threads <= 2);
        }
        // One of the two is enough from now on.
        scene.go.send_timeout((), HANG).expect("it blocks");
        scene.rests();
    }
}

/// Both lanes have events when the thread comes: before it calls a function that may block, somebody else has the other lane.
#[test]
fn who_takes_a_lane_leaves_none_behind() {
    let scene = Scene::new();
    scene.tell(&loss());
    scene.losses.recv_timeout(HANG).expect("it is told");
    scene.rests();
    let pushed = {
        let mut queue = scene.hook.queue.lock();
        [slow_wait(), slow_wait(), loss()].map(|event| scene.hook.queue_in(&mut queue, &event))
    };
    assert!(pushed.iter().all(|follow_up| !follow_up.starts), "one waits for them");
    pushed.into_iter().for_each(FollowUp::finish);
    // The first of the waits blocks, and the second one waits for it, as functions of a lane do.
    scene.waits.recv_timeout(HANG).expect("it is told");
    scene.losses.recv_timeout(HANG).expect("it is told");
    assert!(scene.waits.is_empty());
    scene.go.send_timeout((), HANG).expect("it blocks");
    scene.waits.recv_timeout(HANG).expect("it is told");
    scene.go.send_timeout((), HANG).expect("it blocks");
    scene.rests();
}
