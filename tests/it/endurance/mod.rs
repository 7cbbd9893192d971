//! What the library bears for long: a store that fails all the time, waits that all fail, clocks that jump.
//!
//! | file | holds |
//! |---|---|
//! | `faulty.rs` | a store of which a part of all commands fails, by a seeded die |
//! | `errors.rs` | thousands of operations on it |
//! | `time_outs.rs` | thousands of waits that end without the lock |
//! | `suspend.rs` | machines that sleep while they hold, wait or linger |
//! | `wall_clock.rs` | the wall clock of a client is moved |
//! | `server_clock.rs` | the wall clock of the server is stepped |
//!
//! The short runs are part of every test run. `DLOCK_TEST_LONG=1` makes them long, `DLOCK_TEST_SEED` repeats one:
//!
//! ```text
//! DLOCK_TEST_LONG=1 DLOCK_TEST_SEED=7 cargo test --all-features --test it -- endurance:: --nocapture
//! ```

mod errors;
mod faulty;
mod server_clock;
mod suspend;
mod time_outs;
mod wall_clock;
