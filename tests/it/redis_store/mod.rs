//! The Redis store against real servers: what every script does, what every failure becomes, and the transport's time.

mod busy;
mod demoted;
mod errors;
mod gaps;
mod identity;
mod keep;
mod listening;
mod moved;
mod outcomes;
mod plain;
mod slots;
mod transport;
