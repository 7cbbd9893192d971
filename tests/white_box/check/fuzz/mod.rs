//! The code that reads what others wrote, as targets for a fuzzer. A target takes any bytes, and checks properties of the result.
//!
//! | target | its bytes are | reader |
//! |---|---|---|
//! | `url` | a URL | `store/redis/net/address.rs` |
//! | `properties` | the text of `config-dlock.properties` | `lock/properties.rs` |
//! | `locker` | a host name, and a holder's value | `state/locker.rs` |
//! | `message` | a message published to an inbox | `store/redis/script/message.rs` |
//! | `reply` | a script, and a tree of values as its reply | `store/redis/script/reply.rs` |
//! | `resp` | what a server sent | `store/redis/net/resp.rs`, and everything that reads replies |
//! | `error` | the line of an error reply | `store/redis/net/classify.rs` |
//! | `hello` | the reply to `HELLO` | `store/redis/net/handshake.rs` |
//!
//! The fuzzer is libFuzzer: the crate in `tests/fuzz` passes these functions to it. `cargo test` searches for nothing: [`corpus`] repeats
//! the inputs in `tests/fuzz/corpus`.

#[cfg(test)]
mod corpus;
mod readers;
pub(crate) mod target;
pub(crate) mod trees;

use target::Target;

/// All targets.
pub(crate) fn targets() -> impl Iterator<Item = &'static Target> {
    readers::TARGETS.iter().chain(crate::store::redis::fuzz::TARGETS)
}

/// Checks one input of one target.
///
/// # Panics
///
/// When a property does not hold, or there is no such target.
#[cfg(fuzzing)]
pub fn check(target: &str, data: &[u8]) {
    let target = targets().find(|t| t.name == target).unwrap_or_else(|| panic!("no target {target:?}"));
    (target.check)(data);
}
