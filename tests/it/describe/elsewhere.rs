//! The tests of descriptions, as those of the lock.

mod asking;
mod clients;
