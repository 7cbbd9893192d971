//! The store on a Redis server. It knows nothing of locks, only of the [`LockProcessor`](crate::LockProcessor) contract.
//!
//! ```text
//!   processor ─ request ─▶ script ─▶ transport ─▶ call  (who waits for what)
//!       │  └─── reply, classify ◀──────┘    └────▶ link ─▶ frame, dial, socket, tls, handshake
//!     inbox ─ message ───────────────────────────▶ link
//! ```
//!
//! The crate of the same name is always written `::redis` here.

mod address;
mod builder;
mod classify;
mod dial;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod handshake;
mod inbox;
mod keys;
mod link;
mod mask;
mod message;
mod plain;
mod processor;
mod reply;
mod request;
mod script;
mod slot;
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_session;
mod transport;

pub use builder::RedisBuilder;
pub use processor::RedisLockProcessor;
