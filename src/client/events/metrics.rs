//! What a client records with the `metrics` facade: the feature `metrics`, and only if the builder asks for it.
//!
//! The manual has the table of the names ([metrics](crate::manual::metrics)). Nothing is labelled with a key: a program may have very
//! many of them, and a recorder keeps each for ever. `metrics/meters.rs` has the series.

#[cfg(feature = "metrics")]
mod meters;

#[cfg(feature = "metrics")]
pub(super) use self::meters::Meters;

use crate::client::wait_limit::WaitLimit;
use crate::config::DLockConfig;
use crate::error::{Error, LossCause};
use crate::event::{HoldEnd, How};
use crate::port::Request;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// One figure to record. The recorder is code of the program: record with no mutex held.
#[derive(Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nothing is recorded"))]
pub(crate) enum Sample {
    Acquired {
        lock: Arc<DLockConfig>,
        waited: Duration,
        how: How,
    },
    /// A call that wanted a lock got none.
    NotAcquired {
        lock: Arc<DLockConfig>,
        why: &'static str,
    },
    Released {
        lock: Arc<DLockConfig>,
        held: Duration,
        end: HoldEnd,
    },
    Lost {
        lock: Arc<DLockConfig>,
        cause: &'static str,
    },
    /// A lease was extended, with so much of the old one left.
    Renewed {
        lock: Arc<DLockConfig>,
        left: Duration,
        is_late: bool,
    },
    NotRenewed {
        lock: Arc<DLockConfig>,
    },
    /// One more thread waits, or one less.
    Waiting {
        lock: Arc<DLockConfig>,
        more: bool,
    },
    /// A call of the store has ended.
    Call {
        name: &'static str,
        took: Duration,
        is_answered: bool,
    },
    NewServer,
    /// The store begins to fail, at this time of the wall clock.
    StoreFailing {
        since: u64,
    },
    /// The store that has failed since then answers again.
    StoreBack {
        since: u64,
    },
    /// The functions of the program were too slow for so many events.
    Dropped {
        events: u64,
    },
}

/// Without the feature there are none.
#[cfg(not(feature = "metrics"))]
pub(super) enum Meters {}

#[cfg(not(feature = "metrics"))]
impl Meters {
    pub(super) fn record(&self, _: Sample) {
        match *self {}
    }

    pub(super) fn see(&self, _: &str) {
        match *self {}
    }

    pub(super) fn count_key(self: &Arc<Self>, _: &str) -> Box<dyn std::any::Any + Send + Sync> {
        match **self {}
    }
}

/// Returns the time of the wall clock, which a figure shows to people. Nothing is decided by it.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// Why a call got no lock that the program has given up.
pub(crate) const CANCELLED: &str = "cancelled";

/// The name of a call that sends several requests together.
pub(crate) const BATCH: &str = "batch";

/// Defines a function that returns the word of a label, and the table of all its words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident($($of:ident: $type:ty),*) in $table:ident $(and $more:ident)?, match $value:ident {
        $($($pattern:pat_param)|+ $(if $guard:expr)? => $word:expr,)*
    }) => {
        #[cfg(feature = "metrics")]
        const $table: [&str; [$($more,)? $($word),*].len()] = [$($more,)? $($word),*];

        $(#[$doc])*
        pub(crate) fn $name($($of: $type),*) -> &'static str {
            match $value {
                $($($pattern)|+ $(if $guard)? => $word,)*
            }
        }
    };
}

words! {
    /// Returns why a call with this limit, which got no lock, has got none.
    why_not(limit: &WaitLimit<'_>, error: Option<&Error>) in WHY, match error {
        None if limit.is_cancelled() => CANCELLED,
        None if limit.is_one_attempt => "busy",
        None => "limit_over",
        Some(Error::Backend { .. }) => "store_failed",
        Some(Error::ShutDown) => "closed",
        Some(_) => "refused",
    }
}

words! {
    /// Returns the cause of a loss.
    word_for(cause: &LossCause) in CAUSES, match cause {
        LossCause::Deadline => "deadline",
        LossCause::TakenOver { .. } => "taken_over",
        LossCause::Deleted => "deleted",
        LossCause::Broken { .. } => "broken",
        LossCause::HeldTooLong => "held_too_long",
        LossCause::Cloned => "cloned",
        LossCause::ThreadEnded => "thread_ended",
    }
}

words! {
    /// Returns the name of a call of the store.
    name_of(request: &Request<'_>) in CALLS and BATCH, match request {
        Request::Acquire(_) | Request::Join(_) => "acquire",
        Request::Poll(_) => "poll",
        Request::Extend(_) | Request::ExtendWithNumbers(_) => "extend",
        Request::Release(_) => "release",
        Request::HandOver(..) => "hand_over",
        Request::DelayRelease(..) => "delay_release",
        Request::Probe(_) => "probe",
        Request::Inspect { .. } => "inspect",
        Request::Settle(_) => "settle",
        Request::Break(_) => "break",
        Request::Broken { .. } => "broken",
    }
}
