//! The checks of a lock's settings.

use super::{DLockConfig, MAX_LEASE, MIN_LEASE, PREFIX};
use crate::error::Error;
use std::time::Duration;

/// Truncates a time to whole milliseconds.
pub(crate) fn whole_milliseconds(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Checks a lock type. Fails with [`Error::InvalidConfig`] if it is empty.
pub(crate) fn check_type(lock_type: &str) -> Result<(), Error> {
    if lock_type.is_empty() {
        return Err(Error::invalid_config("lock type", "", "give it at least one character"));
    }
    Ok(())
}

/// The longest key, in bytes. Redis ends the connection of a client that sends an argument longer than `proto-max-bulk-len`, which is at least
/// 1 MiB. A request to Consul has the key in its URL, in which a byte of the key may take three bytes, and which the HTTP client limits to 64
/// KiB.
pub const LONGEST_KEY: usize = 16 * 1024;

/// Checks the name of a lock. Fails with [`Error::InvalidConfig`] if the type is empty, or if the key is longer than 16 KiB. The error shows
/// the beginning of the key.
pub(crate) fn check_name(config: &DLockConfig) -> Result<(), Error> {
    check_type(config.lock_type())?;
    let key = config.unique_key();
    if key.len() <= LONGEST_KEY {
        return Ok(());
    }
    let beginning: String = key.chars().take(60).collect();
    Err(Error::invalid_config(
        "lock name",
        format!("{beginning}… ({} bytes)", key.len()),
        format!(
            "give a type and a target of at most {} bytes together, such as a hash of the name",
            LONGEST_KEY - PREFIX.len() - 1
        ),
    ))
}

/// Checks a lease. Fails with [`Error::InvalidConfig`] if it is shorter or longer than a lease may be.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        Ok(())
    } else {
        Err(Error::invalid_config("lease", format!("{lease:?}"), "give a lease from 20 ms to 2147483647 ms (24 days)"))
    }
}
