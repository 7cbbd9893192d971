//! The scripts: their texts, the requests to them, their replies and messages, and the names of keys. Nothing here sends anything.
//!
//! | file | holds |
//! |---|---|
//! | `scripts.rs` | the Lua scripts, requests as calls of them, and a call as bytes |
//! | `reply.rs` | replies as outcomes, and their elements; what is asked for people |
//! | `message.rs` | what the scripts publish |
//! | `keys.rs` | the names of all that a lock has in Redis, and the slots of a Cluster |

pub(super) mod acks;
pub(super) mod keys;
pub(super) mod message;
pub(super) mod reply;
pub(super) mod scripts;
pub(super) mod timing;
