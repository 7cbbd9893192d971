//! What is known of the server of a transport, and connections that nobody needs any more.

use super::Transport;
use super::connector::Connector;
use crate::sync::atomic::Ordering;
use std::time::Duration;

impl<C: Connector> Transport<C> {
    /// Ends the connections that nobody has used for so long.
    pub(crate) fn end_idle(&self, idle: Duration) {
        self.muxes.iter().for_each(|mux| mux.end_idle(idle));
    }

    /// Returns `true` if there is no connection, and the last attempt to open one failed less than `pause` ago.
    pub(crate) fn is_cooling_down(&self, pause: Duration) -> bool {
        !self.muxes.iter().any(|mux| mux.is_connected()) && self.muxes.iter().any(|mux| mux.failed_within(pause))
    }

    /// Returns `true` if the first of the callers' connections is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.muxes[0].is_connected()
    }

    /// Returns `true` if the server has ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.settings.connect_took.load(Ordering::Relaxed) != 0 // ORDERING: Relaxed: see `MuxSettings::connect_took`.
    }

    /// Returns how long the last connect took; zero before the first one.
    pub(crate) fn connect_took(&self) -> Duration {
        Duration::from_nanos(self.settings.connect_took.load(Ordering::Relaxed)) // ORDERING: Relaxed: an estimate.
    }
}
