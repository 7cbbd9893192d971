//! What the threads of the worker processes did to one lock. They record one line an event, before each call and after it. A killed process loses at
//! most its last line.

use std::fmt;
use std::str::FromStr;

/// A moment: nanoseconds of `CLOCK_BOOTTIME`, which all processes of a machine share.
pub(crate) type Nanos = u64;

/// A thread of a worker process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Actor {
    pub(crate) process: u32,
    pub(crate) thread: u32,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Lock,
    /// A campaign of a leader.
    Lead,
    Try,
    /// For so many milliseconds.
    TryFor(u64),
    Unlock,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Begin(Op),
    /// An acquire has led to a hold, or one more: its token, how often the thread holds the lock now, and until when it
    /// is valid as far as the thread knows.
    Got {
        token: u64,
        count: u32,
        until: Nanos,
    },
    /// An unlock was confirmed; how often the thread still holds the lock.
    Left {
        count: u32,
    },
    /// A call has not done what it was called for; how often the thread holds the lock now.
    Fail {
        count: u32,
        why: String,
    },
    /// Nobody knows what a call has done in the store; how often the thread holds the lock now.
    Unknown {
        count: u32,
        why: String,
    },
    /// The unlock that begins next keeps the lock from everybody until then.
    Keeps {
        until: Nanos,
    },
    /// A look at the guard: valid until then.
    Valid {
        until: Nanos,
    },
    /// The thread was told, or saw, that its hold is lost.
    Lost,
    /// The process, or its round trip to the test's process, took from then until now: it was stopped, or the machine was busy.
    Away {
        since: Nanos,
    },
    /// Requests of the process begin to fail, with this error.
    StoreFails {
        why: String,
    },
    /// Requests of the process are answered again.
    StoreAnswers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Nanos,
    pub(crate) actor: Actor,
    pub(crate) what: What,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.process, self.thread)
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at, self.actor)?;
        match &self.what {
            What::Begin(Op::Lock) => write!(f, "lock"),
            What::Begin(Op::Lead) => write!(f, "lead"),
            What::Begin(Op::Try) => write!(f, "try"),
            What::Begin(Op::TryFor(limit)) => write!(f, "try-for {limit}"),
            What::Begin(Op::Unlock) => write!(f, "unlock"),
            What::Got { token, count, until } => write!(f, "got {token} {count} {until}"),
            What::Left { count } => write!(f, "left {count}"),
            What::Fail { count, why } => write!(f, "fail {count} {}", why.replace('\n', " ")),
            What::Unknown { count, why } => write!(f, "unknown {count} {}", why.replace('\n', " ")),
            What::Keeps { until } => write!(f, "keeps {until}"),
            What::Valid { until } => write!(f, "valid {until}"),
            What::Lost => write!(f, "lost"),
            What::Away { since } => write!(f, "away {since}"),
            What::StoreFails { why } => write!(f, "store-fails {}", why.replace('\n', " ")),
            What::StoreAnswers => write!(f, "store-answers"),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        parse(line).ok_or_else(|| format!("no event: {line:?}"))
    }
}

fn parse(line: &str) -> Option<Event> {
    let mut words = line.splitn(4, ' ');
    let at = words.next()?.parse().ok()?;
    let (process, thread) = words.next()?.split_once('.')?;
    let actor = Actor { process: process.parse().ok()?, thread: thread.parse().ok()? };
    let (word, rest) = (words.next()?, words.next().unwrap_or(""));
    let counted = || {
        let (count, why) = rest.split_once(' ').unwrap_or((rest, ""));
        Some((count.parse().ok()?, why.to_owned()))
    };
    let what = match word {
        "lock" => What::Begin(Op::Lock),
        "lead" => What::Begin(Op::Lead),
        "try" => What::Begin(Op::Try),
        "try-for" => What::Begin(Op::TryFor(rest.parse().ok()?)),
        "unlock" => What::Begin(Op::Unlock),
        "got" => {
            let mut numbers = rest.split(' ');
            What::Got {
                token: numbers.next()?.parse().ok()?,
                count: numbers.next()?.parse().ok()?,
                until: numbers.next()?.parse().ok()?,
            }
        }
        "left" => What::Left { count: rest.parse().ok()? },
        "fail" => counted().map(|(count, why)| What::Fail { count, why })?,
        "unknown" => counted().map(|(count, why)| What::Unknown { count, why })?,
        "keeps" => What::Keeps { until: rest.parse().ok()? },
        "valid" => What::Valid { until: rest.parse().ok()? },
        "lost" => What::Lost,
        "away" => What::Away { since: rest.parse().ok()? },
        "store-fails" => What::StoreFails { why: rest.to_owned() },
        "store-answers" => What::StoreAnswers,
        _ => return None,
    };
    Some(Event { at, actor, what })
}

#[test]
fn events_are_read_as_they_were_written() {
    let actor = Actor { process: 3, thread: 1 };
    for what in [
        What::Begin(Op::Lock),
        What::Begin(Op::Lead),
        What::Begin(Op::Try),
        What::Begin(Op::TryFor(250)),
        What::Begin(Op::Unlock),
        What::Got { token: 1024, count: 2, until: 99 },
        What::Left { count: 0 },
        What::Fail { count: 0, why: "busy".to_owned() },
        What::Unknown { count: 0, why: "no answer within 1s".to_owned() },
        What::Keeps { until: 7 },
        What::Valid { until: 5 },
        What::Lost,
        What::Away { since: 4 },
        What::StoreFails { why: "no answer within 1s".to_owned() },
        What::StoreAnswers,
    ] {
        let event = Event { at: 17, actor, what };
        assert_eq!(event.to_string().parse(), Ok(event));
    }
    assert!("17 3.1 go".parse::<Event>().is_err());
    assert!("17 3.1 got 10".parse::<Event>().is_err());
}
