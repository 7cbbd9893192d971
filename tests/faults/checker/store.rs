//! Property O: nobody changes another's key. This module sees every command on the lock's key at the server, in the order of execution. It also finds
//! the tenures that ended with their lease without a release, for X.
//!
//! A script acts for the locker that it was called with. The mark of a delayed release belongs to its locker, too, and is no tenure.

use super::{Property, Violation};
use crate::support::monitor::Executed;
use redis_dlock::DelayedRelease;

/// How far the server's clock and that of its log may differ around the end of a lease. Either may be right within this time.
const BLUR: u64 = 2_000;

/// The lock's key in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    locker: String,
    /// In microseconds of the server's clock.
    ends: u64,
}

/// What the server's side shows.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) violations: Vec<Violation>,
    /// How many lockers got the key.
    pub(crate) tenures: usize,
    /// Tenures that ended with their lease.
    pub(crate) expired: Vec<Expired>,
}

/// A tenure that ended with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) locker: String,
    /// When, in microseconds of the server's clock.
    pub(crate) at: u64,
}

impl Held {
    fn is_of(&self, caller: &str) -> bool {
        self.locker == caller || DelayedRelease::of_locker(&self.locker).is_some_and(|mark| mark.locker == caller)
    }
}

impl From<Held> for Expired {
    fn from(held: Held) -> Self {
        Self { locker: held.locker, at: held.ends }
    }
}

#[derive(Default)]
struct Reader {
    seen: Seen,
    held: Option<Held>,
    /// The locker that the script was called with.
    caller: String,
    /// The holder at a `SET NX` around the end of its lease. The next command shows whether it was still there.
    doubt: Option<Held>,
    /// The caller of a plain attempt in the same case. The next command as holder shows who had the key.
    rival: Option<Held>,
}

/// Reads what was executed on `key`.
pub(crate) fn check(commands: &[Executed], key: &str) -> Seen {
    let mut reader = Reader::default();
    for command in commands {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        if !command.by_script {
            reader.begin(&words, key, command.at);
            if let ["set", name, locker, "NX", "PX", _] = words[..]
                && name == key
            {
                reader.attempt(locker, &words, command.at);
            }
        } else if words.get(1) == Some(&key) && !reader.caller.is_empty() {
            reader.read(&words, command.at);
        }
    }
    reader.begin(&[], key, u64::MAX);
    reader.expire(u64::MAX);
    reader.seen.expired.retain(|expired| DelayedRelease::of_locker(&expired.locker).is_none());
    reader.seen
}

impl Reader {
    /// Reads a command from outside: a script with its locker, or a command of the test.
    fn begin(&mut self, words: &[&str], key: &str, at: u64) {
        self.seen.expired.extend(self.doubt.take().map(Expired::from));
        self.caller.clear();
        if let ["eval" | "evalsha", _, count, rest @ ..] = words
            && rest.first() == Some(&key)
        {
            let count: usize = count.parse().unwrap_or(0);
            rest.get(count).copied().unwrap_or("").clone_into(&mut self.caller);
        }
        self.meddle(words, key, at);
    }

    /// Reads an operator's command on the key, which belongs to no worker afterwards.
    fn meddle(&mut self, words: &[&str], key: &str, at: u64) {
        match words {
            ["del", keys @ ..] if keys.contains(&key) => self.held = None,
            ["flushall", ..] => self.held = None,
            ["set", name, value, "PX", lease] if *name == key => self.held = Some(hold(value, lease, at)),
            ["rpush", name, value, ..] if *name == key => {
                self.held = Some(Held { locker: (*value).to_owned(), ends: u64::MAX });
            }
            _ => {}
        }
    }

    /// A plain attempt, which takes a free key only.
    fn attempt(&mut self, locker: &str, words: &[&str], at: u64) {
        self.seen.expired.extend(self.rival.take().map(Expired::from));
        locker.clone_into(&mut self.caller);
        self.read(words, at);
        self.rival = self.doubt.take();
        self.caller.clear();
    }

    /// A holder whose lease was about to end when a plain attempt came, and that was still there.
    fn stays(&mut self) {
        if let Some(there) = self.rival.take() {
            self.seen.tenures -= 1;
            self.held = Some(there);
        }
    }

    /// A command of a script on the key.
    fn read(&mut self, words: &[&str], at: u64) {
        self.expire(at);
        let is_holder = self.held.as_ref().is_some_and(|held| held.locker == self.caller);
        let asks = matches!(words, ["set", _, _, "NX", ..]);
        if is_holder && asks || self.rival.as_ref().is_some_and(|rival| rival.locker == self.caller) {
            self.stays();
        } else if is_holder {
            self.seen.expired.extend(self.rival.take().map(Expired::from));
        }
        match words {
            // Takes a free key only.
            ["set", _, locker, "NX", "PX", lease, ..]
                if self.held.as_ref().is_none_or(|held| at + BLUR >= held.ends) =>
            {
                self.seen.tenures += 1;
                self.doubt = self.held.replace(hold(locker, lease, at));
            }
            ["set", _, _, "NX", "PX", ..] => {}
            // Only who did not get the key asks for how long it is kept.
            ["pttl", _] => {
                if let Some(there) = self.doubt.take() {
                    self.seen.tenures -= 1;
                    self.held = Some(there);
                }
            }
            ["set", _, locker, "PX", lease] => {
                if self.must_be_mine("overwrites", at) {
                    self.seen.expired.extend(self.held.take_if(|held| !held.is_of(&self.caller)).map(Expired::from));
                }
                let is_new = self.held.as_ref().is_none_or(|held| held.locker != *locker);
                if is_new && DelayedRelease::of_locker(locker).is_none() {
                    self.seen.tenures += 1;
                }
                self.held = Some(hold(locker, lease, at));
            }
            ["pexpire", _, lease] => {
                let _ = self.must_be_mine("extends", at);
                if let Some(held) = &mut self.held {
                    held.ends = ends(lease, at);
                }
            }
            ["del", _] => {
                let _ = self.must_be_mine("deletes", at);
                self.held = None;
            }
            _ => {}
        }
    }

    fn expire(&mut self, at: u64) {
        let over = self.held.take_if(|held| at > held.ends.saturating_add(BLUR));
        self.seen.expired.extend(over.map(Expired::from));
    }

    /// Whether the script may change the key: it is its own, or free. If a third one changes it after a plain attempt around the end of a lease, the
    /// attempt has found that lease, which is over now.
    fn must_be_mine(&mut self, what: &str, at: u64) -> bool {
        if self.held.as_ref().is_some_and(|held| !held.is_of(&self.caller)) {
            self.stays();
        }
        let caller = &self.caller;
        if let Some(held) = &self.held
            && !held.is_of(caller)
            && at + BLUR < held.ends
        {
            let story = format!("{caller:?} {what} the key at {at} µs, which is {held:?}");
            self.seen.violations.push(Violation::of(Property::O, story));
            return false;
        }
        true
    }
}

fn hold(locker: &str, lease: &str, at: u64) -> Held {
    Held { locker: locker.to_owned(), ends: ends(lease, at) }
}

fn ends(lease: &str, at: u64) -> u64 {
    at + lease.parse::<u64>().unwrap_or(0) * 1000
}

/// The process that a locker is of.
pub(crate) fn process_of(locker: &str) -> Option<u32> {
    locker.rsplit('-').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(u64, bool, &str)]) -> Vec<Executed> {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect();
        lines
            .iter()
            .map(|(at, by_script, line)| Executed { at: *at, by_script: *by_script, words: words(line) })
            .collect()
    }

    const TAKE: [(u64, bool, &str); 2] =
        [(0, false, "evalsha s 3 k q f a-1 1000"), (1, true, "set k a-1 NX PX 1000 GET")];

    #[test]
    fn a_foreign_key_is_seen_to_be_changed() {
        for (line, what) in [("del k", "deletes"), ("pexpire k 1000", "extends"), ("set k b-1 PX 1000", "overwrites")] {
            let mut lines = TAKE.to_vec();
            lines.extend([(500, false, "evalsha s 3 k q f b-1 1000"), (501, true, line)]);
            let seen = check(&log(&lines), "k");
            assert!(seen.violations.len() == 1 && seen.violations[0].story.contains(what), "{seen:?}");
            // The holder itself acts, or the lease is over.
            lines[2].2 = "evalsha s 3 k q f a-1 1000";
            assert!(check(&log(&lines), "k").violations.is_empty());
            lines[2] = (1_500_000, false, "evalsha s 3 k q f b-1 1000");
            lines[3].0 = 1_500_001;
            assert!(check(&log(&lines), "k").violations.is_empty());
        }
    }

    #[test]
    fn a_plain_attempt_takes_a_free_key_only() {
        let plain = |at, locker: &'static str| (at, false, locker);
        let a = plain(0, "set k a-1 NX PX 1000");
        let b = plain(500, "set k b-1 NX PX 1000");
        let release = |at, line| [(at, false, line), (at + 1, true, "del k")];
        let of_a = release(600, "evalsha s 3 k q f a-1 1000");
        let of_b = release(600, "evalsha s 3 k q f b-1 1000");
        assert_eq!(check(&log(&[&[a, b][..], &of_a].concat()), "k").violations, vec![]);
        assert_eq!(check(&log(&[&[a, b][..], &of_b].concat()), "k").violations.len(), 1);
        // Around the end of a lease, the locker that acts next had the key.
        let b = plain(999_500, "set k b-1 NX PX 1000");
        for line in ["evalsha s 3 k q f a-1 1000", "evalsha s 3 k q f b-1 1000"] {
            let seen = check(&log(&[&[a, b][..], &release(999_600, line)].concat()), "k");
            assert_eq!((seen.violations, seen.tenures), (vec![], 1 + usize::from(line.contains("b-1"))));
        }
        // A third one may have the key then, and not before.
        for (attempt, taken, violations) in [(999_500, 1_003_000, 0), (500, 997_000, 1)] {
            let b = plain(attempt, "set k b-1 NX PX 1000");
            let c = [(taken, false, "evalsha s 3 k q f c-1 1000"), (taken + 1, true, "set k c-1 PX 1000")];
            let seen = check(&log(&[&[a, b][..], &c].concat()), "k");
            assert_eq!((seen.violations.len(), seen.tenures), (violations, 2), "{seen:?}");
        }
    }

    #[test]
    fn what_an_operator_does_to_the_key_is_no_violation_but_what_is_done_to_his_is() {
        let mut lines = TAKE.to_vec();
        lines.push((500, false, "set k operator PX 900"));
        lines.extend([(510, false, "evalsha s 3 k q f a-1 1000"), (511, true, "get k")]);
        assert!(check(&log(&lines), "k").violations.is_empty());
        lines.push((512, true, "del k"));
        assert_eq!(check(&log(&lines), "k").violations.len(), 1);
        lines[2].2 = "del k";
        lines[4].2 = "set k b-1 NX PX 1000 GET";
        lines.truncate(5);
        assert!(check(&log(&lines), "k").violations.is_empty());
    }

    #[test]
    fn tenures_that_nobody_releases_are_counted() {
        let mut lines = TAKE.to_vec();
        assert_eq!(check(&log(&lines), "k").expired, [Expired { locker: "a-1".to_owned(), at: 1_000_001 }]);
        lines.extend([(10, false, "evalsha s 3 k q f a-1 1000"), (11, true, "get k"), (12, true, "del k")]);
        let seen = check(&log(&lines), "k");
        assert_eq!((seen.tenures, seen.expired), (1, vec![]));
    }

    #[test]
    fn around_the_end_of_a_lease_the_next_command_decides() {
        let mut lines = TAKE.to_vec();
        lines.extend([(1_000_000, false, "evalsha s 3 k q f b-1 1000"), (1_000_001, true, "set k b-1 NX PX 1000 GET")]);
        let took = check(&log(&lines), "k");
        assert_eq!((took.tenures, took.expired.len()), (2, 2));
        lines.push((1_000_002, true, "pttl k"));
        let found = check(&log(&lines), "k");
        assert_eq!((found.tenures, found.expired.len()), (1, 1));
        assert_eq!(found.expired[0].locker, "a-1");
    }

    #[test]
    fn lockers_tell_their_process() {
        assert_eq!(process_of("some-host-77-0123abc-5"), Some(77));
        assert_eq!(process_of("some-host-77-0123abc-5L"), Some(77));
    }
}
