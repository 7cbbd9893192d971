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
//! The lock, its guarantees and its settings are those of `redis-dlock`. What is so of this store alone is below.
//!
#![doc = include_str!("manual.md")]
#![forbid(unsafe_code)]

// # How it is made
//
// | file | holds |
// |---|---|
// | `processor.rs` | the port: requests in, outcomes out |
// | `operation.rs` | the document of a lock, and each operation on it as a pipeline; why each is right |
// | `expression.rs` | words of MongoDB's expression language |
// | `entry.rs` | the document as it comes back, and the outcomes that follow |
// | `link.rs` | the driver's client, its runtime, the limits of commands |
// | `classify.rs` | what is known of a command that failed |
// | `inbox.rs` | a client's change stream |
// | `directory.rs` | what people are told |
// | `timing.rs` | lengths of time |

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
