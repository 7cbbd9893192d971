//! Commands that are sent together.

use super::pending::Pending;
use super::routes::{KeyHash, RouteGuard, Routes};
use crate::store::redis::net::resp::Packed;
use std::sync::Arc;
use std::time::Instant;

/// Commands that are sent together, each on the mux of its key.
pub(crate) struct Batch {
    pub(super) parts: Vec<Part>,
    routes: Arc<Routes>,
    preferred: usize,
    /// The index of each command's part.
    pub(super) order: Vec<usize>,
    /// Whether all commands go on the preferred mux, which is the one for urgent calls.
    pub(super) is_urgent: bool,
}

/// The commands of a batch that go on one mux.
pub(super) struct Part {
    pub(super) mux: usize,
    pub(super) packed: Packed,
    pub(super) route: RouteGuard,
}

/// A batch that was sent, and whose replies are to be waited for.
pub(crate) struct Begun {
    pub(super) calls: Vec<(usize, Arc<Pending>)>,
    /// The index of each command's call.
    pub(super) order: Vec<usize>,
    pub(super) deadline: Instant,
    pub(super) is_alone: bool,
}

impl Batch {
    /// Returns an empty batch. Its commands about keys without calls in flight go on the preferred mux.
    pub(super) fn new(routes: &Arc<Routes>, preferred: usize, is_urgent: bool) -> Self {
        Self { parts: Vec::new(), routes: Arc::clone(routes), preferred, order: Vec::new(), is_urgent }
    }

    /// Returns `true` if all commands go on one mux.
    pub(crate) fn is_one(&self) -> bool {
        self.parts.len() == 1
    }

    /// Adds one command about a key.
    pub(crate) fn push(&mut self, hash: KeyHash, pack: impl FnOnce(&mut Packed)) {
        let (mux, route) = if self.is_urgent {
            (self.preferred, RouteGuard::new(&self.routes))
        } else {
            RouteGuard::enter(&self.routes, hash, self.preferred)
        };
        self.add(mux, route, pack);
    }

    /// Adds one command that is about no key.
    pub(crate) fn push_any(&mut self, pack: impl FnOnce(&mut Packed)) {
        self.add(0, RouteGuard::new(&self.routes), pack);
    }

    fn add(&mut self, mux: usize, route: RouteGuard, pack: impl FnOnce(&mut Packed)) {
        let part = match self.parts.iter_mut().position(|part| part.mux == mux) {
            Some(at) => {
                self.parts[at].route.join(route);
                at
            }
            None => {
                self.parts.push(Part { mux, packed: Packed::default(), route });
                self.parts.len() - 1
            }
        };
        pack(&mut self.parts[part].packed);
        self.order.push(part);
    }
}
