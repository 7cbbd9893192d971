//! The types that a program uses: generators, locks, guards.

#[macro_use]
mod queries;

mod generator;
mod guard;
mod handle;
mod held_lock;
mod hold;
#[cfg(feature = "async")]
mod hold_end;
#[cfg(feature = "async")]
mod hold_future;
mod inspected;
mod leader;
mod limits;
#[cfg(feature = "async")]
mod pause;
pub(crate) mod properties;
mod several;

mod reentrant;

mod owned_guard;

mod unguarded;

pub use generator::{DLockGenerator, GeneratorBuilder, ListedLocks};
pub use guard::DLockGuard;
pub use hold::Hold;
#[cfg(feature = "async")]
pub use hold_end::{LossFuture, ReleaseFuture};
#[cfg(feature = "async")]
pub use hold_future::{HoldFuture, TryHoldFuture};
pub use inspected::{Holder, LockState};
pub use leader::{Leader, Term};
pub use owned_guard::OwnedDLockGuard;
pub use reentrant::DistributedReentrantLock;
#[cfg(feature = "async")]
pub use several::HoldAllFuture;
pub use several::{DLockGuards, Holds};
pub use unguarded::UnguardedLock;
