//! The client's ends of a simulated connection.

use super::network::{COMMAND, CONFIRM, Net, Network, REPLY, UNKNOWN, reply_to};
use crate::check::model::mistakes::{self, Mutant};
use crate::check::model::time;
use crate::error::Error;
use crate::store::redis::net::connector::{Connector, OpenConnection, ReadHalf, Shutdown, WriteHalf};
use ::redis::Value;
use shuttle::rand::{Rng, thread_rng};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

pub(super) struct Out {
    network: Network,
    wire: usize,
    unsent: VecDeque<u8>,
    /// How many confirmations the bytes ask for that were given last.
    asks: usize,
}

pub(super) struct In {
    network: Network,
    wire: usize,
    read: VecDeque<u8>,
}

pub(super) struct Cut {
    network: Network,
    wire: usize,
}

impl Connector for Network {
    type Out = Out;
    type In = In;
    type Cut = Cut;

    fn may_spawn(&self) -> bool {
        // Without the thread a caller connects within its own time.
        !mistakes::is(Mutant::ThrowsConnectsAway) && !self.net.0.lock().strikes(|faults| &mut faults.threads)
    }

    fn open(&self, deadline: Instant) -> Result<OpenConnection<Self>, Error> {
        let wire = self.connect(deadline)?;
        let network = || self.clone();
        Ok(OpenConnection {
            outbound: Out { network: network(), wire, unsent: VecDeque::new(), asks: 0 },
            inbound: In { network: network(), wire, read: VecDeque::new() },
            cut: Cut { network: network(), wire },
        })
    }
}

impl WriteHalf for Out {
    fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<bool> {
        self.network.may_panic();
        self.unsent.extend(bytes);
        // Whatever is behind a confirmation stands still as if it were one.
        self.asks = bytes.chunks(COMMAND).skip_while(|command| command[0] != CONFIRM[0]).count();
        self.flush(deadline)
    }

    fn flush(&mut self, deadline: Instant) -> io::Result<bool> {
        let mut net = self.network.net.0.lock();
        net.is_asked(self.wire, std::mem::take(&mut self.asks));
        loop {
            if net.strikes(|faults| &mut faults.breaks) {
                net.break_wire(self.wire);
            }
            let wire = &mut net.wires[self.wire];
            if wire.is_broken || wire.is_cut {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let room = self.network.room.saturating_sub(wire.out.len()).min(self.unsent.len());
            wire.out.extend(self.unsent.drain(..room));
            log::trace!("{:?}: {}: {room} bytes out, {} left", time::now(), self.wire, self.unsent.len());
            if room > 0 {
                self.network.net.1.notify_all();
            }
            if self.unsent.is_empty() {
                return Ok(true);
            }
            if !self.network.pause(&mut net, deadline) {
                return Ok(false);
            }
        }
    }
}

impl In {
    fn take(&mut self, net: &mut Net) -> io::Result<bool> {
        if net.strikes(|faults| &mut faults.breaks) {
            net.break_wire(self.wire);
        }
        let wire = &mut net.wires[self.wire];
        if wire.is_cut || (wire.is_broken && wire.back.is_empty()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if wire.back.is_empty() {
            return Ok(false);
        }
        let n = thread_rng().gen_range(1..=wire.back.len());
        log::trace!("{:?}: {}: {n} bytes in", time::now(), self.wire);
        self.read.extend(wire.back.drain(..n));
        Ok(true)
    }
}

impl ReadHalf for In {
    fn fill(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        let network = self.network.clone();
        let Some(deadline) = deadline else { return self.take(&mut network.net.0.lock()) };
        network.may_panic();
        let mut net = network.net.0.lock();
        loop {
            if self.take(&mut net)? {
                return Ok(true);
            }
            if !network.pause(&mut net, deadline) {
                return Ok(false);
            }
        }
    }

    fn take_reply(&mut self) -> io::Result<Option<Value>> {
        if self.read.len() < REPLY {
            return Ok(None);
        }
        let bytes: Vec<u8> = self.read.drain(..REPLY).collect();
        if bytes[0] == UNKNOWN {
            return Ok(::redis::parse_redis_value(b"-NOSCRIPT No matching script.\r\n").ok());
        }
        assert_eq!(bytes[0], b'+', "the client reads garbage");
        if bytes[1..] == CONFIRM[1..REPLY] {
            self.network.net.0.lock().wires[self.wire].unconfirmed -= 1;
        }
        Ok(Some(Value::Int(reply_to(u16::from_be_bytes([bytes[1], bytes[2]]), bytes[3]))))
    }
}

impl Shutdown for Cut {
    fn cut(&self) {
        let mut net = self.network.net.0.lock();
        let wire = &mut net.wires[self.wire];
        log::trace!("{:?}: {}: cut", time::now(), self.wire);
        wire.is_cut = true;
        // Discards some of what the server has not executed yet.
        let got = thread_rng().gen_range(0..=wire.out.len());
        wire.out.truncate(got);
        self.network.net.1.notify_all();
    }
}
