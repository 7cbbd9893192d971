//! The schedules of the middle layer, explored.

pub(crate) mod mutants;
pub(crate) mod time;
pub(crate) mod twins;
