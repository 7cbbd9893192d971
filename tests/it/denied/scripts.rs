//! What each script leaves behind when the server refuses one command, or two.
//!
//! | the answer is | then |
//! |---|---|
//! | an outcome | the store is as the outcome says, and who was given the key is told |
//! | `Denied`, `Conflict` | the locker is where it was before: nothing was executed for it |
//! | an unknown outcome | only where two commands are refused: polls and releases settle it |

use super::commands;
use super::scene::{Scene, Stored};
use super::steps::{Came, Queue, Step, What, outcome_name};
use redis_dlock::{BackendFailure, Error};
use std::collections::{BTreeMap, BTreeSet};

fn is_unknown(result: &Result<Came, Error>) -> bool {
    matches!(result, Err(Error::Backend { failure: BackendFailure::Unknown, .. }))
}

/// Runs one step with these commands denied, and looks at what it says and what it leaves. Returns the commands that the
/// script called.
fn judge(scene: &mut Scene, step: &Step, denied: &[&str]) -> Vec<String> {
    scene.prepare(step.held, step.queue, step.broken_fence);
    if step.is_acquire() {
        scene.reconnect(step.warm);
    }
    let before = scene.stored();
    scene.deny(denied);
    let (result, called) = scene.commands_during(|scene| step.run(&scene.store, |name| scene.locker(name)));
    let after = scene.stored();
    let what = format!("{step:?} without {denied:?}: {}\nbefore {before:?}\nafter {after:?}", outcome_name(&result));
    let [locker, next] = [step.by, "next"].map(|name| scene.locker(name));
    let live: Vec<_> = before
        .queue
        .iter()
        .filter(|waiting| waiting.starts_with(['b', 'd']) && **waiting != scene.locker("dead"))
        .collect();

    let holder_queues = |stored: &Stored| stored.holder.as_ref().is_some_and(|holder| stored.queue.contains(holder));
    assert!(!holder_queues(&after) || holder_queues(&before), "who holds stands in the queue: {what}");
    assert!(after.holder_ends, "held for ever: {what}");
    // What another version left in the queue, and a gap then covers, needs LREM.
    let left_alone = denied.contains(&"lrem") && step.queue.iter().any(|entry| matches!(entry, Queue::Of("a")));
    match &result {
        Ok(came) => {
            let stands = after.queue.contains(&locker);
            match came {
                Came::Holds => assert_eq!(after.holder, Some(locker.clone()), "{what}"),
                Came::Waits => assert!(stands, "{what}"),
                Came::Nowhere | Came::Follows => assert!(!after.has(&locker) || left_alone, "{what}"),
                Came::Passed => assert!(after.holder == Some(next.clone()) && !stands, "{what}"),
                Came::Seen => assert_eq!(after, before, "{what}"),
            }
        }
        Err(Error::Denied { .. } | Error::Conflict { .. }) => {
            let of_a_release = matches!(step.what, What::Release { .. } | What::Break);
            assert_eq!(before.holder == Some(locker.clone()), after.holder == Some(locker.clone()), "{what}");
            // A release may drop what an ended locker has in the queue.
            assert!(of_a_release || before.queue.contains(&locker) == after.queue.contains(&locker), "{what}");
            assert!(!after.has(&next), "{what}");
        }
        Err(_) => assert!(is_unknown(&result) && (denied.len() > 1 || step.broken_fence), "{what}"),
    }
    if is_unknown(&result) {
        scene.raised += 1;
    } else {
        assert!(after.queue_ends || denied.contains(&"pexpire"), "the queue stands for ever: {what}");
        assert!(after.queue_ends || denied.len() > 1, "the queue stands for ever: {what}");
        let released = matches!(step.what, What::Release { .. });
        let fell_out = live.iter().find(|waiting| !(after.has(waiting) || released && ***waiting == locker));
        assert_eq!(fell_out, None, "{what}");
        if after.holder != before.holder
            && let Some(winner) = after.holder.as_ref().filter(|holder| live.contains(holder) && **holder != locker)
            && !denied.contains(&"publish")
        {
            scene.hear_grant(winner);
        }
    }
    scene.deny(&[]);
    if !step.broken_fence {
        scene.end_all();
    }
    called.into_iter().filter(|command| !["eval", "evalsha"].contains(&command.as_str())).collect()
}

/// Shows: S6.
#[test]
fn one_or_two_refused_commands_leave_what_the_answer_says() {
    let mut scene = Scene::new();
    let (mut refused, mut judged) = (BTreeSet::new(), 0);
    for step in Step::all() {
        let usual = judge(&mut scene, &step, &[]);
        let called_without: BTreeMap<_, _> =
            usual.iter().map(|first| (first.clone(), judge(&mut scene, &step, &[first]))).collect();
        for (first, called) in &called_without {
            for second in called.iter().filter(|second| *second != first) {
                // Where the second keeps the first from being called, it was the only one that counted. What is not usual is
                // called to take something back.
                let both = called_without.get(second).is_none_or(|called| second > first && called.contains(first));
                if both {
                    judge(&mut scene, &step, &[first, second]);
                    refused.insert(second.clone());
                    judged += 1;
                }
            }
            refused.insert(first.clone());
            judged += 1;
        }
    }
    assert!(judged > 300 && scene.raised > 0, "{judged} cases, {} raised errors", scene.raised);
    assert_eq!(refused, commands(), "a step reaches each command");
}
