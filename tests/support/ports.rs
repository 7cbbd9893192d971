//! Ports for servers. They are below those that the operating system gives to whoever asks for any (from 32,768 on): nobody takes the port of a
//! server that is still to start, or was killed; not even a connect to that very port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// How many ports a range has.
const COUNT: u16 = 10_000;

/// Ports of one range, each of which this process gets once.
pub(crate) struct Ports {
    first: u16,
    tried: AtomicU16,
}

/// For servers with one port.
static SINGLE: Ports = Ports::from(2_000);

impl Ports {
    pub(crate) const fn from(first: u16) -> Self {
        Self { first, tried: AtomicU16::new(0) }
    }

    /// The next port that is free, and for which this is true.
    pub(crate) fn next(&self, suits: impl Fn(u16) -> bool) -> u16 {
        // Processes that run side by side begin at different places.
        let begin = (std::process::id() % u32::from(COUNT)) * 61;
        let port = (0..COUNT).find_map(|_| {
            let tried = u32::from(self.tried.fetch_add(1, Ordering::SeqCst));
            let port = self.first + u16::try_from((begin + tried) % u32::from(COUNT)).unwrap();
            (is_free(port) && suits(port)).then_some(port)
        });
        port.expect("a free port")
    }
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A port that is free, and that this process has not given out before.
pub(crate) fn free_port() -> u16 {
    SINGLE.next(|_| true)
}
