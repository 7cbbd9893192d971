//! What the tests of several topics share.

mod memory_store;
mod redis_server;
mod redis_store;
mod store;
mod suite;

pub(crate) use memory_store::MemoryStore;
pub(crate) use suite::{Client, Ear, LONG, SHORT, Suite, Tenure, run};
