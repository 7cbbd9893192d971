//! What a client knows of a key, as data. This module sends no request, starts no thread, and knows nothing of
//! clients.

pub(crate) mod hold;
pub(crate) mod key;
pub(crate) mod locker;
pub(crate) mod machine;
pub(crate) mod owner;
#[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only tasks use all of it"))]
pub(crate) mod task;
pub(crate) mod tenure;
