//! The hand-over between real processes and inside one, as a real server sees it: order, latency and counts.
//!
//! `actor.rs` and `play.rs` are the two sides of a worker process, `scene.rs` is what all of them look at. Leases are of an
//! hour where a test does not say why not: then nobody asks again in its time.
//!
//! With `DLOCK_TEST_LONG=1` those that take chances take many more.
//!
//! With the listener off all this is as it may be; the tests are not run then.

mod actor;
mod chaos;
mod counts;
mod dead;
mod expired;
mod fairness;
mod local;
mod overtaken;
mod play;
mod scene;
mod stopped;
mod wakeups;
