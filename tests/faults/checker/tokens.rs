//! Property F: tokens rise with every new hold, and are equal on reentry. A store that checks tokens only accepts updates of the value that it
//! accepted last.

use super::holds::Hold;
use super::windows::Lossy;
use super::{Property, Violation};

/// `holds` in the order in which they began.
pub(super) fn check(holds: &[Hold], lossy: &Lossy) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut claimed: Option<&Hold> = None;
    for (place, hold) in holds.iter().enumerate() {
        if hold.tokens.iter().any(|token| *token != hold.token()) {
            violations
                .push(Violation::of(Property::F, format!("reentry changed the token: {:?} in {hold:?}", hold.tokens)));
        }
        // Of holds that were never valid the order in the store is unknown, but for those that were over before it was asked for.
        let over = holds[..place].iter().filter(|before| before.since <= hold.asked);
        let mut earlier = over.chain(claimed.filter(|_| hold.is_claimed()));
        let before = earlier.find(|before| before.token() >= hold.token() && !lossy.allows_fall(before, hold));
        if let Some(before) = before {
            violations.push(Violation::of(Property::F, format!("the token did not rise from {before:?} to {hold:?}")));
        }
        if hold.is_claimed() && claimed.is_none_or(|before| before.token() < hold.token()) {
            claimed = Some(hold);
        }
    }
    violations
}

/// What a fenced store was asked to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) token: u64,
    /// The value that the update was made from, and the new one.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Checks the accepted updates of a fenced store, in the order of acceptance: each is made from what the one before left.
pub(crate) fn check_updates(accepted: &[Update]) -> Vec<Violation> {
    let pairs = accepted.windows(2).filter(|pair| pair[1].from != pair[0].to || pair[1].token < pair[0].token);
    pairs
        .map(|pair| {
            Violation::of(Property::F, format!("the fenced store lost an update: {:?}, then {:?}", pair[0], pair[1]))
        })
        .collect()
}
