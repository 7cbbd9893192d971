//! What a reply says about the way of its call, and what to do next. Pure: nothing here sends anything.
//!
//! | reply | the call was | next |
//! |---|---|---|
//! | `MOVED slot place` | not executed | to that place, which owns the slot now |
//! | `MOVED` to the very node that answered | not executed | to the same place, by new connections: another server is behind its name |
//! | `ASK slot place` | not executed | to that place behind an `ASKING`, this once: the slot is moving there |
//! | `TRYAGAIN`, `CLUSTERDOWN`, `LOADING`, `READONLY`, `MASTERDOWN` | not executed | again after a pause, wherever the slot's owner is then |
//! | no connection, or a replica answers | not executed | to the owner by a newer map, if that is another node |
//! | any other, or none | executed, perhaps | that is the reply |
//!
//! 1. *Only a call that was certainly not executed is sent again*, and only by the caller that waits for it. So none is sent for a caller
//!    that has left, and none after its locker's release was answered.
//! 2. *A call is redirected at most [`MOST`] times.* From the second time on it pauses first: 10, 20, 40, 80 ms. Two nodes that send a call to
//!    and fro cannot keep it, nor be kept busy by it.
//! 3. *Pauses double* from 5 to 100 ms, and end with the caller's limit.
//!
//! An error that a script raised in its middle is the reply, whatever it says: what the script had written before stands, so the call must not
//! be sent again. Redis adds the position in the script to such an error, which tells it apart from one that the node itself has answered.

use super::timing::{AGAIN, DETOUR};
use ::redis::Value;
use std::time::Duration;

/// The most redirections of a call.
pub(crate) const MOST: u32 = 5;

/// What a reply says about the way of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
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
pub(crate) fn said(reply: &Value) -> Said<'_> {
    let Value::ServerError(error) = reply else { return Said::Answer };
    // An error that a script raised: what the script had written before stands.
    if error.details().is_some_and(|details| details.contains(", on @user_script:")) {
        return Said::Answer;
    }
    let place = || {
        let (_slot, place) = error.details()?.split_once(' ')?;
        // IPv6 addresses come without brackets.
        let (host, port) = place.rsplit_once(':')?;
        Some((host, port.parse().ok()?))
    };
    match error.code() {
        "MOVED" => place().map_or(Said::Later, |(host, port)| Said::Moved { host, port }),
        "ASK" => place().map_or(Said::Later, |(host, port)| Said::Ask { host, port }),
        "TRYAGAIN" => Said::TryAgain,
        "CLUSTERDOWN" | "LOADING" | "READONLY" | "MASTERDOWN" => Said::Later,
        _ => Said::Answer,
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
pub(crate) struct Course {
    redirections: u32,
    pauses: u32,
}

impl Course {
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
mod tests {
    use super::*;

    fn error(line: &str) -> Value {
        ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
    }

    #[test]
    fn each_reply_says_what_its_call_does_next() {
        for (line, expected) in [
            ("MOVED 3999 127.0.0.1:6381", Said::Moved { host: "127.0.0.1", port: 6381 }),
            ("MOVED 3999 node-1.example:6381", Said::Moved { host: "node-1.example", port: 6381 }),
            ("MOVED 3999 ::1:6381", Said::Moved { host: "::1", port: 6381 }),
            ("MOVED 3999 :6381", Said::Moved { host: "", port: 6381 }),
            ("MOVED 3999 ?:6381", Said::Moved { host: "?", port: 6381 }),
            ("ASK 3999 127.0.0.1:6381", Said::Ask { host: "127.0.0.1", port: 6381 }),
            ("MOVED", Said::Later),
            ("MOVED 3999", Said::Later),
            ("MOVED 3999 host", Said::Later),
            ("ASK 3999 host:99999", Said::Later),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Said::TryAgain),
            ("CLUSTERDOWN Hash slot not served", Said::Later),
            ("LOADING Redis is loading the dataset in memory", Said::Later),
            ("READONLY You can't write against a read only replica.", Said::Later),
            ("MASTERDOWN Link with MASTER is down", Said::Later),
            ("READONLY You can't write script: 5e3e, on @user_script:2.", Said::Answer),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 5e3e, on @user_script:2.",
                Said::Answer,
            ),
            ("NOSCRIPT No matching script.", Said::Answer),
            ("CROSSSLOT Keys in request", Said::Answer),
            ("NOPERM no", Said::Answer),
        ] {
            assert_eq!(said(&error(line)), expected, "{line}");
        }
        assert_eq!(said(&Value::Int(1)), Said::Answer);
    }

    #[test]
    fn redirections_are_bounded_and_pause_from_the_second_on() {
        let mut course = Course::default();
        let pauses: Vec<_> = (0..6).map(|_| course.redirect().map(|pause| pause.as_millis())).collect();
        assert_eq!(pauses, [Some(0), Some(10), Some(20), Some(40), Some(80), None]);
    }

    #[test]
    fn pauses_double_to_the_longest() {
        let mut course = Course::default();
        let pauses: Vec<_> = (0..7).map(|_| course.pause().as_millis()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 100, 100]);
        (0..100).for_each(|_| assert_eq!(course.pause().as_millis(), 100));
    }
}
