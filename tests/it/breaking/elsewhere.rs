//! The tests of forced breaks, as those of the lock.

mod holder;
mod orders;
mod racing;
mod waiters;
