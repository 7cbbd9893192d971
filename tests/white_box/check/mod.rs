//! Test-only code that checks the crate from above. It may use everything; nothing uses it.

#[cfg(feature = "redis")]
pub(crate) mod fuzz;
#[cfg(all(test, dlock_shuttle))]
pub(crate) mod model;
