//! The types that a program uses: generators, locks, guards.

mod breaking;
mod describe;
mod generator;
mod guard;
mod handle;
mod hooks;
mod inspected;
mod limits;
pub(crate) mod properties;

// The impl blocks of the lock, in the order in which its page shows them.
mod reentrant;

mod scoped;

mod owned_guard;

mod unguarded;

pub use describe::ListedLocks;
pub use generator::{DLockGenerator, GeneratorBuilder};
pub use guard::DLockGuard;
pub use inspected::{Holder, LockState};
pub use owned_guard::OwnedDLockGuard;
pub use reentrant::DistributedReentrantLock;
pub use unguarded::UnguardedLock;
