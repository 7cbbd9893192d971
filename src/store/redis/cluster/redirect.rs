//! What a reply says about where its call belongs, and what to do next. This file sends nothing.
//!
//! | reply | the call was | next |
//! |---|---|---|
//! | `MOVED slot place` | not executed | to that place, which owns the slot now |
//! | `MOVED` to the very node that answered | not executed | to the same place, by new connections: another server is at that place now |
//! | `ASK slot place` | not executed | to that place behind an `ASKING`, this one time: the slot is moving there |
//! | `TRYAGAIN`, `CLUSTERDOWN`, `LOADING`, `READONLY`, `MASTERDOWN` | not executed | again after a pause, wherever the slot's owner is then |
//! | no connection, or a replica answers | not executed | to the owner by a newer map, if that is another node |
//! | any other, or none | executed, perhaps | that is the reply |
//!
//! 1. *Only a call that was certainly not executed is sent again*, and only by the caller that waits for it. So none is sent for a caller
//!    that has left, and none after its locker's release was answered.
//! 2. *A call is redirected at most [`MOST`] times.* From the second time on it pauses first: 10, 20, 40, 80 ms. So if two nodes redirect a
//!    call to each other, it ends, and it does not keep them busy.
//! 3. *Pauses double* from 5 to 100 ms, and end with the caller's limit.
//!
//! An error that a script raised in its middle is the reply, whatever it says: what the script had written before remains, so the call must
//! not be sent again. Redis adds the position in the script to such an error. That distinguishes it from an error of the node itself.

use super::timing::{AGAIN, DETOUR};
use ::redis::Value;
use std::time::Duration;

/// The most redirections of a call.
pub(crate) const MOST: u32 = 5;

/// What a reply says about the way of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedirectReply<'a> {
    /// It is the reply.
    Answer,
    /// The slot belongs to another node, or this one is behind another connection.
    Moved { host: &'a str, port: u16 },
    /// The slot is moving to another node, and what the call needs is there.
    Ask { host: &'a str, port: u16 },
    /// The slot is moving, and what the call needs is at two nodes.
    TryAgain,
    /// This node cannot execute it now.
    Later,
}

/// Reads a reply.
pub(crate) fn redirect_reply(reply: &Value) -> RedirectReply<'_> {
    let Value::ServerError(error) = reply else { return RedirectReply::Answer };
    // A script raised the error. What the script had written before stays.
    if error.details().is_some_and(|details| details.contains(", on @user_script:")) {
        return RedirectReply::Answer;
    }
    let place = || {
        let (_slot, place) = error.details()?.split_once(' ')?;
        // IPv6 addresses come without brackets.
        let (host, port) = place.rsplit_once(':')?;
        Some((host, port.parse().ok()?))
    };
    match error.code() {
        "MOVED" => place().map_or(RedirectReply::Later, |(host, port)| RedirectReply::Moved { host, port }),
        "ASK" => place().map_or(RedirectReply::Later, |(host, port)| RedirectReply::Ask { host, port }),
        "TRYAGAIN" => RedirectReply::TryAgain,
        "CLUSTERDOWN" | "LOADING" | "READONLY" | "MASTERDOWN" => RedirectReply::Later,
        _ => RedirectReply::Answer,
    }
}

/// The words of an error reply, for a message.
pub(crate) fn words(reply: &Value) -> String {
    match reply {
        Value::ServerError(error) => format!("{} {}", error.code(), error.details().unwrap_or_default()),
        _ => String::new(),
    }
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedirectBudget {
    redirections: u32,
    pauses: u32,
}

impl RedirectBudget {
    /// Notes that the call is sent to another node. Returns the pause before that, or `None` if it was redirected too often.
    pub(crate) fn redirect(&mut self) -> Option<Duration> {
        self.redirections += 1;
        match self.redirections {
            1 => Some(Duration::ZERO),
            n if n > MOST => None,
            n => Some(DETOUR.after(n - 1)),
        }
    }

    /// Notes that the call is sent again because no node could execute it. Returns the pause before that.
    pub(crate) fn pause(&mut self) -> Duration {
        self.pauses += 1;
        AGAIN.after(self.pauses)
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/redirect.rs"]
mod tests;
