//! What the library bears for long: a store that fails all the time, waits that all fail, clocks that jump.
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
