//! Only in tests: what looks at the crate from above. It may use everything, and nothing uses it but by the macro
//! [`mutant`](crate::sync::mutant).

#[cfg(feature = "redis")]
pub(crate) mod fuzz;
#[cfg(all(test, dlock_shuttle))]
pub(crate) mod model;
