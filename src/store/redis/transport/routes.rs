//! Which mux a call takes: while a key has a call in flight, every call for that key uses the same mux, in order.
//!
//! So a call cannot overtake an earlier call for its key, even if no caller waits for the reply to that one. Once all calls for a key are
//! answered, their order is fixed, and the next call may take any mux. Urgent calls on their own mux are exempt, because they need no
//! order.
//!
//! A key is represented by a hash of ten bits. Two keys with the same hash share a mux while they have calls in flight, which does no harm.
//!
//! # Batches
//!
//! A batch is put together first. A command gets its connection when it is added: the one on which its key has calls in flight, else the
//! one that was chosen for the batch. So a batch may have several *parts*, one for each connection.
//! [`Transport::begin`](super::Transport::begin) then writes all parts, and [`Transport::end`](super::Transport::end) waits for all their
//! replies. Replies are returned in the order in which the commands were added, whatever their parts.
//!
//! The route of a command is entered when the command is added, and not when it is written. Another call for its key that comes in between
//! takes the same connection. It is written before or behind the command, but never overtakes it on another connection.

use super::URGENT;
use crate::store::redis::net::resp::Packed;
use crate::sync::atomic::{AtomicU32, Ordering};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bits below this one count the calls in flight of an entry; the other bits are the number of the mux.
const MUX_SHIFT: u32 = 24;
const COUNT: u32 = (1 << MUX_SHIFT) - 1;

/// The hash that stands for a key here: a number below [`COUNT`](Self::COUNT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(pub(crate) u16);

/// See the module.
// ORDERING: an entry changes only by read-modify-write operations, so no count is lost. A call leaves (`leave`, Release) after its last
// reply was read or its connection was given up. The exchange by which a later call comes in (`enter`, Acquire) sees that. So a call that
// finds no other call in flight, and therefore may take another mux, is written after the last reply to the earlier calls was read.
#[derive(Debug)]
pub(crate) struct Routes(Vec<AtomicU32>);

/// The mux that calls take. Counts the calls in flight, and so keeps their keys on that mux. Counts them out when it is dropped.
#[derive(Debug)]
pub(crate) struct Route {
    routes: Arc<Routes>,
    pub(crate) mux: usize,
    /// The hash of the key of each call.
    keys: SmallVec<[KeyHash; 8]>,
}

impl KeyHash {
    /// The number of hashes.
    pub(crate) const COUNT: usize = 1024;

    pub(crate) fn of(key: &str) -> Self {
        // The hash is FNV-1a, which takes a few instructions a byte. An attacker can choose keys with equal hashes. That does no harm: such
        // keys share a connection, and nothing else.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in key.as_bytes() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(((hash ^ hash >> 32) % Self::COUNT as u64) as u16)
    }
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self((0..KeyHash::COUNT).map(|_| AtomicU32::new(0)).collect())
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
        // ORDERING: pairs with `leave`: other calls that were in flight for this key have had their replies.
        entry.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    fn leave(&self, hash: KeyHash) {
        self.0[usize::from(hash.0)].fetch_sub(1, Ordering::AcqRel); // ORDERING: pairs with `enter` and `turn`.
    }
}

impl Route {
    /// The route of calls that need no order.
    pub(crate) fn on(routes: &Arc<Routes>, mux: usize) -> Self {
        Self { routes: Arc::clone(routes), mux, keys: SmallVec::new() }
    }

    /// Counts a call in. It takes the mux that its key is on, or else the preferred one.
    pub(crate) fn enter(routes: &Arc<Routes>, hash: KeyHash, preferred: usize) -> Self {
        let entry = &routes.0[usize::from(hash.0)];
        let mut next = 0;
        // ORDERING: the successful exchange pairs with `leave`. The load, and an exchange that fails, need only a recent value.
        let _ = entry.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            next = if seen & COUNT == 0 { (preferred as u32) << MUX_SHIFT | 1 } else { seen + 1 };
            Some(next)
        });
        Self { routes: Arc::clone(routes), mux: (next >> MUX_SHIFT) as usize, keys: smallvec![hash] }
    }

    /// Moves the keys of these calls to another mux. Returns `false` if other calls for one of the keys are in flight.
    pub(crate) fn turn(&mut self, mux: usize) -> bool {
        self.keys.sort_unstable();
        self.keys.chunk_by(|one, other| one == other).all(|calls| self.routes.turn(calls[0], calls.len() as u32, mux))
    }

    /// Moves the calls into the route that is returned.
    pub(crate) fn take(&mut self) -> Self {
        Self { routes: Arc::clone(&self.routes), mux: self.mux, keys: std::mem::take(&mut self.keys) }
    }

    /// Takes over the calls of another route on the same mux.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.keys.append(&mut other.keys);
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        for hash in &self.keys {
            self.routes.leave(*hash);
        }
    }
}

/// Commands that are sent together, each on the mux of its key.
pub(crate) struct Batch<'t> {
    pub(super) parts: SmallVec<[BatchPart; 1]>,
    routes: &'t Arc<Routes>,
    preferred: usize,
    /// The index of each command's part.
    pub(super) order: SmallVec<[u8; 16]>,
}

/// The commands of a batch that go on one mux.
pub(super) struct BatchPart {
    pub(super) packed: Packed,
    pub(super) route: Route,
}

/// When a caller waits for the answer to what it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitOrder {
    /// The caller waits at once, and begins nothing else before.
    AtOnce,
    /// The caller begins other calls first, and may wait for their answers before it waits for this one.
    AfterOthers,
}

/// When posted calls are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PostTime {
    /// Before the poster goes on.
    Now,
    /// With the next batch, or when answers are collected: the poster is about to do one of the two.
    WithNext,
}

/// What becomes of a connection from which an answer does not come within a caller's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtLimit {
    KeepConnection,
    /// The connection is cut, so that the next attempt uses a fresh one.
    BreakConnection,
}

/// How long a caller waits for the answer to what it has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerLimit {
    pub(crate) deadline: Instant,
    /// The caller's limit. It stands in the error, and tells which connections are older than the call.
    pub(crate) limit: Duration,
    /// How much longer than the deadline a call may take that was sent again in its full form: its caller may have waited for something else
    /// until the deadline, and sees the refusal only then.
    pub(crate) spare: Duration,
    pub(crate) at_limit: AtLimit,
}

impl<'t> Batch<'t> {
    /// Returns an empty batch. Its commands about keys without calls in flight go on the preferred mux; all do if that is [`URGENT`].
    pub(super) fn new(routes: &'t Arc<Routes>, preferred: usize) -> Self {
        Self { parts: SmallVec::new(), routes, preferred, order: SmallVec::new() }
    }

    /// Returns `true` if the commands go on the mux for urgent calls.
    pub(super) fn is_urgent(&self) -> bool {
        self.preferred == URGENT
    }

    /// Adds commands about one key, which stay together on one mux, or commands that are about none.
    pub(crate) fn push(&mut self, key: Option<&str>, pack: impl FnOnce(&mut Packed)) {
        let route = match key {
            Some(_) if self.is_urgent() => Route::on(self.routes, URGENT),
            Some(key) => self.route(KeyHash::of(key)),
            None => Route::on(self.routes, 0),
        };
        self.push_on(route, pack);
    }

    /// Chooses the mux for commands about a key.
    pub(crate) fn route(&self, hash: KeyHash) -> Route {
        Route::enter(self.routes, hash, self.preferred)
    }

    /// Adds commands about one key on the route that was chosen for it.
    pub(crate) fn push_on(&mut self, route: Route, pack: impl FnOnce(&mut Packed)) {
        let at = self.parts.iter().position(|part| part.route.mux == route.mux).unwrap_or(self.parts.len());
        match self.parts.get_mut(at) {
            Some(part) => part.route.join(route),
            None => self.parts.push(BatchPart { packed: Packed::for_one(), route }),
        }
        let packed = &mut self.parts[at].packed;
        let before = packed.replies();
        pack(packed);
        // There are no more parts than muxes.
        self.order.extend(std::iter::repeat_n(at as u8, packed.replies() - before));
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/transport/routes.rs"]
mod tests;
