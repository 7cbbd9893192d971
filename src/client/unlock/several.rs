//! Several unlocks at once: what goes back to the store goes in one batch.

use super::{AfterRelease, Unlock};
use crate::client::closing::Leaving;
use crate::client::give_back::{GiveBack, Repeat};
use crate::client::parts::Parts;
use crate::client::releases;
use crate::error::Error;
use crate::state::hold::Exit;
use crate::state::key::Key;
use crate::sync::thread;
use std::sync::Arc;

/// A tenure that is given back with others.
struct Returned<'c> {
    /// The place of its key among those that are unlocked.
    place: usize,
    back: GiveBack<'c>,
    // Dropped last: the end of the client waits for the release.
    _leaving: Leaving<'c>,
}

/// Does for several keys what is left to do after a thread has unlocked each of them once. Releases that nobody waits for are posted together. All
/// others, and what puts this client at the end of a queue, go in one batch, and are awaited; those that fail are tried again, in one batch.
/// Returns the outcome for each key, in their order.
pub(crate) fn unlock_all<'c>(
    parts: &'c Parts,
    unlocked: impl IntoIterator<Item = (&'c Arc<Key>, Exit)>,
    after: AfterRelease,
) -> Vec<Result<(), Error>> {
    let (mut outcomes, mut posted, mut returned) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (key, exit)) in unlocked.into_iter().enumerate() {
        let unlock = Unlock::new(parts, key, after);
        let outcome = unlock.end_hold(exit).map(|ended| {
            let leaving = (exit != Exit::Inner).then(|| Leaving(parts));
            let (Some(ended), Some(leaving)) = (ended, leaving) else { return };
            let back = unlock.plan(ended);
            if unlock.is_posted(&back) {
                posted.push((back, leaving));
            } else {
                returned.push(Returned { place, back, _leaving: leaving });
            }
        });
        outcomes.push(outcome);
    }
    let (posted, _leaving): (Vec<_>, Vec<_>) = posted.into_iter().unzip();
    GiveBack::post_all(parts, posted, |store, releases, limit| store.post_releases(releases, limit));
    while !returned.is_empty() {
        returned = give_back(parts, returned, &mut outcomes);
        if let Some(pause) = returned.iter().map(|returned| returned.back.pause()).min() {
            thread::sleep(pause);
        }
    }
    outcomes
}

/// Gives tenures back in one batch, and notes the outcomes for their keys. Returns those whose releases are to be tried again.
fn give_back<'c>(
    parts: &'c Parts,
    returned: Vec<Returned<'c>>,
    outcomes: &mut [Result<(), Error>],
) -> Vec<Returned<'c>> {
    // What is of an identity that a twin has, too, is not sent: see `twin.rs`.
    let (ours, twins): (Vec<_>, Vec<_>) =
        returned.into_iter().partition(|returned| parts.core.is_ours(&returned.back.tenure().locker));
    let now = parts.core.clock.now();
    let left = |returned: &Returned<'_>| returned.back.tenure().deadline().since(now);
    let longest = ours.iter().map(left).max().unwrap_or_default();
    let requests: Vec<_> = ours.iter().map(|returned| returned.back.request()).collect();
    let results = parts.core.batch(&requests, releases::release_limit(&parts.core, longest));
    drop(requests);
    for Returned { place, back, .. } in twins {
        outcomes[place] = back.given_back(Ok(()));
    }
    let mut again = Vec::new();
    for (mut returned, result) in ours.into_iter().zip(results) {
        let (place, left) = (returned.place, left(&returned));
        if returned.back.hands_over() {
            outcomes[place] = returned.back.answered(result, Repeat::Here);
            continue;
        }
        match returned.back.end_try(left, result) {
            Some(released) => outcomes[place] = returned.back.given_back(released),
            None => again.push(returned),
        }
    }
    again
}
