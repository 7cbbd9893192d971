//! Ports for nodes. A node has two: the one for clients, and the one of the bus, which is 10,000 higher unless it is told otherwise.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The bus port is so much higher.
pub(super) const BUS: u16 = 10_000;

/// The first port, and how many there are. They and their bus ports are below those that the operating system gives to whoever asks for
/// any (from 32,768 on): nobody takes the port of a killed node, not even a connect of another node to that very port.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// How many this process has looked at.
static TRIED: AtomicU16 = AtomicU16::new(0);

/// A port that is free together with its bus port, and that this process has not given out before.
pub(super) fn free_pair() -> u16 {
    // Processes that run side by side begin at different places.
    let begin = (std::process::id() % u32::from(COUNT)) * 61;
    let pair = (0..COUNT).find_map(|_| {
        let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from((begin + tried) % u32::from(COUNT)).unwrap();
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (is_free(port) && is_free(port + BUS)).then_some(port)
    });
    pair.expect("a free port below 22,000")
}
