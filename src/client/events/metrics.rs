//! What a client records with the `metrics` facade: the feature `metrics`, and only if the builder asks for it.
//!
//! The manual has the table of the names ([events](crate::manual::events#metrics)). Nothing is labelled with a key: a program may have very
//! many of them, and a recorder keeps each for ever.

use crate::config::DLockConfig;
use crate::error::LossCause;
use crate::event::{HoldEnd, How};
#[cfg(feature = "metrics")]
use crate::log;
use crate::port::Request;
use std::sync::Arc;
use std::time::Duration;

/// One figure to record. The recorder is code of the program: record with no mutex held.
#[derive(Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nothing is recorded"))]
pub(crate) enum Sample {
    Acquired {
        lock: Arc<DLockConfig>,
        waited: Duration,
        how: How,
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
    Renewal {
        lock: Arc<DLockConfig>,
        result: Renewal,
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
}

/// How an attempt to extend a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    InTime,
    Late,
    Failed,
}

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

#[cfg(feature = "metrics")]
impl Sample {
    /// Hands the figure to the recorder that the program has installed.
    pub(crate) fn record(self) {
        if crate::sync::catch_panic(|| self.give()).is_none() {
            log::error!(CLIENT, "the program's recorder of metrics panicked");
        }
    }

    fn give(self) {
        use metrics::{counter, gauge, histogram};
        let of = |lock: &DLockConfig| lock.lock_type().to_owned();
        match self {
            Self::Acquired { lock, waited, how } => {
                histogram!("dlock_wait_seconds", "lock_type" => of(&lock)).record(waited.as_secs_f64());
                counter!("dlock_acquired_total", "lock_type" => of(&lock), "how" => how.as_str()).increment(1);
            }
            Self::Released { lock, held, end } => {
                histogram!("dlock_hold_seconds", "lock_type" => of(&lock)).record(held.as_secs_f64());
                counter!("dlock_released_total", "lock_type" => of(&lock), "end" => end.as_str()).increment(1);
            }
            Self::Lost { lock, cause } => {
                counter!("dlock_lost_total", "lock_type" => of(&lock), "cause" => cause).increment(1);
            }
            Self::Renewal { lock, result } => {
                let result = match result {
                    Renewal::InTime => "in_time",
                    Renewal::Late => "late",
                    Renewal::Failed => "failed",
                };
                counter!("dlock_renewals_total", "lock_type" => of(&lock), "result" => result).increment(1);
            }
            Self::Waiting { lock, more } => {
                let waiting = gauge!("dlock_waiting_threads", "lock_type" => of(&lock));
                if more {
                    waiting.increment(1.0);
                } else {
                    waiting.decrement(1.0);
                }
            }
            Self::Call { name, took, is_answered } => {
                let result = if is_answered { "answered" } else { "failed" };
                histogram!("dlock_store_seconds", "call" => name, "result" => result).record(took.as_secs_f64());
            }
            Self::NewServer => counter!("dlock_new_servers_total").increment(1),
        }
    }
}

#[cfg(not(feature = "metrics"))]
impl Sample {
    /// Without the feature there is no recorder.
    pub(crate) fn record(self) {}
}

/// Tells the recorder what the names mean, and in which units.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    let described = crate::sync::catch_panic(|| {
        describe_histogram!("dlock_wait_seconds", Unit::Seconds, "How long calls took that got a lock.");
        describe_histogram!("dlock_hold_seconds", Unit::Seconds, "How long threads held a lock.");
        describe_histogram!("dlock_store_seconds", Unit::Seconds, "How long calls of the store took.");
        describe_counter!("dlock_acquired_total", Unit::Count, "Locks that threads got, by how they got them.");
        describe_counter!("dlock_released_total", Unit::Count, "Holds that ended, by what became of the lock.");
        describe_counter!("dlock_lost_total", Unit::Count, "Leases that were lost during a hold, by cause.");
        describe_counter!("dlock_renewals_total", Unit::Count, "Attempts to extend a lease, by result.");
        describe_counter!("dlock_new_servers_total", Unit::Count, "How often another server answered than before.");
        describe_gauge!("dlock_waiting_threads", Unit::Count, "Threads of this process that wait for a lock.");
    });
    if described.is_none() {
        log::error!(CLIENT, "the program's recorder of metrics panicked");
    }
}
