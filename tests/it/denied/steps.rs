//! Every operation, on every state of key and queue that leads another way through its script.

use super::scene::{KEY, LEASE};
use crate::support::LONG;
use crate::support::{Asking, claim};
use redis_dlock::processor::{Break, BreakOutcome, Gap, Operations, ReleaseDelay};
use redis_dlock::{
    AcquireOutcome, Error, ExtendOutcome, PollOutcome, ProbeOutcome, RedisLockProcessor, ReleaseOutcome,
};
use std::time::Duration;

/// What the key contains while a release is delayed.
pub(super) const DELAYED: &str = "a delayed release";

/// What stands in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    Of(&'static str),
    GapThatIsOver,
    /// The time for which waiters that nobody hears keep their places.
    Keep,
    KeepThatIsOver,
}

use Queue::{GapThatIsOver, Keep, KeepThatIsOver, Of};

impl Queue {
    /// The entry in the store, at this time of the server.
    pub(crate) fn text(self, locker: impl Fn(&str) -> String, (seconds, micros): (u64, u64)) -> String {
        match self {
            Of(name) => format!("{} {}", LEASE.as_millis(), locker(name)),
            GapThatIsOver => "gap 1000 10".to_owned(),
            Keep => format!("keep {} 1", seconds * 1000 + micros / 1000 + 1000),
            KeepThatIsOver => "keep 1000 1".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Acquire {
        wait: bool,
    },
    Poll,
    Extend {
        fresh: bool,
    },
    Release {
        next: bool,
        gap: bool,
    },
    /// A release that is delayed.
    Delay,
    Probe,
    Inspect,
    Break,
    /// Looks for who has broken a hold.
    LookForBreak,
}

/// One operation about one locker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) by: &'static str,
    pub(crate) held: bool,
    pub(crate) queue: &'static [Queue],
    pub(crate) broken_fence: bool,
    /// Whether the connection has had a number. The script is asked all the same, because the key was busy just before.
    pub(crate) warm: bool,
}

/// What an operation has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The key is the locker's.
    Holds,
    /// The locker stands in the queue, or does not want to.
    Waits,
    /// The locker is not in the store.
    Nowhere,
    /// The key is the next locker's; the locker is not in the store.
    Passed,
    /// The next locker is to ask what became of it; the locker is not in the store.
    Follows,
    Seen,
}

impl Step {
    pub(crate) fn all() -> Vec<Self> {
        const B: &[Queue] = &[Of("b")];
        const BOTH: &[Queue] = &[Of("b"), Of("d")];
        const DEAD: &[Queue] = &[Of("dead")];
        const DEAD_FIRST: &[Queue] = &[Of("dead"), Of("b")];
        const DEAD_KEPT: &[Queue] = &[Keep, Of("dead"), Of("b")];
        const DEAD_OVER: &[Queue] = &[KeepThatIsOver, Of("dead"), Of("b")];
        const ANOTHER_DEAD: &[Queue] = &[KeepThatIsOver, Of("dead"), Of("gone"), Of("b")];
        const DEAD_BEHIND_GAP: &[Queue] = &[GapThatIsOver, Keep, Of("dead"), Of("b")];
        const KEPT_ALONE: &[Queue] = &[Keep, Of("b")];
        const GAP_FIRST: &[Queue] = &[GapThatIsOver, Of("b")];
        // What a release finds when a script of version 0.1.0 was refused its LPOP.
        const OWN: &[Queue] = &[Of("a")];
        const OWN_FIRST: &[Queue] = &[Of("a"), Of("b")];
        const OWN_KEPT: &[Queue] = &[Keep, Of("dead"), Of("a"), Of("b")];
        let mut steps = Vec::new();
        let mut add = |what, by, held, queue| {
            steps.push(Self { what, by, held, queue, broken_fence: false, warm: false });
        };
        for wait in [false, true] {
            [&[], B].into_iter().for_each(|queue| add(What::Acquire { wait }, "x", true, queue));
            let dead = [DEAD, DEAD_FIRST, DEAD_KEPT, DEAD_OVER, ANOTHER_DEAD, DEAD_BEHIND_GAP];
            for queue in [&[], B, BOTH, GAP_FIRST].into_iter().chain(dead) {
                add(What::Acquire { wait }, "x", false, queue);
            }
        }
        for (by, held, queue) in [
            ("a", true, &[][..]),
            ("a", true, B),
            ("a", false, B),
            ("b", true, B),
            ("d", true, BOTH),
            ("b", false, B),
            ("b", false, BOTH),
            ("b", true, KEPT_ALONE),
            ("b", false, DEAD_FIRST),
            ("b", false, DEAD_KEPT),
            ("b", false, DEAD_OVER),
            ("b", false, ANOTHER_DEAD),
            ("b", false, GAP_FIRST),
            ("d", false, BOTH),
        ] {
            add(What::Poll, by, held, queue);
        }
        for queue in [&[], B, KEPT_ALONE] {
            [false, true].into_iter().for_each(|fresh| add(What::Extend { fresh }, "a", true, queue));
        }
        add(What::Inspect, "a", true, GAP_FIRST);
        add(What::Inspect, "a", true, DEAD_BEHIND_GAP);
        for queue in [BOTH, KEPT_ALONE, &[GapThatIsOver, Keep, Of("b")]] {
            add(What::Release { next: false, gap: false }, "b", true, queue);
        }
        let dead = [DEAD, DEAD_FIRST, DEAD_KEPT, DEAD_OVER, ANOTHER_DEAD, DEAD_BEHIND_GAP];
        for queue in [&[], B, BOTH, KEPT_ALONE, GAP_FIRST, OWN, OWN_FIRST, OWN_KEPT].into_iter().chain(dead) {
            for (next, gap) in [(false, false), (true, false), (false, true), (true, true)] {
                add(What::Release { next, gap }, "a", true, queue);
            }
        }
        for queue in [&[], B, BOTH, KEPT_ALONE, GAP_FIRST, OWN, OWN_FIRST, OWN_KEPT].into_iter().chain(dead) {
            add(What::Break, "a", true, queue);
        }
        [("a", false), ("b", true), ("b", false)].into_iter().for_each(|(by, held)| add(What::Break, by, held, B));
        for (held, queue) in [(true, &[][..]), (true, B), (false, B)] {
            add(What::Delay, "a", held, queue);
        }
        add(What::LookForBreak, "a", false, &[]);
        add(What::Probe, "a", true, &[]);
        add(What::Extend { fresh: true }, "a", false, &[]);
        let broken = [
            (What::Acquire { wait: true }, "x", false, &[][..]),
            (What::Poll, "b", false, &[Of("b")]),
            (What::Release { next: true, gap: false }, "a", true, &[]),
            (What::Release { next: true, gap: false }, "a", true, &[Of("b")]),
            (What::Break, "a", true, &[Of("b")]),
        ];
        let broken = broken.into_iter().map(|(what, by, held, queue)| Self {
            what,
            by,
            held,
            queue,
            broken_fence: true,
            warm: false,
        });
        steps.extend(broken);
        let free = Self {
            what: What::Acquire { wait: true },
            by: "x",
            held: false,
            queue: &[],
            broken_fence: false,
            warm: true,
        };
        steps.extend([free, Self { broken_fence: true, ..free }]);
        steps
    }

    /// Whether this is a first question about a locker.
    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self.what, What::Acquire { .. })
    }

    /// Asks the store. The names of the lockers are made by `locker`.
    pub(crate) fn run(&self, store: &RedisLockProcessor, locker_of: impl Fn(&str) -> String) -> Result<Came, Error> {
        let (locker, next) = (locker_of(self.by), locker_of("next"));
        let (key, locker, lease) = (KEY, &*locker, LEASE);
        Ok(match self.what {
            What::Acquire { wait } => match store.ask(&claim(key, locker, lease), wait, LONG)? {
                AcquireOutcome::Acquired(_) => Came::Holds,
                AcquireOutcome::Busy(_) if wait => Came::Waits,
                AcquireOutcome::Busy(_) | AcquireOutcome::Unqueued { under_way: false, .. } => Came::Nowhere,
                AcquireOutcome::Unqueued { .. } => Came::Waits,
                other => panic!("{other:?}"),
            },
            What::Poll => match store.poll(&claim(key, locker, lease), LONG)? {
                PollOutcome::Acquired(_) => Came::Holds,
                PollOutcome::Waiting(_) => Came::Waits,
                PollOutcome::Gone => Came::Nowhere,
                other => panic!("{other:?}"),
            },
            What::Extend { fresh } => {
                let claim = claim(key, locker, lease);
                let extended = if fresh { store.extend_fresh(&claim, LONG) } else { store.extend(&claim, LONG) };
                match extended? {
                    ExtendOutcome::Extended(_) => Came::Holds,
                    ExtendOutcome::NotOurs(_) => Came::Nowhere,
                    other => panic!("{other:?}"),
                }
            }
            What::Release { next: with_next, gap } => {
                let claim_of = |locker| claim(key, locker, lease);
                let ends = claim_of(locker).with_poller_gap(gap.then_some(Gap::new(Duration::from_secs(20), LEASE)));
                let next = with_next.then(|| claim_of(&next));
                match store.end_with(&ends, next.as_ref(), LONG)? {
                    ReleaseOutcome::Released { .. } | ReleaseOutcome::NotOurs(_) => Came::Nowhere,
                    ReleaseOutcome::Passed(_) => Came::Passed,
                    ReleaseOutcome::Queued(_) => Came::Follows,
                    other => panic!("{other:?}"),
                }
            }
            What::Delay => {
                let delay = ReleaseDelay::new(DELAYED, LEASE);
                store.delay_release(&claim(key, locker, lease), delay, LONG).map(|_| Came::Nowhere)?
            }
            What::Probe => match store.probe(&claim(key, locker, LEASE), LONG)? {
                ProbeOutcome::Ours => Came::Holds,
                ProbeOutcome::NotOurs(_) => Came::Nowhere,
                other => panic!("{other:?}"),
            },
            What::Inspect => store.inspect(key, LONG).map(|_| Came::Seen)?,
            What::Break => match store.break_hold(&Break::new(key, locker, "operator-1", "why"), LONG)? {
                BreakOutcome::Broken { .. } => Came::Nowhere,
                BreakOutcome::NotHeldBy { .. } => Came::Seen,
                other => panic!("{other:?}"),
            },
            What::LookForBreak => store.broken(key, locker, LONG).map(|_| Came::Seen)?,
        })
    }
}

/// For the messages of failures: what was asked.
pub(crate) fn outcome_name(result: &Result<Came, Error>) -> String {
    match result {
        Ok(came) => format!("{came:?}"),
        Err(error) => error.to_string(),
    }
}
