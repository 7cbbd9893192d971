//! The schedules of the middle layer, explored.

mod closing;
mod journal;
pub(crate) mod mutants;
mod scenarios;
mod store;
mod time;
pub(crate) mod twins;
mod visitor;
mod world;
