// The pages of the manual. They exist only in the documentation.
//
// A page is also read as a file. Its links name a label (`[with_lease][DLockConfig::with_lease]`), and the definitions at its end lead to
// files. If a label has several definitions, the first one counts. In the documentation that is the one in manual/links.md, which leads to
// the item.

#![doc = include_str!("manual/links.md")]
#![doc = include_str!("manual/index.md")]

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/which_lock.md")]
pub mod which_lock {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/pictures.md")]
#[doc = include_str!("manual/waiting.md")]
pub mod waiting {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/pictures.md")]
#[doc = include_str!("manual/leases.md")]
pub mod leases {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/fencing_tokens.md")]
pub mod fencing_tokens {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/failure.md")]
pub mod failure {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/failover.md")]
pub mod failover {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/cluster.md")]
pub mod cluster {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/stores.md")]
pub mod stores {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/events.md")]
pub mod events {}

#[cfg(feature = "metrics")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/metrics.md")]
pub mod metrics {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/who_holds_it.md")]
pub mod who_holds_it {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/several_locks.md")]
pub mod several_locks {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/leaders.md")]
pub mod leaders {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/shutting_down.md")]
pub mod shutting_down {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/scheduled_jobs.md")]
pub mod scheduled_jobs {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/recipes.md")]
pub mod recipes {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/tasks_and_pools.md")]
pub mod tasks_and_pools {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/storing_a_guard.md")]
pub mod storing_a_guard {}

#[cfg(feature = "test-util")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/testing.md")]
pub mod testing {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/porting.md")]
pub mod porting {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/operations.md")]
pub mod operations {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/run_book.md")]
pub mod run_book {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/sizing.md")]
pub mod sizing {}

#[cfg(feature = "redis")]
#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/speed.md")]
pub mod speed {}

#[doc = include_str!("manual/links.md")]
#[doc = include_str!("manual/upgrading.md")]
pub mod upgrading {}
