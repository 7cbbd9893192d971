//! The scenarios that are explored.

use super::client::{Client, break_some_hold};
use super::explorer::{explore_both, explored};
use super::journal::Journal;
use super::servers::Servers;
use shuttle::thread;

/// What the clients of an execution do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// How many holds each client wants.
    clients: &'static [u32],
    faults: u32,
    /// How many sessions the operator ends.
    ends: u32,
    /// How many holds the operator breaks.
    breaks: u32,
    pub(super) gives_up: bool,
    /// Whether some holds end with a delayed release.
    pub(super) delays: bool,
    /// Whether clients die while they wait, and nobody has any patience with an offer.
    pub(super) dies: bool,
    /// Whether an inbox confirms what it hears while its client asks, as `dlock-listen` and `dlock-retry` do.
    pub(super) confirms_apart: bool,
}

pub(super) const TWO: Scenario = Scenario {
    clients: &[2, 2],
    faults: 0,
    ends: 0,
    breaks: 0,
    gives_up: false,
    delays: false,
    dies: false,
    confirms_apart: false,
};
pub(super) const THREE: Scenario = Scenario { clients: &[2, 1, 1], ..TWO };
pub(super) const TWO_FAULTY: Scenario = Scenario { clients: &[3, 3], faults: 2, ..TWO };
pub(super) const LEAVING: Scenario = Scenario { gives_up: true, ..THREE };
pub(super) const ENDED: Scenario = Scenario { ends: 1, ..THREE };
pub(super) const BROKEN: Scenario = Scenario { breaks: 2, ..THREE };
pub(super) const DELAYED: Scenario = Scenario { delays: true, ..THREE };
pub(super) const DYING: Scenario = Scenario { dies: true, ..THREE };
/// A waiter is offered the key once, confirms that twice, and has its next tenure in the same session.
pub(super) const CONFIRMING: Scenario = Scenario { clients: &[1, 2], confirms_apart: true, ..TWO };

impl Scenario {
    /// The same, where so many requests fail.
    pub(super) const fn faulty(self, faults: u32) -> Self {
        Self { faults, ..self }
    }

    /// Plays one execution.
    /// Shows: L1, L2.
    pub(super) fn play(&self) {
        let is_calm = self.faults + self.ends + self.breaks == 0 && !self.delays && !self.dies;
        let (servers, journal) = (Servers::new(self.faults, is_calm), Journal::default());
        let mut threads = Vec::new();
        for (name, holds) in ["a", "b", "c"].into_iter().zip(self.clients) {
            let client = Client::new(name, &servers, &journal, self);
            threads.push(thread::spawn(move || client.run(*holds)));
        }
        for _ in 0..self.ends {
            let servers = servers.clone();
            threads.push(thread::spawn(move || servers.end_some_session()));
        }
        for _ in 0..self.breaks {
            let (servers, journal, is_answered) = (servers.clone(), journal.clone(), self.faults == 0);
            threads.push(thread::spawn(move || break_some_hold(&servers, &journal, is_answered)));
        }
        for thread in threads {
            let _ = thread.join();
        }
        let left = servers.leftovers();
        if !left.is_empty() {
            journal.object(format!("left in the store: {left:?}"));
        }
        let objections = journal.objections();
        assert!(objections.is_empty(), "{objections:?}");
    }
}

explored! {
    two_clients: TWO;
    three_clients: THREE;
    two_clients_and_lost_answers: TWO_FAULTY;
    three_clients_and_lost_answers: THREE.faulty(2);
    clients_that_give_up: LEAVING;
    clients_that_give_up_and_lost_answers: LEAVING.faulty(2);
    a_session_that_an_operator_ends: ENDED;
    a_session_that_an_operator_ends_and_lost_answers: ENDED.faulty(1);
    holds_that_an_operator_breaks: BROKEN;
    holds_that_an_operator_breaks_and_lost_answers: BROKEN.faulty(2);
    releases_that_are_delayed: DELAYED;
    releases_that_are_delayed_and_lost_answers: DELAYED.faulty(2);
    clients_that_die_while_they_wait: DYING;
    clients_that_die_while_they_wait_and_lost_answers: DYING.faulty(2);
    inboxes_that_confirm_while_their_clients_ask: CONFIRMING;
    inboxes_that_confirm_while_their_clients_ask_and_lost_answers: Scenario { confirms_apart: true, ..THREE }.faulty(2);
}
