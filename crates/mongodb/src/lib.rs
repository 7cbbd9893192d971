//! The lock of [`redis_dlock`] on MongoDB 4.4 or newer. *Experimental: not yet run on a mongod.*
//!
//! ```no_run
//! # fn main() -> Result<(), redis_dlock::Error> {
//! use dlock_mongodb::MongoLockProcessor;
//! use redis_dlock::DLockGenerator;
//!
//! let generator = DLockGenerator::new(MongoLockProcessor::new("mongodb://h1,h2,h3/locks?replicaSet=rs0")?)?;
//! let lock = generator.generate("EXPORT", "nightly")?;
//! let guard = lock.lock()?;
//! // The token is the number in the lock's document, times 1024.
//! let token = guard.fencing_token();
//! # guard.unlock()
//! # }
//! ```
//!
//! The lock, its guarantees and its settings are those of `redis-dlock`. The rest of this page is about
//! this store.
//!
#![doc = include_str!("manual.md")]
#![forbid(unsafe_code)]

mod classify;
mod directory;
mod entry;
mod expression;
mod inbox;
mod link;
mod log;
mod operation;
mod processor;
mod timing;

pub use processor::MongoLockProcessor;
