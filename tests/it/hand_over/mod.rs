//! The hand-over between real processes and inside one, as a real server sees it: order, latency and counts.
//!
//! | file | shows |
//! |---|---|
//! | `dead.rs` | killed waiters are passed over inside the releaser's script call, and dropped after a second |
//! | `stopped.rs` | who is stopped between a grant and the reading of it believes in no lease that is over |
//! | `chaos.rs` | nor does anybody when processes are stopped at any time |
//! | `expired.rs` | when a holder dies, the first in the queue gets the lock, not whoever asks first |
//! | `fairness.rs` | processes and threads get like shares, and nobody starves |
//! | `counts.rs` | script calls of a hand-over |
//! | `wakeups.rs` | nobody wakes who is not given the lock |
//! | `local.rs` | what passing the lock on inside a process costs, and how it ends |
//! | `overtaken.rs` | the word that others wait counts, also when it overtakes an answer |
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
