//! What a client records with the `metrics` facade: the feature `metrics`, and only if the builder asks for it.
//!
//! The manual has the table of the names ([metrics](crate::manual::metrics)). Nothing is labelled with a key: a program may have very
//! many of them, and a recorder keeps each for ever. `metrics/meters.rs` has the series, and a table of the words of each label. A word that
//! is not in its table is not counted.

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

/// Returns why a call with this limit got no lock, as one word, or `None` if it got one.
pub(crate) fn why_not(limit: &WaitLimit<'_>, ended: &Result<Option<u64>, Error>) -> Option<&'static str> {
    match ended {
        Ok(Some(_)) => None,
        Ok(None) if limit.is_cancelled() => Some(CANCELLED),
        Ok(None) if limit.is_one_attempt => Some("busy"),
        Ok(None) => Some("limit_over"),
        Err(Error::Backend { .. }) => Some("store_failed"),
        Err(Error::ShutDown) => Some("closed"),
        Err(_) => Some("refused"),
    }
}

/// Returns the time of the wall clock, which a figure shows to people. Nothing is decided by it.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// Why a call got no lock that the program has given up.
pub(crate) const CANCELLED: &str = "cancelled";

/// Returns the cause of a loss as one word.
pub(crate) fn word_for(cause: &LossCause) -> &'static str {
    match cause {
        LossCause::Deadline => "deadline",
        LossCause::TakenOver { .. } => "taken_over",
        LossCause::Deleted => "deleted",
        LossCause::Broken { .. } => "broken",
        LossCause::HeldTooLong => "held_too_long",
        LossCause::Cloned => "cloned",
        LossCause::ThreadEnded => "thread_ended",
    }
}

/// Returns the name of a call of the store.
pub(crate) fn name_of(request: &Request<'_>) -> &'static str {
    match request {
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
