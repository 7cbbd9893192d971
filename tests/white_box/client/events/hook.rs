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
    Event::SlowWait(SlowWait {
        key,
        waited: Duration::ZERO,
        thread: None,
        reason: None,
        circle: Vec::new(),
        error: None,
    })
}

/// Two queues, each with a function. Each function says on which thread it is called, and of what; that of slow waits then blocks until `go` has a
/// word for it.
struct Scene {
    hooks: [Arc<Hook>; 2],
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
        let functions = [Function::Losses(Box::new(on_lost)), Function::SlowWaits(Box::new(on_slow_wait))];
        let hooks = functions.map(|function| Hook::of([function]).expect("a function"));
        Self { hooks, losses, waits, go }
    }

    fn tell(&self, event: &Event) {
        let told = self.hooks.iter().filter_map(|hook| hook.queue(event));
        assert_eq!(told.map(FollowUp::finish).count(), 1, "one of them wants it");
    }
}

#[test]
fn without_functions_there_is_no_queue() {
    assert!(Hook::of([]).is_none());
}

/// Events come while the thread is there, busy or not, and after the end of the client. The thread tells all of them, and ends.
#[test]
fn one_thread_tells_all_and_ends_after_the_client() {
    let scene = Scene::new();
    scene.tell(&slow_wait());
    let first = scene.waits.recv_timeout(HANG).expect("it is told");
    for _ in 0..3 {
        scene.tell(&slow_wait());
        scene.go.send_timeout((), HANG).expect("it blocks");
        assert_eq!(scene.waits.recv_timeout(HANG), Ok(first));
    }
    scene.hooks.iter().for_each(|hook| hook.end());
    scene.tell(&slow_wait());
    scene.go.send_timeout((), HANG).expect("it blocks");
    assert_eq!(scene.waits.recv_timeout(HANG), Ok(first));
    scene.go.send_timeout((), HANG).expect("it blocks");
    let Scene { hooks, waits, .. } = scene;
    let weak = hooks.map(|hook| Arc::downgrade(&hook));
    let begun = std::time::Instant::now();
    while weak.iter().any(|hook| hook.strong_count() > 0) {
        assert!(begun.elapsed() < HANG, "its thread ends");
        thread::yield_now();
    }
    assert!(waits.is_empty());
}

#[test]
fn a_function_that_panics_is_called_again() {
    let (say, called) = unbounded();
    let that_panics = |word| {
        let say = say.clone();
        move || {
            say.send(word).expect("heard");
            panic!("the test wants it so");
        }
    };
    let (event, loss_hook, wait) = (that_panics("event"), that_panics("loss"), that_panics("wait"));
    let functions = [
        Function::Events(Box::new(move |_| event())),
        Function::Losses(Box::new(move |_| loss_hook())),
        Function::SlowWaits(Box::new(move |_| wait())),
    ];
    let hook = Hook::of(functions).expect("functions");
    for (event, told) in [(loss(), "loss"), (slow_wait(), "wait"), (loss(), "loss"), (slow_wait(), "wait")] {
        hook.queue(&event).expect("they want it").finish();
        assert_eq!([(); 2].map(|()| called.recv_timeout(HANG)), [Ok("event"), Ok(told)]);
    }
    hook.end();
}

/// The losses come while the thread of the other functions is in one that does not return.
/// Shows: G6.
#[test]
fn a_loss_never_waits_for_another_function() {
    let scene = Scene::new();
    for _ in 0..3 {
        scene.tell(&slow_wait());
        let blocked = scene.waits.recv_timeout(HANG).expect("it is told");
        scene.tell(&slow_wait());
        for _ in 0..3 {
            scene.tell(&loss());
            assert_ne!(scene.losses.recv_timeout(HANG).expect("it is told"), blocked);
        }
        // The functions of one queue wait for one another.
        assert!(scene.waits.is_empty());
        scene.go.send_timeout((), HANG).expect("it blocks");
        assert_eq!(scene.waits.recv_timeout(HANG), Ok(blocked));
        scene.go.send_timeout((), HANG).expect("it blocks");
    }
}
