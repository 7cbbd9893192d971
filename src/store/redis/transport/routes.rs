//! Which mux a call takes: while a key has a call in flight, every call for that key uses the same mux, in order.
//!
//! So a call cannot overtake an earlier one for its key, whose reply nobody has waited for. Once all calls for a key are answered, the
//! answers have fixed their order, and the next call may take any mux. Urgent calls on their own mux are exempt, because they need no
//! order.
//!
//! Keys are told apart by a hash of ten bits. Two keys with the same hash share a mux for a moment, which does no harm.

use crate::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// The number of hashes.
const HASHES: usize = 1024;

/// The low bits of an entry count the calls in flight; the other bits are the mux.
const MUX_SHIFT: u32 = 24;
const COUNT: u32 = (1 << MUX_SHIFT) - 1;

/// The hash that stands for a key here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(u16);

/// See the module.
// ORDERING: an entry changes only by read-modify-write operations, so no count is lost. A call leaves (`leave`, Release) after its last
// reply was read or its connection was given up, and the exchange by which a later call comes in (`enter`, Acquire) sees that. So a call
// that finds no other in flight, and therefore may take another mux, is written after that.
#[derive(Debug)]
pub(crate) struct Routes(Vec<AtomicU32>);

/// Keeps the keys of calls in flight on their mux. Counts the calls out when it is dropped.
#[derive(Debug)]
pub(crate) struct RouteGuard {
    routes: Arc<Routes>,
    /// The hash of the key of the first call. Most guards have only this one.
    first: Option<KeyHash>,
    more: Vec<KeyHash>,
}

impl KeyHash {
    /// The number of hashes.
    pub(crate) const COUNT: usize = HASHES;

    /// Returns a number below [`COUNT`](Self::COUNT).
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn of(key: &str) -> Self {
        // The hash is FNV-1a, which takes a few instructions a byte. An attacker can choose keys with equal hashes. That does no harm: such
        // keys share a connection, and nothing else.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in key.as_bytes() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(((hash ^ hash >> 32) % HASHES as u64) as u16)
    }
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self((0..HASHES).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts a call in and returns its mux: the one its key is on, or else the preferred one.
    fn enter(&self, hash: KeyHash, preferred: usize) -> usize {
        let entry = &self.0[usize::from(hash.0)];
        // ORDERING: the successful exchange pairs with `leave`. The load, and an exchange that fails, need only a recent value.
        let mut seen = entry.load(Ordering::Acquire);
        loop {
            let next = if seen & COUNT == 0 { (preferred as u32) << MUX_SHIFT | 1 } else { seen + 1 };
            match entry.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (next >> MUX_SHIFT) as usize,
                Err(now) => seen = now,
            }
        }
    }

    /// Returns `true` if no call is in flight.
    #[cfg(all(test, dlock_shuttle))]
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.load(Ordering::Relaxed) & COUNT == 0) // ORDERING: Relaxed: for a test, after its calls.
    }

    /// Moves a key to another mux, if exactly `calls` calls for it are in flight.
    fn turn(&self, hash: KeyHash, calls: u32, mux: usize) -> bool {
        let entry = &self.0[usize::from(hash.0)];
        let change = |seen: u32| (seen & COUNT == calls).then_some((mux as u32) << MUX_SHIFT | calls);
        // ORDERING: pairs with `leave`: the calls that were in flight beside these have had their replies.
        entry.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    fn leave(&self, hash: KeyHash) {
        self.0[usize::from(hash.0)].fetch_sub(1, Ordering::AcqRel); // ORDERING: pairs with `enter` and `turn`.
    }
}

impl RouteGuard {
    pub(crate) fn new(routes: &Arc<Routes>) -> Self {
        Self { routes: Arc::clone(routes), first: None, more: Vec::new() }
    }

    /// Counts one more call in and returns the mux that it must take.
    pub(crate) fn enter(routes: &Arc<Routes>, hash: KeyHash, preferred: usize) -> (usize, Self) {
        let mux = routes.enter(hash, preferred);
        (mux, Self { routes: Arc::clone(routes), first: Some(hash), more: Vec::new() })
    }

    /// Moves these calls to another mux; returns `false` if other calls for one of their keys are in flight.
    pub(crate) fn turn(&mut self, mux: usize) -> bool {
        self.more.extend(self.first.take());
        self.more.sort_unstable();
        self.more.chunk_by(|one, other| one == other).all(|calls| self.routes.turn(calls[0], calls.len() as u32, mux))
    }

    /// Moves the calls into the guard that is returned.
    pub(crate) fn take(&mut self) -> Self {
        Self { routes: Arc::clone(&self.routes), first: self.first.take(), more: std::mem::take(&mut self.more) }
    }

    /// Counts the calls out.
    pub(crate) fn give_back(&mut self) {
        for hash in self.first.take().into_iter().chain(self.more.drain(..)) {
            self.routes.leave(hash);
        }
    }

    /// Takes over the calls of another guard.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.more.extend(other.first.take());
        self.more.append(&mut other.more);
    }
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: S17.
    #[test]
    fn a_key_stays_on_its_mux_until_its_last_call_is_over() {
        let routes = Arc::new(Routes::new());
        let hash = KeyHash::of("DLOCK_ORDER_4711");
        let (first, route) = RouteGuard::enter(&routes, hash, 2);
        let (second, mut other) = RouteGuard::enter(&routes, hash, 0);
        assert_eq!((first, second), (2, 2));
        drop(route);
        let (third, joined) = RouteGuard::enter(&routes, hash, 1);
        assert_eq!(third, 2);
        other.join(joined);
        drop(other);
        assert_eq!(RouteGuard::enter(&routes, hash, 1).0, 1);
    }
}
