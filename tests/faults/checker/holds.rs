//! Calls and holds, put together from events.

use super::ms;
use crate::history::{Actor, Event, Nanos, Op, What};
use std::collections::HashMap;
use std::fmt;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Got {
        token: u64,
        count: u32,
    },
    Left {
        count: u32,
    },
    Fail {
        count: u32,
    },
    Unknown {
        count: u32,
    },
    /// The process ended first.
    Never,
}

/// One call of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) actor: Actor,
    pub(crate) op: Op,
    pub(crate) begin: Nanos,
    /// [`Nanos::MAX`] for one that never ended.
    pub(crate) end_at: Nanos,
    pub(crate) end: End,
}

/// Pairs the beginnings and ends of calls, in the order of their beginnings.
pub(crate) fn calls(events: &[Event]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: HashMap<Actor, usize> = HashMap::new();
    for event in events {
        let end = match &event.what {
            What::Begin(op) => {
                open.insert(event.actor, calls.len());
                let (actor, op, begin) = (event.actor, *op, event.at);
                calls.push(Call { actor, op, begin, end_at: Nanos::MAX, end: End::Never });
                continue;
            }
            What::Got { token, count, .. } => End::Got { token: *token, count: *count },
            What::Left { count } => End::Left { count: *count },
            What::Fail { count, .. } => End::Fail { count: *count },
            What::Unknown { count, .. } => End::Unknown { count: *count },
            What::Keeps { .. } | What::Valid { .. } | What::Lost => continue,
            What::Away { .. } | What::StoreFails { .. } | What::StoreAnswers => continue,
        };
        if let Some(call) = open.remove(&event.actor) {
            (calls[call].end, calls[call].end_at) = (end, event.at);
        }
    }
    calls
}

/// One hold of a thread, from its outermost acquire to its outermost unlock.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) actor: Actor,
    pub(crate) op: Op,
    /// When its acquire began.
    pub(crate) asked: Nanos,
    /// When the thread was told.
    pub(crate) since: Nanos,
    /// The tokens that its acquires gave, the outermost first.
    pub(crate) tokens: Vec<u64>,
    /// The latest moment until which the thread knew that it was valid.
    pub(crate) until: Nanos,
    /// When its last unlock began.
    pub(crate) unlock: Option<Nanos>,
    /// When its last unlock came back.
    pub(crate) unlocked: Option<Nanos>,
    /// Whether the store confirmed that unlock.
    pub(crate) confirmed: bool,
    /// Until when its unlocks were to keep the lock from everybody, if they were.
    pub(crate) kept: Option<Nanos>,
    /// When the thread knew that it was lost.
    pub(crate) lost: Option<Nanos>,
}

impl Hold {
    /// Until when the thread took the lock for its own.
    pub(crate) fn claimed_until(&self) -> Nanos {
        self.until.min(self.unlock.unwrap_or(Nanos::MAX)).min(self.lost.unwrap_or(Nanos::MAX))
    }

    /// When it was over at the latest, as its thread knows by now.
    pub(crate) fn over(&self) -> Nanos {
        self.until.min(self.lost.unwrap_or(Nanos::MAX))
    }

    /// Whether the thread took the lock for its own at all: a hold that is lost when it begins is none.
    pub(crate) fn is_claimed(&self) -> bool {
        self.since < self.claimed_until()
    }

    pub(crate) fn token(&self) -> u64 {
        self.tokens[0]
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_never = |at: Option<Nanos>| ms(at.unwrap_or(Nanos::MAX));
        write!(
            f,
            "thread {} with token {} (asked {}, held since {}, known valid until {}, unlocked {}, lost {})",
            self.actor,
            self.token(),
            ms(self.asked),
            ms(self.since),
            ms(self.until),
            or_never(self.unlock),
            or_never(self.lost)
        )
    }
}

/// The holds, in the order in which their threads were told.
pub(crate) fn holds(events: &[Event]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut asked: HashMap<Actor, (Op, Nanos)> = HashMap::new();
    let mut open: HashMap<Actor, (usize, u32)> = HashMap::new();
    for Event { at, actor, what } in events {
        let (at, actor) = (*at, *actor);
        match what {
            What::Begin(op) => {
                asked.insert(actor, (*op, at));
                if let (Op::Unlock, Some((hold, 1))) = (op, open.get(&actor)) {
                    holds[*hold].unlock = Some(at);
                }
            }
            What::Got { token, until, .. } => {
                if let Some((hold, depth)) = open.get_mut(&actor) {
                    *depth += 1;
                    holds[*hold].tokens.push(*token);
                    holds[*hold].until = holds[*hold].until.max(*until);
                    continue;
                }
                let (op, asked) = asked.get(&actor).copied().unwrap_or((Op::Lock, at));
                open.insert(actor, (holds.len(), 1));
                holds.push(Hold {
                    actor,
                    op,
                    asked,
                    since: at,
                    tokens: vec![*token],
                    until: *until,
                    unlock: None,
                    unlocked: None,
                    confirmed: false,
                    kept: None,
                    lost: None,
                });
            }
            What::Left { .. } | What::Fail { .. } | What::Unknown { .. } => {
                let Some((Op::Unlock, _)) = asked.get(&actor) else { continue };
                let Some((hold, depth)) = open.get_mut(&actor) else { continue };
                *depth -= 1;
                if *depth == 0 {
                    holds[*hold].unlocked = Some(at);
                    holds[*hold].confirmed = matches!(what, What::Left { .. });
                    open.remove(&actor);
                }
            }
            What::Keeps { until } => {
                if let Some((hold, _)) = open.get(&actor) {
                    holds[*hold].kept = holds[*hold].kept.max(Some(*until));
                }
            }
            What::Valid { until } => {
                if let Some((hold, _)) = open.get(&actor) {
                    holds[*hold].until = holds[*hold].until.max(*until);
                }
            }
            What::Lost => {
                if let Some((hold, _)) = open.get(&actor) {
                    holds[*hold].lost.get_or_insert(at);
                }
            }
            What::Away { .. } | What::StoreFails { .. } | What::StoreAnswers => {}
        }
    }
    holds
}
