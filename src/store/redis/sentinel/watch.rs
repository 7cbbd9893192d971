//! The thread `dlock-watch`: it asks every Sentinel each second where the master is, and notices a new one before a command fails.
//!
//! Polling all of them is quicker than the event `+switch-master` of one, which comes up to 4 s later after a planned failover. A master that
//! was stopped and goes on, or that a planned failover left, says `OK` for ten seconds more; only the Sentinels know better.
//!
//! 1. While no connect fails, a round begins each second; while connects fail, each tenth of one.
//! 2. A Sentinel that does not answer is asked less and less often, so that it does not slow down the round.
//! 3. When the address to follow is not that of the last connection, or connects fail, the thread connects there. If that server says that it is a
//!    master, all connections to the earlier one are cut (`net/identity`), and the next calls connect to the new one.
//! 4. At the first round, and once a minute, it asks for the other Sentinels of the service.

use super::Sentinels;
use super::timing::{ASK_FOR_MORE, ROUND, ROUND_IN_TROUBLE};
use crate::log;
use crate::sync::unseen::{Condvar, Mutex};
use crate::sync::{catch_panic, on_own_thread};
use std::sync::Weak;
use std::thread;
use std::time::Instant;

/// What the thread shares with the others.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchState {
    handle: Option<thread::JoinHandle<()>>,
    /// Whether the thread was started, or refused: it is tried once.
    is_started: bool,
    is_stopped: bool,
    is_in_trouble: bool,
}

impl Watch {
    /// Notes whether the last connect reached a master. The first that does starts the thread.
    pub(super) fn note(&self, is_master: bool, sentinels: &Weak<Sentinels>) {
        let mut state = self.state.lock();
        if state.is_in_trouble == is_master {
            state.is_in_trouble = !is_master;
            self.changed.notify_all();
        }
        if !is_master || state.is_stopped || std::mem::replace(&mut state.is_started, true) {
            return;
        }
        let sentinels = Weak::clone(sentinels);
        match thread::Builder::new().name("dlock-watch".to_owned()).spawn(move || on_own_thread(|| watch(&sentinels))) {
            Ok(handle) => state.handle = Some(handle),
            // Each connect asks the Sentinels anyway.
            Err(cause) => {
                drop(state);
                log::warn!(TRANSPORT, "the operating system refused the thread dlock-watch: {cause}");
            }
        }
    }

    /// Ends the thread and waits for it. On that thread itself, only tells it to end.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        self.changed.notify_all();
        let handle = state.handle.take_if(|handle| handle.thread().id() != thread::current().id());
        drop(state);
        if handle.is_some_and(|handle| handle.join().is_err()) {
            log::error!(TRANSPORT, "the thread dlock-watch ended by a panic; please report it");
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Returns whether the last connect reached no master.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.state.lock().is_in_trouble
    }

    /// Waits for the next round, which begins a while after the last one began. Returns `false` when the thread is to end.
    fn pause(&self, begun: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.is_stopped {
            let pause = if state.is_in_trouble { ROUND_IN_TROUBLE } else { ROUND };
            let left = pause.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return true;
            }
            self.changed.wait_for(&mut state, left);
        }
        false
    }
}

fn watch(sentinels: &Weak<Sentinels>) {
    let mut asked_for_more = None;
    loop {
        let begun = Instant::now();
        let Some(strong) = sentinels.upgrade() else { return };
        let round = catch_panic(|| {
            if asked_for_more.is_none_or(|at: Instant| at.elapsed() >= ASK_FOR_MORE) && strong.ask_for_more() {
                asked_for_more = Some(begun);
            }
            strong.round();
        });
        if round.is_none() {
            log::error!(TRANSPORT, "the thread dlock-watch has caught a panic; please report it");
        }
        if !strong.watch.pause(begun) {
            return;
        }
    }
}
