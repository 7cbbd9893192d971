//! Locker strings: they say who holds a key, and for which tenure.
//!
//! The format is `{host}-{pid}-{random}-{n}`. Behind it stands `D` and a number of milliseconds if the tenure has a
//! lock-delay, and then `L` if it may linger. The part before the last `-` is the client id; `n` counts the client's
//! tenures. A locker is never used twice, so a late or repeated command can only touch the tenure that it was meant for.

use crate::error::{BackendFailure, Error};
use crate::port::marks;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The random bytes drawn from the operating system for each client: 96 bits, because containers share host names and
/// pid 1.
const RANDOM_BYTES: usize = 12;
/// The space for a count: `-`, the digits of any `u64`, `D60000`, `L`.
const COUNT_ROOM: usize = 28;

/// The identity of one client, and the source of its lockers.
#[derive(Debug)]
pub(crate) struct ClientId {
    text: String,
    /// The length of the host name at its beginning.
    host: usize,
    /// How many lockers were made.
    // ORDERING: Relaxed: each addition returns another number, and nothing else is published.
    tenures: AtomicU64,
    /// A keyed hash (`SipHash`). A copy of this process has its key, too, and nobody else learns it.
    secret: RandomState,
    /// The identity that took its place, because another process has this one, too.
    next: OnceLock<Box<Self>>,
}

impl ClientId {
    /// Draws a new identity. Fails with [`Error::Backend`] when the operating system has no random numbers.
    pub(crate) fn draw() -> Result<Self, Error> {
        Self::of_host(&hostname::get().unwrap_or_default().to_string_lossy())
    }

    /// Draws a new identity for a host of this name.
    pub(crate) fn of_host(host: &str) -> Result<Self, Error> {
        let mut random = [0u8; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|e| {
            Error::backend(BackendFailure::NotExecuted, format!("the operating system gave no random bytes: {e}"))
        })?;
        let host = readable(host);
        let mut text = format!("{host}-{}-", std::process::id());
        for byte in random {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self {
            text,
            host: host.len(),
            tenures: AtomicU64::new(0),
            secret: RandomState::new(),
            next: OnceLock::new(),
        })
    }

    /// Returns the identity that counts now: this one, or the last one that took its place.
    pub(crate) fn current(&self) -> &Self {
        let mut id = self;
        while let Some(next) = id.next.get() {
            id = next;
        }
        id
    }

    /// Draws an identity that takes the place of this one, unless another thread has done so.
    pub(crate) fn replace(&self) -> Result<(), Error> {
        let next = Box::new(Self::draw()?);
        // If another thread was faster, its identity counts.
        let _ = self.next.set(next);
        Ok(())
    }

    /// Returns the client id, the part of every locker before the last `-`.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether a locker belongs to this identity.
    pub(crate) fn owns(&self, locker: &str) -> bool {
        locker.starts_with(&self.text) && locker.as_bytes().get(self.text.len()) == Some(&b'-')
    }

    /// Returns whether this is a locker of this identity that was never [made](Self::next_locker) here: then another client has the identity,
    /// too.
    pub(crate) fn is_of_twin(&self, locker: &str) -> bool {
        let Some(count) = locker.strip_prefix(&self.text).and_then(|rest| rest.strip_prefix('-')) else { return false };
        let digits = count.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        // ORDERING: Relaxed: a thread that is told of a locker of its own client is told after that locker was made.
        digits.parse::<u64>().is_ok_and(|n| n > self.tenures.load(Ordering::Relaxed))
    }

    /// Returns the proof for this number, which only a client with this identity can make: this one, or one in a copy of this process.
    pub(crate) fn proof(&self, nonce: u64) -> u64 {
        self.secret.hash_one(nonce)
    }

    /// Returns the host name in the client id.
    pub(crate) fn host(&self) -> &str {
        &self.text[..self.host]
    }

    /// Returns a locker that was never returned before. It contains the lock-delay of its tenure, and says whether the tenure may linger: not if
    /// `linger` is zero.
    pub(crate) fn next_locker(&self, lock_delay: Duration, linger: Duration) -> String {
        // ORDERING: Relaxed: each addition returns another number, and nothing else is published.
        let n = self.tenures.fetch_add(1, Ordering::Relaxed) + 1;
        let mut locker = String::with_capacity(self.text.len() + COUNT_ROOM);
        locker.push_str(&self.text);
        // Writing to a `String` cannot fail.
        let _ = write!(locker, "-{n}");
        if !lock_delay.is_zero() {
            let _ = write!(locker, "D{}", lock_delay.as_millis());
        }
        if !linger.is_zero() {
            locker.push('L');
        }
        locker
    }
}

/// Returns random bytes of the operating system as a number, if it has some.
pub(crate) fn random_number() -> Option<u64> {
    getrandom::u64().ok()
}

/// Returns whether a holder's locker says that its tenure may linger and can therefore be recalled.
pub(crate) fn may_linger(locker: &str) -> bool {
    marks(locker).is_some_and(|(_, may_linger)| may_linger)
}

/// Returns what is left of the lock-delay of a key that contains this locker, and that the store keeps for `remaining`. `None` if the key is not in
/// its lock-delay: the lease has not ended yet, or the locker has no lock-delay.
pub(crate) fn lock_delay_left(locker: &str, remaining: Option<Duration>) -> Option<Duration> {
    let (delay, _) = marks(locker)?;
    remaining.filter(|left| !delay.is_zero() && *left <= delay)
}

/// Returns a host name that can stand in a locker: no spaces, no control characters, not empty, not long.
fn readable(host: &str) -> String {
    let safe: String = host
        .chars()
        .take(64)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
        .collect();
    if safe.is_empty() { "unknown".to_owned() } else { safe }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/locker.rs"]
mod tests;
