//! Ports for nodes. A node has two: the one for clients, and the one of the bus, which is 10,000 higher unless it is told otherwise.

use super::super::ports::{Ports, is_free};

/// The bus port is so much higher.
pub(super) const BUS: u16 = 10_000;

/// Beside the ports of other servers, as are the bus ports.
static PAIRS: Ports = Ports::from(12_000);

/// A port that is free together with its bus port, and that this process has not given out before.
pub(super) fn free_pair() -> u16 {
    PAIRS.next(|port| is_free(port + BUS))
}
