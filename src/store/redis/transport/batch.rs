//! Commands that are sent together.
//!
//! A batch is put together first, and each of its commands has its connection from then on: the one on which its key has calls in flight, else
//! the one that was chosen for the batch. So a batch may have several *parts*, one for each connection. It is then begun, which writes all
//! parts, and ended, which waits for all their replies: see [`Transport::begin`](super::Transport::begin). Replies are returned in the order
//! in which the commands were added, whatever their parts.
//!
//! The route of each command is entered when it is added, and not when it is written. Another call for its key that comes in between takes the
//! same connection, and is written before or behind it, but never overtakes it on another connection.

use super::mux::PendingCall;
use super::routes::{KeyHash, RouteGuard, Routes};
use crate::store::redis::net::resp::Packed;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Commands that are sent together, each on the mux of its key.
pub(crate) struct Batch {
    pub(super) parts: SmallVec<[BatchPart; 1]>,
    routes: Arc<Routes>,
    preferred: usize,
    /// The index of each command's part.
    pub(super) order: SmallVec<[u8; 16]>,
    /// Whether all commands go on the preferred mux, which is the one for urgent calls.
    pub(super) is_urgent: bool,
    /// What keeps the key of the first command on its mux, if that was chosen before.
    first: Option<RouteGuard>,
}

/// The commands of a batch that go on one mux.
pub(super) struct BatchPart {
    pub(super) mux: usize,
    pub(super) packed: Packed,
    pub(super) route: RouteGuard,
}

/// A batch that was sent, and whose replies are to be waited for.
pub(crate) struct Begun {
    pub(super) calls: SmallVec<[(usize, Arc<PendingCall>); 1]>,
    /// The index of each command's call.
    pub(super) order: SmallVec<[u8; 16]>,
    pub(super) deadline: Instant,
    /// How much longer a command may take whose short form the server did not know.
    pub(crate) spare: Duration,
    pub(super) is_alone: bool,
}

impl Batch {
    /// Returns an empty batch. Its commands about keys without calls in flight go on the preferred mux.
    pub(super) fn new(routes: &Arc<Routes>, preferred: usize, is_urgent: bool) -> Self {
        Self {
            parts: SmallVec::new(),
            routes: Arc::clone(routes),
            preferred,
            order: SmallVec::new(),
            is_urgent,
            first: None,
        }
    }

    /// Returns an empty batch whose first command goes on this mux, by a route that was entered for its key.
    pub(super) fn on(routes: &Arc<Routes>, mux: usize, route: RouteGuard) -> Self {
        Self { first: Some(route), ..Self::new(routes, mux, false) }
    }

    /// Returns `true` if all commands go on one mux.
    pub(crate) fn is_one(&self) -> bool {
        self.parts.len() == 1
    }

    /// Adds commands about a key, which belong together.
    pub(crate) fn push(&mut self, key: &str, pack: impl FnOnce(&mut Packed)) {
        let (mux, route) = if self.is_urgent {
            (self.preferred, RouteGuard::new(&self.routes))
        } else if let Some(route) = self.first.take() {
            (self.preferred, route)
        } else {
            RouteGuard::enter(&self.routes, KeyHash::of(key), self.preferred)
        };
        self.add(mux, route, pack);
    }

    /// Adds one command that is about no key.
    pub(crate) fn push_any(&mut self, pack: impl FnOnce(&mut Packed)) {
        self.add(0, RouteGuard::new(&self.routes), pack);
    }

    fn add(&mut self, mux: usize, route: RouteGuard, pack: impl FnOnce(&mut Packed)) {
        let at = self.parts.iter().position(|part| part.mux == mux).unwrap_or(self.parts.len());
        match self.parts.get_mut(at) {
            Some(part) => part.route.join(route),
            None => self.parts.push(BatchPart { mux, packed: Packed::for_one(), route }),
        }
        let packed = &mut self.parts[at].packed;
        let before = packed.replies();
        pack(packed);
        // There are no more parts than muxes.
        self.order.extend(std::iter::repeat_n(at as u8, packed.replies() - before));
    }
}
