//! The times by which Sentinels are asked.

use crate::backoff::Backoff;
use std::time::Duration;

/// How long an address stays refuted: it may become a master, or be reached again, at any time.
pub(super) const REFUTED: Duration = Duration::from_millis(500);

/// How old an answer may be that another thread was given.
pub(super) const YOUNG: Duration = Duration::from_millis(100);

/// `down-after-milliseconds` where no Sentinel has said it yet: Sentinel's default.
pub(super) const DOWN_AFTER: Duration = Duration::from_secs(30);

/// How long Sentinel needs beyond `down-after-milliseconds`, to agree and to promote a replica (measured: 1 to 2 s).
pub(super) const AGREEMENT: Duration = Duration::from_secs(2);

/// How long one Sentinel may take to answer, its connect included. Redis's guide for clients asks for "a few hundred milliseconds", so that a
/// Sentinel that hangs does not keep a client from the next one.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);

/// A limit that leaves a Sentinel all of that.
pub(super) const WHOLE: Duration = Duration::from_millis(600);

/// The pauses before a Sentinel that does not answer is asked again. They double, so that Sentinels that hang do not slow down the asking of
/// the others.
pub(super) const ASK_AGAIN: Backoff = Backoff::new(PATIENCE, Duration::from_secs(5)).exact();

/// The same while connects fail.
pub(super) const ROUND_IN_TROUBLE: Duration = Duration::from_millis(100);

/// The time between the beginnings of two rounds.
pub(super) const ROUND: Duration = Duration::from_secs(1);

/// The time between two questions for other Sentinels.
pub(super) const ASK_FOR_MORE: Duration = Duration::from_secs(60);
