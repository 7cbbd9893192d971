//! No script uses a key after it may have removed it. A node of a cluster that is giving a slot away has nothing to do with a key that
//! is gone: the script would end there, with the writes before it executed.

use super::scene::Scene;
use super::steps::Step;
use crate::support::RedisServer;
use std::collections::HashSet;

/// Commands whose first argument is no key.
const WITHOUT_KEY: [&str; 3] = ["time", "pubsub", "publish"];

#[test]
fn no_script_uses_a_key_that_it_has_removed() {
    let mut scene = Scene::new();
    // What a script has done to the one server is done to the other step by step, to see when a key goes.
    let other = RedisServer::start();
    let mut there = other.connection();
    let mut removals = 0;
    for step in Step::all() {
        scene.prepare(step.held, step.queue, step.broken_fence);
        if step.is_acquire() {
            scene.reconnect(step.warm);
        }
        redis::cmd("FLUSHALL").exec(&mut there).unwrap();
        for (key, dump) in scene.contents() {
            redis::cmd("RESTORE").arg(key).arg(0).arg(dump).exec(&mut there).unwrap();
        }
        let (_, executed) = scene.executed_during(|scene| step.run(&scene.store, |name| scene.locker(name)));
        let by_script: Vec<_> = executed.into_iter().filter(|command| command.by_script).collect();
        let mut gone = HashSet::new();
        for command in &by_script {
            let name = command.words[0].as_str();
            let Some(key) = command.words.get(1).filter(|_| !WITHOUT_KEY.contains(&name)) else { continue };
            assert!(!gone.contains(key), "{step:?} uses {key} again: {by_script:?}");
            let mut exists = || redis::cmd("EXISTS").arg(key).query::<bool>(&mut there).unwrap();
            let was_there = exists();
            redis::cmd(name).arg(&command.words[1..]).query::<redis::Value>(&mut there).unwrap();
            let mut exists = || redis::cmd("EXISTS").arg(key).query::<bool>(&mut there).unwrap();
            if was_there && !exists() {
                gone.insert(key);
                removals += 1;
            }
        }
    }
    assert!(removals > 20, "{removals} keys were removed");
}
