//! The types that a program uses: generators, locks, guards.

mod breaking;
mod describe;
mod generator;
mod guard;
mod handle;
mod hooks;
mod limits;
mod owned_guard;
pub(crate) mod properties;
mod reentrant;
mod scoped;
mod unguarded;

pub use describe::ListedLocks;
pub use generator::{DLockGenerator, GeneratorBuilder};
pub use guard::DLockGuard;
pub use owned_guard::OwnedDLockGuard;
pub use reentrant::{DistributedReentrantLock, Holder, LockState};
pub use unguarded::UnguardedLock;
