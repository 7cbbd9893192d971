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

/// The reason for a call that the program has given up.
pub(crate) const CANCELLED: &str = "cancelled";

/// Defines the table of a label's words, and the function that returns the word of a value. So no word is missing in the table, from which the
/// series are registered.
macro_rules! words {
    ($table:ident = $(#[$doc:meta])* fn $name:ident($($of:ident: $type:ty),*) match $value:ident {
        $($pattern:pat $(if $guard:expr)? => $word:expr,)*
    }) => {
        #[cfg(feature = "metrics")]
        const $table: [&str; [$($word),*].len()] = [$($word),*];

        $(#[$doc])*
        pub(crate) fn $name($($of: $type),*) -> &'static str {
            match $value { $($pattern $(if $guard)? => $word,)* }
        }
    };
}

words! {
    WHY =
    /// Returns why a call with this limit got no lock.
    fn why_not(limit: &WaitLimit<'_>, error: Option<&Error>) match error {
        None if limit.is_cancelled() => CANCELLED,
        None if limit.is_one_attempt => "busy",
        None => "limit_over",
        Some(Error::Backend { .. }) => "store_failed",
        Some(Error::ShutDown) => "closed",
        Some(_) => "refused",
    }
}

words! {
    CAUSES =
    /// Returns the cause of a loss.
    fn word_for(cause: &LossCause) match cause {
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
    CALLS =
    /// Returns the name of a call of the store with this request, or with several requests together.
    fn name_of(request: Option<&Request<'_>>) match request {
        None => "batch",
        Some(Request::Acquire(_) | Request::Join(_)) => "acquire",
        Some(Request::Poll(_)) => "poll",
        Some(Request::Extend(_) | Request::ExtendWithNumbers(_)) => "extend",
        Some(Request::Release(_)) => "release",
        Some(Request::HandOver(..)) => "hand_over",
        Some(Request::DelayRelease(..)) => "delay_release",
        Some(Request::Probe(_)) => "probe",
        Some(Request::Inspect { .. }) => "inspect",
        Some(Request::Settle(_)) => "settle",
        Some(Request::Break(_)) => "break",
        Some(Request::Broken { .. }) => "broken",
    }
}
