//! The embedded store: [`MemoryLockProcessor`].
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the processor: requests in, outcomes out |
//! | `directory.rs` | what people are told |
//! | `inbox.rs` | the inbox of a client |
//! | `store.rs` | the keys and the inboxes, one mutex around everything |
//! | `entry.rs` | one key of this store: the specification in the terms of the port |
//! | `spec/` | one key: its holder, its queue, and the rules of every operation, as data |
//! | `inboxes.rs` | which clients have an inbox, and how a message reaches them |
//! | `fence.rs` | the fence numbers, one sequence for the whole process |
//! | `timing.rs` | its times, which are those of the scripts |
//! | `processor.rs` | what a test may do to the store (feature `test-util`) |
//!
//! The rules are those of the Redis scripts (`scripts/*.lua`), operation by operation, and the conformance suite runs on both. The model
//! of the protocol explores the same rules: its package includes the files. One mutex makes each operation as atomic as a
//! script. Nothing blocks under it: messages go into unbounded channels. They are sent before the mutex is released, so that they arrive
//! in the order of the events that they report.

mod directory;
mod entry;
mod fence;
mod inbox;
mod inboxes;
mod processor;
mod spec;
mod store;
mod timing;

pub use processor::MemoryLockProcessor;
