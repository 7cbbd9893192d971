//! A distributed reentrant lock over Redis, for blocking programs.

mod ask;
mod backoff;
mod cancel;
mod cleanup;
mod client;
mod clock;
mod config;
mod error;
mod generator;
mod guard;
mod hold;
mod key;
mod lease;
mod lock;
mod locker;
mod memory;
mod processor;
mod properties;
mod queue;
mod redis;
mod retry;
mod schedule;
mod tenure;
mod turn;
mod unguarded;
mod worker;

pub use self::redis::{RedisBuilder, RedisLockProcessor};
pub use cancel::CancelToken;
pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use config::{DEFAULT_LEASE, DLockConfig, MAX_LEASE, MIN_LEASE};
pub use error::{BackendFailure, Error, LeaseLoss, LossCause};
pub use generator::{DLockGenerator, GeneratorBuilder};
pub use guard::DLockGuard;
pub use lock::{DistributedReentrantLock, Holder};
pub use memory::MemoryLockProcessor;
pub use processor::{
    AcquireOutcome, AcquireRequest, Busy, ExtendOutcome, ExtendRequest, Grant, Inbox, Inspection, LockProcessor,
    Message, NotOurs, Outcome, PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseOutcome, ReleaseRequest,
    Request,
};
pub use unguarded::UnguardedLock;
