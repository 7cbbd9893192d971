//! A simulated network and server: bytes in, bytes out.

use crate::check::model::shims::Injected;
use crate::check::model::time;
use crate::error::{BackendFailure, Error};
use crate::sync::{Condvar, Mutex, now, thread};
use shuttle::rand::{Rng, thread_rng};
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The length of a command in bytes: `#`, the call, its place in the call, the key, the stamp.
pub(super) const COMMAND: usize = 10;

/// Where the stamp is in a command.
pub(super) const STAMP_AT: usize = 5;

/// The length of a reply: `+`, the call, the command's place in it.
pub(super) const REPLY: usize = 4;

pub(super) const NO_FAULTS: Faults =
    Faults { breaks: 0, refusals: 0, stalls: 0, panics: 0, unknown: 0, threads: 0, one_in: 6 };

/// How many faults of each kind one execution may have, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Faults {
    /// A connection breaks.
    pub(super) breaks: u32,
    /// A connect is refused, or hangs until its time is over.
    pub(super) refusals: u32,
    /// The server stalls for a while.
    pub(super) stalls: u32,
    /// A step of a connection panics.
    pub(super) panics: u32,
    /// The server does not know the short form of a command.
    pub(super) unknown: u32,
    /// The operating system refuses a thread.
    pub(super) threads: u32,
    /// One in so many steps at which there can be a fault has one.
    pub(super) one_in: u32,
}

/// A command that was executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) call: u16,
    pub(super) place: u8,
    pub(super) connection: usize,
}

/// The first byte of a reply that refuses a short form.
pub(super) const UNKNOWN: u8 = b'-';

/// The command that confirms those before it, and the reply to it.
pub(super) const CONFIRM: [u8; COMMAND] = [b'?', 0xff, 0xff, 0, 0, b'0', b'0', b'0', b'0', b'0'];
pub(super) const CONFIRMATION: i64 = 0xff_ff00;

/// The packed form of a command.
pub(super) fn command(call: u16, place: u8, key: u8) -> [u8; COMMAND] {
    let [high, low] = call.to_be_bytes();
    [b'#', high, low, place, key, b'0', b'0', b'0', b'0', b'0']
}

/// The reply to a command.
pub(super) fn reply_to(call: u16, place: u8) -> i64 {
    i64::from(call) * 256 + i64::from(place)
}

#[derive(Clone)]
pub(super) struct Network {
    pub(super) net: Arc<(Mutex<Net>, Condvar)>,
    /// The number of bytes that a connection takes before the server has read some.
    pub(super) room: usize,
    /// The longest stall of the server.
    stall: Duration,
    /// How long a connect takes.
    connect: Duration,
}

pub(super) struct Net {
    pub(super) wires: Vec<Wire>,
    /// The number of connects that were begun, and of those under way.
    connects: usize,
    connecting: usize,
    log: Vec<Arrival>,
    /// The commands whose short form was unknown: their calls, and their places in these.
    unknown: Vec<(u16, u8)>,
    faults: Faults,
    /// What the client must not do.
    objections: Vec<String>,
    is_over: bool,
}

#[derive(Default)]
pub(super) struct Wire {
    /// Bytes written and not executed yet.
    pub(super) out: VecDeque<u8>,
    /// Bytes answered and not read yet.
    pub(super) back: VecDeque<u8>,
    /// The client will see the end of the stream.
    pub(super) is_broken: bool,
    pub(super) is_cut: bool,
    /// The server executes no more of what it was sent.
    is_dead: bool,
    /// How many confirmations were asked for and not read yet.
    pub(super) unconfirmed: usize,
}

impl Net {
    pub(super) fn strikes(&mut self, which: impl FnOnce(&mut Faults) -> &mut u32) -> bool {
        let one_in = self.faults.one_in;
        let left = which(&mut self.faults);
        let strikes = *left > 0 && thread_rng().gen_ratio(1, one_in);
        *left -= u32::from(strikes);
        strikes
    }

    pub(super) fn break_wire(&mut self, n: usize) {
        log::trace!("{:?}: {n}: broken", time::now());
        self.wires[n].is_broken = true;
        self.wires[n].is_dead = thread_rng().gen_bool(0.5);
    }

    /// Notes that so many confirmations are asked for.
    pub(super) fn is_asked(&mut self, n: usize, confirmations: usize) {
        self.wires[n].unconfirmed += confirmations;
        if self.wires[n].unconfirmed > 1 {
            self.objections.push("more than one confirmation is under way, or commands are behind one".to_owned());
        }
    }
}

impl Network {
    pub(super) fn new(faults: Faults, room: usize, stall: Duration, connect: Duration) -> Self {
        let net = Net {
            wires: Vec::new(),
            connects: 0,
            connecting: 0,
            log: Vec::new(),
            unknown: Vec::new(),
            faults,
            objections: Vec::new(),
            is_over: false,
        };
        Self { net: Arc::new((Mutex::new(net), Condvar::new())), room, stall, connect }
    }

    /// Returns the number of connects that were begun.
    pub(super) fn connects(&self) -> usize {
        self.net.0.lock().connects
    }

    /// Waits until no connect is under way.
    pub(super) fn settle(&self) {
        let mut net = self.net.0.lock();
        while net.connecting > 0 {
            self.net.1.wait(&mut net);
        }
    }

    /// Runs the server until the end.
    pub(super) fn serve(&self) {
        let (net, changed) = &*self.net;
        let mut net = net.lock();
        loop {
            let ready: Vec<_> =
                (0..net.wires.len()).filter(|n| !net.wires[*n].is_dead && net.wires[*n].out.len() >= COMMAND).collect();
            if ready.is_empty() {
                if net.is_over {
                    return;
                }
                changed.wait(&mut net);
                continue;
            }
            let n = ready[thread_rng().gen_range(0..ready.len())];
            log::trace!("{:?}: {n}: a command", time::now());
            let bytes: Vec<u8> = net.wires[n].out.drain(..COMMAND).collect();
            assert!([b'#', CONFIRM[0]].contains(&bytes[0]), "the server is sent garbage");
            let call = u16::from_be_bytes([bytes[1], bytes[2]]);
            let is_command = bytes[0] != CONFIRM[0];
            let is_unknown =
                is_command && !net.unknown.contains(&(call, bytes[3])) && net.strikes(|faults| &mut faults.unknown);
            if is_unknown {
                net.unknown.push((call, bytes[3]));
            } else if is_command {
                net.log.push(Arrival { call, place: bytes[3], connection: n });
            }
            if net.strikes(|faults| &mut faults.breaks) {
                net.break_wire(n);
            }
            if !net.wires[n].is_broken {
                let kind = if is_unknown { UNKNOWN } else { b'+' };
                net.wires[n].back.extend([kind, bytes[1], bytes[2], bytes[3]]);
            }
            let stalls = net.strikes(|faults| &mut faults.stalls);
            changed.notify_all();
            drop(net);
            if stalls {
                // Shorter or longer than callers wait for it.
                let parts = [1, 10][thread_rng().gen_range(0..2)];
                thread::sleep(self.stall / parts);
            }
            net = self.net.0.lock();
        }
    }

    /// Ends the server once it has executed everything that it was sent.
    pub(super) fn end(&self) {
        self.net.0.lock().is_over = true;
        self.net.1.notify_all();
    }

    pub(super) fn log(&self) -> Vec<Arrival> {
        self.net.0.lock().log.clone()
    }

    /// Returns what the client must not have done.
    pub(super) fn objections(&self) -> Vec<String> {
        std::mem::take(&mut self.net.0.lock().objections)
    }

    /// Returns `true` if a short form of the call was unknown.
    pub(super) fn was_unknown(&self, call: u16) -> bool {
        self.net.0.lock().unknown.iter().any(|(unknown, _)| *unknown == call)
    }

    /// Returns `true` if the first command of a call was handed to a connection.
    pub(super) fn was_given(&self, call: u16) -> bool {
        let net = self.net.0.lock();
        let [high, low] = call.to_be_bytes();
        let is_out = |wire: &Wire| {
            let bytes: Vec<u8> = wire.out.iter().copied().collect();
            bytes.chunks(COMMAND).any(|command| command.len() == COMMAND && command[1..4] == [high, low, 0])
        };
        net.unknown.iter().any(|(unknown, _)| *unknown == call)
            || net.log.iter().any(|a| a.call == call)
            || net.wires.iter().any(is_out)
    }

    /// Panics sometimes, if the scenario has such faults.
    pub(super) fn may_panic(&self) {
        let strikes = self.net.0.lock().strikes(|faults| &mut faults.panics);
        if strikes {
            // Bypasses the panic hook, which would print the schedule.
            resume_unwind(Box::new(Injected));
        }
    }

    /// Returns which connections have ended.
    pub(super) fn broken(&self) -> Vec<bool> {
        self.net.0.lock().wires.iter().map(|wire| wire.is_broken || wire.is_cut).collect()
    }

    pub(super) fn pause(&self, net: &mut crate::sync::MutexGuard<'_, Net>, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(now());
        log::trace!("{:?}: waits for {left:?}", time::now());
        if left.is_zero() {
            return false;
        }
        self.net.1.wait_for(net, left);
        true
    }
}

impl Network {
    /// Opens a connection. Returns the number of its wire.
    pub(super) fn connect(&self, deadline: Instant) -> Result<usize, Error> {
        let mut net = self.net.0.lock();
        net.connects += 1;
        net.connecting += 1;
        let opened = self.open_wire(&mut net, deadline);
        net.connecting -= 1;
        self.net.1.notify_all();
        opened
    }

    fn open_wire(&self, net: &mut crate::sync::MutexGuard<'_, Net>, deadline: Instant) -> Result<usize, Error> {
        let until = now() + self.connect;
        // The connection is open once `until` has come, however late this thread goes on.
        while now() < until {
            if !self.pause(net, until.min(deadline)) {
                return Err(Error::backend(BackendFailure::NotExecuted, "it takes too long"));
            }
        }
        if net.strikes(|faults| &mut faults.refusals) {
            while thread_rng().gen_bool(0.5) && self.pause(net, deadline) {}
            log::trace!("{:?}: refused", time::now());
            return Err(Error::backend(BackendFailure::NotExecuted, "refused"));
        }
        net.wires.push(Wire::default());
        Ok(net.wires.len() - 1)
    }
}
