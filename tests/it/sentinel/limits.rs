//! Calls end with their limits, whichever server of the service stands still.

use crate::limits::Scene;
use crate::support::sentinels::Service;
use rustix::process::Signal;

/// The master, and each of its Sentinels.
const MASTER: usize = 3;

/// Shows: G12, L3.
#[test]
fn calls_end_with_their_limits_while_the_master_stands_still() {
    play(&[&[MASTER]]);
}

/// Shows: G12, L3.
#[test]
fn calls_end_with_their_limits_while_sentinels_stand_still() {
    play(&[&[0], &[1], &[2], &[0, 1, 2]]);
}

/// Shows: G12, L3.
#[test]
fn calls_end_with_their_limits_while_the_master_and_sentinels_stand_still() {
    play(&[&[0, MASTER], &[1, 2, MASTER], &[0, 1, 2, MASTER]]);
}

/// Plays the scene once for each list of servers that stand still.
fn play(scenes: &[&[usize]]) {
    let service = Service::start();
    let scene = Scene::new(service.url(), vec!["one".to_owned(), "two".to_owned()]);
    let tell = |still: &[usize], signal: Signal| {
        for server in still {
            match service.sentinels.get(*server) {
                Some(sentinel) => sentinel.signal(signal),
                None => service.servers[0].signal(signal),
            }
        }
    };
    for still in scenes {
        scene.play(|| tell(still, Signal::STOP), || tell(still, Signal::CONT));
    }
}
