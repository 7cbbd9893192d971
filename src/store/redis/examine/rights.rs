//! Whether the login may do what locks do.
//!
//! Each command is sent once, with arguments with which it changes nothing that anybody needs: about a key of its own that is a text, so that
//! the commands for lists and numbers are refused after the rights were checked.

use super::{Examination, Subject};
use crate::error::Error;
use crate::store::redis::net::classify::classify;
use crate::store::redis::script::keys::{gapped_key, inbox_channel, slot_inbox_channel};
use crate::store::redis::script::scripts::Form;
use crate::store::redis::script::slot::slot_of;
use ::redis::Value;

/// How long the key lasts if it cannot be removed, in milliseconds.
const LASTS: &str = "10000";

/// A script that no server knows.
const UNKNOWN_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// The right that locks do not need.
const LISTS: &str = "+scan";

const WITHOUT_SCAN: &str =
    "give the login +scan if it is to list locks: list, dlock ls and dlock watch need it, and locks do not";

/// A command that tries a right.
struct Trial<'a> {
    right: &'static str,
    words: Vec<&'a str>,
    /// Whether it would leave something behind if the key were missing.
    needs_key: bool,
}

fn trial<'a>(right: &'static str, words: &[&'a str]) -> Trial<'a> {
    Trial { right, words: words.to_vec(), needs_key: false }
}

fn on_key<'a>(right: &'static str, words: &[&'a str]) -> Trial<'a> {
    Trial { needs_key: true, ..trial(right, words) }
}

impl Examination<'_> {
    pub(super) fn rights(&mut self, acks: bool) {
        let key = self.key.clone();
        let channel = match self.form {
            Form::Server => inbox_channel(&key),
            Form::Cluster => slot_inbox_channel(slot_of(key.as_bytes()), &key),
        };
        let (own, channel) = (gapped_key(&key), channel.as_str());
        let key = key.as_str();
        let mut trials = vec![
            trial("+get", &["GET", key]),
            trial("~DLOCK:1:*", &["GET", &own]),
            trial("+pttl", &["PTTL", key]),
            trial("+pexpire", &["PEXPIRE", key, LASTS]),
            trial("+pexpiretime", &["PEXPIRETIME", key]),
            on_key("+incr", &["INCR", key]),
            on_key("+decr", &["DECR", key]),
            trial("+llen", &["LLEN", key]),
            trial("+lindex", &["LINDEX", key, "0"]),
            trial("+lpop", &["LPOP", key]),
            trial("+lpos", &["LPOS", key, "x"]),
            trial("+lrem", &["LREM", key, "0", "x"]),
            on_key("+lpush", &["LPUSH", key, "x"]),
            on_key("+rpush", &["RPUSH", key, "x"]),
            trial("+time", &["TIME"]),
            trial("+info", &["INFO", "server"]),
            trial("+eval", &["EVAL", "return 1", "1", key]),
            trial(LISTS, &["SCAN", "0", "COUNT", "1"]),
            trial("+evalsha", &["EVALSHA", UNKNOWN_SCRIPT, "1", key]),
        ];
        match self.form {
            Form::Server => trials.extend([
                trial("+publish and &DLOCK:1:*", &["PUBLISH", channel, "hello"]),
                trial("+pubsub|numsub", &["PUBSUB", "NUMSUB", channel]),
            ]),
            Form::Cluster => trials.extend([
                trial("+spublish and &DLOCK:1:*", &["SPUBLISH", channel, "hello"]),
                trial("+pubsub|shardnumsub", &["PUBSUB", "SHARDNUMSUB", channel]),
                trial("+cluster|slots", &["CLUSTER", "SLOTS"]),
                trial("+asking", &["ASKING"]),
            ]),
        }
        if acks {
            trials.push(trial("+wait", &["WAIT", "0", "0"]));
        }
        let is_written = self.may(&trial("+set and ~DLOCK_*", &["SET", key, "examined", "PX", LASTS]));
        for trial in trials.iter().filter(|trial| is_written || !trial.needs_key) {
            self.may(trial);
        }
        self.may(&trial("+del", &["DEL", key]));
    }

    /// Tries a right. Returns `true` if the server has executed the command, or would have with other arguments.
    fn may(&mut self, trial: &Trial<'_>) -> bool {
        let error = match self.ask(&trial.words) {
            Ok(Value::ServerError(error)) => classify(&error, &self.key),
            Ok(_) => return self.has(trial),
            Err(error) => {
                self.failed(Subject::Rights, &error);
                return false;
            }
        };
        match error {
            Error::Denied { message } if trial.right == LISTS => {
                self.notice(Subject::Rights, message, WITHOUT_SCAN);
                false
            }
            Error::Denied { message } => {
                let advice = format!("give the login {}", trial.right);
                self.wrong(Subject::Rights, message, &advice);
                false
            }
            // A wrong type, a text that is no number, an unknown script.
            Error::Conflict { .. } => self.has(trial),
            Error::Backend { .. } if trial.needs_key || trial.right == "+evalsha" => self.has(trial),
            error => {
                self.wrong(
                    Subject::Writes,
                    error.to_string(),
                    "mend what the server names; until then it refuses locks",
                );
                false
            }
        }
    }

    fn has(&mut self, trial: &Trial<'_>) -> bool {
        self.fine(Subject::Rights, format!("the login has {}", trial.right));
        true
    }
}
