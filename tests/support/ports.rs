//! Ports for servers. They are below those that the operating system gives to whoever asks for any (from 32,768 on), and each
//! process of tests has blocks of its own. So nobody takes the port of a server that is still to start, or was killed: no connect to that very port,
//! and no process that runs beside this one.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::Mutex;

/// How many ports a range has.
const COUNT: u16 = 10_000;

/// How many ports of a range a process takes at once. The first of them is no server's: who has it has the others.
const BLOCK: u16 = 50;

/// Ports of one range, each of which this process gets once, as long as there are others.
pub(crate) struct Ports {
    first: u16,
    taken: Mutex<Taken>,
}

/// What this process has taken of a range.
struct Taken {
    /// The first ports of its blocks, for UDP. They end with the process, also if it is killed.
    _blocks: Vec<UdpSocket>,
    /// The ports of the last block that were not tried yet.
    left: Range<u16>,
}

/// For servers with one port.
static SINGLE: Ports = Ports::from(2_000);

impl Ports {
    pub(crate) const fn from(first: u16) -> Self {
        Self { first, taken: Mutex::new(Taken { _blocks: Vec::new(), left: 0..0 }) }
    }

    /// The next port that is free, and for which this is true.
    pub(crate) fn next(&self, suits: impl Fn(u16) -> bool) -> u16 {
        let mut taken = self.taken.lock().unwrap();
        loop {
            if let Some(port) = taken.left.find(|port| is_free(*port) && suits(*port)) {
                return port;
            }
            self.take_block(&mut taken);
        }
    }

    fn take_block(&self, taken: &mut Taken) {
        // Processes that run side by side begin at different places.
        let blocks = u32::from(COUNT / BLOCK);
        let begin = std::process::id() * 7;
        let block = (0..blocks).find_map(|n| {
            let first = self.first + u16::try_from((begin + n) % blocks).unwrap() * BLOCK;
            Some((first, UdpSocket::bind(("127.0.0.1", first)).ok()?))
        });
        let (first, guard) = block.expect("a block of ports that no other process has");
        taken._blocks.push(guard);
        taken.left = first + 1..first + BLOCK;
    }
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A port that is free, and that this process has not given out before.
pub(crate) fn free_port() -> u16 {
    SINGLE.next(|_| true)
}
