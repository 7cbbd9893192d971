//! Reports the steps of `dlock run --verbose`.

use super::kept;
use crate::args::{LockName, Run};
use crate::message::{HolderFields, inform};
use crate::output::time;
use crate::show;
use crate::timing;
use redis_dlock::{DLockGenerator, DLockGuard};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Reports the steps, if `--verbose` is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrator<'a> {
    wanted: &'a Run,
    began: Instant,
}

impl<'a> Narrator<'a> {
    pub(super) fn new(wanted: &'a Run, began: Instant) -> Self {
        Self { wanted, began }
    }

    /// Says who holds the lock that `dlock` waits for: after a while, and then repeatedly until the returned value is dropped.
    pub(super) fn waits(self, generator: &DLockGenerator) -> Option<Sender<()>> {
        if !self.wanted.verbose {
            return None;
        }
        let (generator, lock, began) = (generator.clone(), self.wanted.lock.clone(), self.began);
        let (stop, is_over) = channel::<()>();
        let tell = move || {
            let mut pause = timing::WAIT_TOLD;
            while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let (why, holder) = why(&generator, &lock);
                let said = format!("waiting for {} for {}: {why}", show::key(&lock), time(began.elapsed()));
                inform(&said, holder.as_ref());
                pause = timing::WAIT_TOLD_AGAIN;
            }
        };
        // Without the thread, the wait is silent.
        thread::Builder::new().name("dlock-told".to_owned()).spawn(tell).ok().map(|_| stop)
    }

    pub(super) fn acquired(self, held: &DLockGuard<'_>) {
        let (key, waited) = (show::key(&self.wanted.lock), time(self.began.elapsed()));
        self.say(|| format!("{key} is acquired after {waited}, with token {}", held.fencing_token()));
    }

    /// Says that the command has ended, with the resulting status of `dlock`.
    pub(super) fn ended(self, status: u8, held: &DLockGuard<'_>) {
        self.say(|| format!("the command has ended after {}: status {status}", time(held.held_for())));
    }

    pub(super) fn released(self, kept: Option<Duration>) {
        let key = show::key(&self.wanted.lock);
        self.say(|| match kept {
            Some(kept) => {
                format!(
                    "{key} is released, and kept from everybody until {} after it was acquired at least",
                    time(kept)
                )
            }
            None => format!("{key} is released"),
        });
    }

    fn say(self, words: impl FnOnce() -> String) {
        if self.wanted.verbose {
            inform(&words(), None);
        }
    }
}

/// Returns the reason why the lock is not acquired yet, and its holder.
fn why(generator: &DLockGenerator, lock: &LockName) -> (String, Option<HolderFields>) {
    let seen = match generator.describe(&*lock.lock_type, &lock.target) {
        Ok(seen) => seen,
        Err(error) => return (error.to_string(), None),
    };
    match (&seen.delayed_release, &seen.holder) {
        (Some(ended), _) => (kept::in_words(ended, seen.remaining), Some(ended.into())),
        (None, Some(holder)) => (format!("held by {holder}"), Some(holder.into())),
        (None, None) => ("not acquired yet, and nobody holds it".to_owned(), None),
    }
}
