//! Whether scripts see a client's subscription. A hand-over passes over whoever has none, so a client whose subscription is hidden from scripts,
//! by a proxy that subscribes in its place or at another server, would never be served in a queue.

use super::scripts::{Call, Form, SEES, Slack};
use crate::error::Error;
use crate::log;
use ::redis::{ServerError, Value};
use std::time::Duration;

/// What a script says of a subscription.
#[derive(Debug, PartialEq)]
pub(crate) enum Sight {
    Seen,
    Unseen,
    /// The server did not run the script, such as for lack of a right.
    Refused(ServerError),
    Unknown,
}

/// The call that asks.
pub(crate) fn call(form: Form, channel: &str) -> Call<'_> {
    Call {
        script: &SEES,
        form,
        keys: [channel, "", "", ""],
        key_count: 1,
        args: [""; 6],
        arg_count: 0,
        slack: Slack::None,
        is_confirmed: false,
    }
}

/// Reads the reply.
pub(crate) fn read(reply: Value) -> Sight {
    match reply {
        Value::Int(0) => Sight::Unseen,
        Value::Int(1..) => Sight::Seen,
        Value::ServerError(error) => Sight::Refused(error),
        _ => Sight::Unknown,
    }
}

/// How long to wait before a script that saw none is believed only if a second one sees none either: the server may have been replaced
/// between the subscription and the script.
pub(crate) const SECOND_LOOK: Duration = Duration::from_millis(100);

/// The error of a client whose subscription scripts do not see.
pub(crate) fn hidden(place: &str) -> Error {
    Error::unsupported(format!(
        "{place}: the subscription is confirmed, and scripts see no subscriber: a proxy on the way subscribes by itself, or at another \
         server. Connect the client past the proxy, or switch its hand-over off with listener(false)"
    ))
}

/// Says that a script could not look, for want of a right.
pub(crate) fn warn_of(form: Form, error: &Error) {
    if matches!(error, Error::Denied { .. }) {
        let right = match form {
            Form::Server => "+pubsub|numsub",
            Form::Cluster => "+pubsub|shardnumsub",
        };
        log::warn!(
            HAND_OVER,
            "a script may not ask who listens, and no hand-over works without the right {right}: {error}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_says_what_scripts_see() {
        let of = |line: &str| read(::redis::parse_redis_value(format!("{line}\r\n").as_bytes()).expect("a reply"));
        assert_eq!([":0", ":1", ":2", "$-1"].map(of), [Sight::Unseen, Sight::Seen, Sight::Seen, Sight::Unknown]);
        assert!(matches!(of("-NOPERM this user has no permissions to run the 'eval' command"), Sight::Refused(_)));
    }
}
