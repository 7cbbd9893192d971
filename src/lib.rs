//! A distributed reentrant lock over Redis, for blocking programs.

mod clock;
mod config;
mod error;
mod locker;
mod processor;
mod redis;

pub use self::redis::{RedisBuilder, RedisLockProcessor};
pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use config::{DEFAULT_LEASE, DLockConfig, MAX_LEASE, MIN_LEASE};
pub use error::{BackendFailure, Error, LeaseLoss, LossCause};
pub use processor::{
    AcquireOutcome, AcquireRequest, Busy, ExtendOutcome, ExtendRequest, Grant, Inbox, Inspection, LockProcessor,
    Message, NotOurs, Outcome, PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseOutcome, ReleaseRequest,
    Request,
};
