//! What is wrong with the network of a proxy: switched while it runs.

use super::resp::{self, Sent};
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer = 0,
    ToClient = 1,
}

/// What becomes of one command, or of its reply. What follows on the same connection shares its lot, as on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lot {
    /// It is executed, and its reply is lost.
    LoseReply,
    /// It never reaches the server.
    LoseRequest,
    /// It reaches the server so much later; also when the client has gone meanwhile.
    DelayRequest(Duration),
    /// It reaches the server when it is let through; also when the client has gone meanwhile.
    StopRequest,
    /// It is executed, and so many bytes of its reply come; then the connection ends.
    CutReply(usize),
    /// It is executed, and instead of its reply comes a reset (RST).
    Reset,
}

/// A lot for the n-th command of a kind from now on.
pub(super) struct Trap {
    what: Sent,
    /// How many go by before it.
    before: usize,
    lot: Lot,
    fired: Arc<AtomicBool>,
}

/// Tells whether a trap was met.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Fired(Arc<AtomicBool>);

impl Fired {
    pub(crate) fn is_fired(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// One connection.
pub(super) struct Link {
    pub(super) client: Arc<TcpStream>,
    pub(super) server: Arc<TcpStream>,
    /// By way: nothing goes this way any more, and its end does not either.
    dead: [bool; 2],
    /// Nothing goes to the client for now.
    is_held: bool,
    /// Commands that come for the server wait.
    is_stopped: bool,
    /// By way: later by so much.
    late: [Duration; 2],
    /// The lots of the replies that are due.
    due: VecDeque<Option<Lot>>,
    /// Whether the server has answered on it.
    is_answered: bool,
    is_inbox: bool,
    /// The client is a replica.
    is_replica: bool,
    /// It ends by RST, so nothing may send FIN.
    reset: bool,
}

impl Link {
    pub(super) fn new(client: Arc<TcpStream>, server: Arc<TcpStream>) -> Self {
        Self {
            client,
            server,
            dead: [false; 2],
            is_held: false,
            is_stopped: false,
            late: [Duration::ZERO; 2],
            due: VecDeque::new(),
            is_answered: false,
            is_inbox: false,
            is_replica: false,
            reset: false,
        }
    }

    /// Ends it with RST on the client's side.
    fn reset(&mut self) {
        self.reset = true;
        let _ = socket2::SockRef::from(&*self.client).set_linger(Some(Duration::ZERO));
        // Wakes our readers without sending anything; the last handle that goes sends RST.
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// What happens to a frame.
pub(super) enum Fate {
    /// It goes on, later by so much.
    Goes(Duration),
    /// So many bytes of it go on, and then the connection ends.
    IsCut(usize),
    IsLost,
}

/// The state of a proxy.
#[derive(Default)]
pub(super) struct Toxics {
    /// By number, the first is number 1; `None` when it is over.
    links: Vec<Option<Link>>,
    delay: [Duration; 2],
    /// The first answer of each connection comes later by so much.
    first_answer: Duration,
    /// What the server sends on new connections is kept.
    hold_new: bool,
    /// By way: bytes of all connections are lost for now.
    lossy: [bool; 2],
    lose_messages: bool,
    /// For connections that have not subscribed, and for those that have: nothing goes to the client for now.
    held: [bool; 2],
    pub(super) slice: bool,
    traps: Vec<Trap>,
}

impl Toxics {
    pub(super) fn add(&mut self, mut link: Link) -> usize {
        link.is_held = self.hold_new;
        self.links.push(Some(link));
        self.links.len()
    }

    pub(super) fn connections(&self) -> usize {
        self.links.len()
    }

    /// Whether its client is a replica, which gets what is no frame.
    pub(super) fn is_replica(&mut self, number: usize) -> bool {
        self.link(number).is_some_and(|link| link.is_replica)
    }

    fn link(&mut self, number: usize) -> Option<&mut Link> {
        self.links.get_mut(number - 1).and_then(Option::as_mut)
    }

    fn live(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut().flatten()
    }

    pub(super) fn set_delay(&mut self, way: Way, delay: Duration) {
        self.delay[way as usize] = delay;
    }

    pub(super) fn delay_first_answers(&mut self, delay: Duration) {
        self.first_answer = delay;
    }

    /// Returns what was set before.
    pub(super) fn set_lossy(&mut self, way: Way, on: bool) -> bool {
        std::mem::replace(&mut self.lossy[way as usize], on)
    }

    pub(super) fn set_lose_messages(&mut self, on: bool) {
        self.lose_messages = on;
    }

    pub(super) fn silence(&mut self, also: impl Fn(bool) -> bool) {
        self.live().filter(|link| also(link.is_inbox)).for_each(|link| link.dead = [true; 2]);
    }

    pub(super) fn hold(&mut self, inboxes: bool, on: bool) {
        self.held[usize::from(inboxes)] = on;
    }

    /// Holds what the server sends on connections to come; those that there are go on when it is switched off.
    pub(super) fn hold_new(&mut self, on: bool) {
        self.hold_new = on;
        if !on {
            self.live().for_each(|link| link.is_held = false);
        }
    }

    /// Lets go the commands that were stopped, and what came after them.
    pub(super) fn let_go(&mut self) {
        self.live().for_each(|link| link.is_stopped = false);
    }

    pub(super) fn reset(&mut self) {
        self.live().for_each(Link::reset);
    }

    pub(super) fn close(&mut self) {
        self.held = [false; 2];
        self.hold_new(false);
        self.let_go();
        self.live().for_each(|link| link.close());
    }

    pub(super) fn set_trap(&mut self, what: Sent, before: usize, lot: Lot) -> Fired {
        let fired = Arc::new(AtomicBool::new(false));
        self.traps.push(Trap { what, before, lot, fired: Arc::clone(&fired) });
        Fired(fired)
    }

    /// Decides on a frame as it comes in.
    pub(super) fn judge(&mut self, number: usize, way: Way, frame: &[u8]) -> Fate {
        match way {
            Way::ToServer => self.judge_command(number, frame),
            Way::ToClient => self.judge_reply(number, frame),
        }
    }

    fn judge_command(&mut self, number: usize, frame: &[u8]) -> Fate {
        let what = Sent::of(frame);
        let lot = self.spring(what);
        let general = self.delay[Way::ToServer as usize];
        let Some(link) = self.link(number) else { return Fate::IsLost };
        link.is_inbox |= what == Sent::Subscribe;
        link.is_replica |= what == Sent::Replicate;
        match lot {
            Some(Lot::LoseRequest) => link.dead[Way::ToServer as usize] = true,
            Some(Lot::DelayRequest(late)) => link.late[Way::ToServer as usize] = late,
            Some(Lot::StopRequest) => link.is_stopped = true,
            _ => {}
        }
        link.due.push_back(lot);
        Fate::Goes(general + link.late[Way::ToServer as usize])
    }

    fn judge_reply(&mut self, number: usize, frame: &[u8]) -> Fate {
        let (mut general, lose_messages) = (self.delay[Way::ToClient as usize], self.lose_messages);
        let first_answer = self.first_answer;
        let Some(link) = self.link(number) else { return Fate::IsLost };
        if !std::mem::replace(&mut link.is_answered, true) {
            general += first_answer;
        }
        if resp::is_message(frame) {
            return if lose_messages { Fate::IsLost } else { Fate::Goes(general) };
        }
        match link.due.pop_front().flatten() {
            Some(Lot::LoseReply) => {
                link.dead[Way::ToClient as usize] = true;
                Fate::IsLost
            }
            Some(Lot::CutReply(bytes)) => Fate::IsCut(bytes.min(frame.len())),
            Some(Lot::Reset) => {
                link.reset();
                Fate::IsLost
            }
            _ => Fate::Goes(general + link.late[Way::ToClient as usize]),
        }
    }

    /// The lot of a command: of the first trap that it meets.
    fn spring(&mut self, what: Sent) -> Option<Lot> {
        let met = self.traps.iter_mut().position(|trap| {
            let is_met = trap.what == what && trap.before == 0;
            trap.before -= usize::from(trap.what == what && !is_met);
            is_met
        })?;
        let trap = self.traps.remove(met);
        trap.fired.store(true, Ordering::SeqCst);
        Some(trap.lot)
    }

    /// Whether a frame that is to be written must wait.
    pub(super) fn is_held(&mut self, number: usize, way: Way) -> bool {
        let held = self.held;
        way == Way::ToClient && self.link(number).is_some_and(|link| link.is_held || held[usize::from(link.is_inbox)])
    }

    /// Whether a frame that comes now waits until commands are let go.
    pub(super) fn is_stopped(&mut self, number: usize, way: Way) -> bool {
        way == Way::ToServer && self.link(number).is_some_and(|link| link.is_stopped)
    }

    /// Whether a frame that is to be written is lost.
    pub(super) fn is_lost(&mut self, number: usize, way: Way) -> bool {
        self.lossy[way as usize] || self.link(number).is_none_or(|link| link.dead[way as usize])
    }

    /// The end of one direction of a connection: tells the other side, unless nothing gets there.
    pub(super) fn end(&mut self, number: usize, way: Way) {
        if let Some(link) = self.link(number)
            && !link.reset
            && !link.dead[way as usize]
        {
            link.close();
        }
    }

    /// The end of a connection that a cut reply has.
    pub(super) fn cut(&mut self, number: usize) {
        if let Some(link) = self.link(number) {
            link.close();
        }
    }

    /// Both directions have ended: its sockets go, unless one side is to believe in it.
    pub(super) fn forget(&mut self, number: usize) {
        if let Some(link) = self.link(number)
            && (link.reset || link.dead == [false; 2])
        {
            self.links[number - 1] = None;
        }
    }
}
