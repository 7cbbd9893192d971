//! Scenes in which the server refuses, and the answers that the threads got.

use crate::checker::waits::Kept;
use crate::history::{Nanos, Op, What};
use crate::report::Bounds;
use crate::scene::Scene;
use crate::setup::{Setup, leases};
use crate::support::RedisServer;
use crate::support::crew::{Member, eventually, spawn_with};
use crate::worker::now;
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, Error, RedisLockProcessor};
use std::time::{Duration, Instant};

/// A client of the same server that wants a lock which nobody holds. So only the refusal stops it.
pub(crate) struct Asker {
    lock: DistributedReentrantLock,
}

impl Asker {
    pub(crate) fn of(server: &RedisServer) -> Self {
        let store = RedisLockProcessor::builder(&server.url()).unwrap().io_timeout(Duration::from_secs(1));
        let generator = DLockGenerator::new(store.build().unwrap()).unwrap();
        let lock = generator.generate_with(DLockConfig::new("ASKER", "x").with_lease(Duration::from_secs(1))).unwrap();
        // It has an inbox, and has met the server.
        lock.lock().unwrap().unlock().unwrap();
        Self { lock }
    }

    /// Returns the error of `try_lock`, or `None` if it gets the lock.
    pub(crate) fn try_once(&self) -> Option<String> {
        self.lock.try_lock().err().map(|error| error.to_string())
    }

    /// Expects that a try fails with one of these words, at once or when its time is over. Expects that `lock()` waits, and gets the lock when the
    /// refusal is over.
    #[track_caller]
    pub(crate) fn is_refused(&self, words: &[&str]) -> Member<()> {
        let is_told = |text: &str| words.iter().any(|words| text.contains(words));
        let told = |result: Result<bool, Error>| match result {
            Err(error @ Error::Backend { .. }) => error.to_string(),
            other => panic!("{words:?}: {other:?}"),
        };
        let once = told(self.lock.try_lock().map(|got| got.is_some()));
        assert!(is_told(&once), "{once}");
        // The last question of a timed call has the rest of the time. On a busy machine that may end before the answer or the connect.
        let limit = Duration::from_millis(30);
        let is_named = (0..3).any(|_| {
            let begin = Instant::now();
            let timed = told(self.lock.try_lock_for(limit).map(|got| got.is_some()));
            assert!(begin.elapsed() >= limit, "not before its end");
            let is_over = ["no answer", "not sent within"].iter().any(|words| timed.contains(words));
            assert!(is_told(&timed) || is_over, "{timed}");
            is_told(&timed)
        });
        assert!(is_named, "no call was told {words:?}");
        spawn_with(&self.lock, |lock| lock.lock().unwrap().unlock().unwrap())
    }
}

/// How long a refusal lasts, in leases.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// Over before the lease is, but an extension falls into it.
    Short,
    /// Longer than a lease.
    Long,
}

impl Length {
    pub(crate) const fn leases(self) -> f64 {
        match self {
            Self::Short => 0.2,
            Self::Long => 1.5,
        }
    }

    /// How long the first process holds the lock. Even a lease that was extended just before ends before this hold.
    pub(crate) const fn holds(self) -> f64 {
        match self {
            Self::Short => 1.3,
            Self::Long => 2.2,
        }
    }

    /// What the first process holds is left to its lease at most. Releases are repeated, after pauses of up to a lease.
    pub(crate) fn bounds(self) -> Bounds {
        let expired = match self {
            Self::Short => 0,
            Self::Long => 2,
        };
        Bounds { expired, waited: leases(1.0), ..Bounds::default() }
    }
}

/// Whether a thread got the lock that it did not hold.
fn is_first(what: &What) -> bool {
    matches!(what, What::Got { count: 1, .. })
}

impl Scene {
    /// Lets the server refuse for a while, beginning before the first extension of a hold of the first process, which is due
    /// when a quarter of the lease is left.
    pub(crate) fn refuse(&mut self, length: Length, begin: impl FnOnce(&mut Self), end: impl FnOnce(&mut Self)) {
        self.wait_inside(0);
        let lease = Duration::from_millis(self.lease);
        let part = |leases: f64| lease.mul_f64(leases);
        let got = self.events.iter().rev().find(|event| event.actor.process == 0 && is_first(&event.what));
        let Some(What::Got { until, .. }) = got.map(|event| &event.what) else { panic!("{got:?}") };
        // The lease counts from before the grant, so a part of it may be over.
        let left = Duration::from_nanos(until.saturating_sub(now()));
        std::thread::sleep(left.saturating_sub(part(0.4)));
        self.fault();
        let at = now();
        begin(self);
        let since = Duration::from_nanos(now() - at);
        std::thread::sleep(part(length.leases()).saturating_sub(since));
        end(self);
        self.is_over_late(at + u64::try_from(part(length.leases()).as_nanos()).unwrap());
        self.refused = Some((at, now()));
        // Nobody could get the lock until now.
        self.kept.push(Kept { at, until: now() });
    }

    /// How many calls of a kind ended with words like these since the fault began, as far as the histories have been read.
    pub(crate) fn failures(&self, words: &str, of: impl Fn(Op) -> bool) -> usize {
        let (from, mut ops, mut count) = (self.fault_at, std::collections::HashMap::new(), 0);
        for event in self.events.iter().filter(|event| event.at >= from) {
            match &event.what {
                What::Begin(op) => drop(ops.insert(event.actor, *op)),
                What::Fail { why, .. } | What::Unknown { why, .. } if why.contains(words) => {
                    count += usize::from(ops.get(&event.actor).is_some_and(|op| of(*op)));
                }
                _ => {}
            }
        }
        count
    }

    /// How long after a moment the next hold began.
    pub(crate) fn next_hold_after(&mut self, at: Nanos) -> Duration {
        let mut next = None;
        eventually("the next hold", || {
            self.refresh();
            let holds = self.events.iter().filter(|event| event.at > at && is_first(&event.what));
            next = holds.map(|event| event.at).min();
            next.is_some()
        });
        Duration::from_nanos(next.unwrap() - at)
    }

    /// Goes over to another server. Returns the one before, which still runs.
    pub(crate) fn go_over_to(&mut self, server: RedisServer) -> RedisServer {
        self.processes().for_each(|process| self.proxy(process).lead_to(server.port()));
        std::mem::replace(&mut *self.server, server)
    }
}

impl Setup {
    /// A server that does not see what ends keys, or that changes.
    pub(crate) fn unmonitored(mut self) -> Self {
        self.monitored = false;
        self
    }
}
