//! `dlock wait` waits until nobody holds a lock, and takes no lock itself.
//!
//! One thread connects and looks, and another one asks the holder. So a server or a holder that does not answer delays `dlock wait` by no more than
//! `--timeout`.

use crate::args::{LockName, Wait};
use crate::message::say;
use crate::settings::Settings;
use crate::show;
use crate::status::{Failure, NOT_ACQUIRED, UNREACHABLE};
use crate::threads;
use crate::timing;
use redis_dlock::{DLockGenerator, Holder, Party};
use std::fmt::Display;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// News from the threads.
enum News {
    /// Somebody holds the lock.
    Held(Holder),
    /// The holder's description of itself, and the moment at which it was asked.
    Named(Instant, Box<Party>),
    /// The wait is over.
    Over(Result<(), Failure>),
}

pub(crate) fn wait(settings: &Settings, wanted: &Wait) -> Result<u8, Failure> {
    // A wrong URL is an error at once.
    settings.builder()?;
    let end = wanted.timeout.and_then(|time| Instant::now().checked_add(time));
    if wanted.timeout.is_some_and(|time| time.is_zero()) {
        return look_once(settings, &wanted.lock);
    }
    let (tell, told) = channel();
    let looker = Looker { settings: settings.clone(), lock: wanted.lock.clone(), end, tell };
    threads::start("dlock-look", move || looker.look())?;
    outcome(&told, &wanted.lock, end)
}

/// Looks once, without a time limit.
fn look_once(settings: &Settings, lock: &LockName) -> Result<u8, Failure> {
    let generator = settings.connect()?;
    match show::holder(&generator, lock)? {
        None => Ok(0),
        Some(holder) => Err(match show::holder_of(&generator, lock) {
            Some(named) => still_held(lock, &named),
            None => still_held(lock, &holder),
        }),
    }
}

fn still_held(lock: &LockName, holder: &impl Display) -> Failure {
    Failure::new(NOT_ACQUIRED, format!("{} is still held by {holder}", show::key(lock)))
}

/// Waits for news from the threads, until `end`.
fn outcome(told: &Receiver<News>, lock: &LockName, end: Option<Instant>) -> Result<u8, Failure> {
    let mut seen = None::<(Instant, Holder)>;
    let mut named = None::<(Instant, Box<Party>)>;
    loop {
        let left = end.map_or(timing::A_YEAR, |end| end.saturating_duration_since(Instant::now()));
        match told.recv_timeout(left) {
            Ok(News::Over(outcome)) => return outcome.map(|()| 0),
            Ok(News::Held(holder)) => seen = Some((Instant::now(), holder)),
            Ok(News::Named(at, holder)) => named = Some((at, holder)),
            Err(_) => {
                return Err(match seen {
                    Some((at, holder)) if at.elapsed() < timing::LOOK_LATE => {
                        // The holder's answer stays valid, because it still holds the lock.
                        match named.filter(|(_, named)| named.locker == holder.locker) {
                            Some((at, named)) => still_held(lock, &with_its_age(at, named)),
                            None => still_held(lock, &holder),
                        }
                    }
                    _ => Failure::new(UNREACHABLE, "the server did not answer within the time of --timeout"),
                });
            }
        }
    }
}

/// Returns the answer of the holder that was asked at that moment, with the present age of its hold. The time until the answer counts, so the hold is
/// never told as younger than it is.
fn with_its_age(asked_at: Instant, mut holder: Box<Party>) -> Box<Party> {
    if let Some(held) = holder.told.as_mut().and_then(|told| told.held_for.as_mut()) {
        *held += asked_at.elapsed();
    }
    holder
}

/// The thread that looks.
struct Looker {
    settings: Settings,
    lock: LockName,
    end: Option<Instant>,
    tell: Sender<News>,
}

impl Looker {
    fn look(self) {
        let outcome = self.until_free();
        let _ = self.tell.send(News::Over(outcome));
    }

    /// Returns when nobody holds the lock, or when an error comes that no wait will mend.
    fn until_free(&self) -> Result<(), Failure> {
        let generator = self.settings.connect_when_there()?;
        let (mut pause, mut is_told, mut is_asked) = (*timing::FREE_LOOKS.start(), false, false);
        loop {
            match show::holder(&generator, &self.lock) {
                Ok(None) => return Ok(()),
                Ok(Some(holder)) => {
                    let _ = self.tell.send(News::Held(holder));
                    if !is_asked && self.is_near_end() {
                        is_asked = true;
                        self.ask_who(&generator)?;
                    }
                }
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) if !is_told => {
                    say(&format!("{error}: waiting for the server"));
                    is_told = true;
                }
                Err(_) => {}
            }
            thread::sleep(pause.min(self.left() / 2).max(*timing::FREE_LOOKS.start()));
            pause = (pause * 2).min(*timing::FREE_LOOKS.end());
        }
    }

    fn is_near_end(&self) -> bool {
        self.left() < timing::LOOK_LATE
    }

    fn left(&self) -> Duration {
        self.end.map_or(timing::A_YEAR, |end| end.saturating_duration_since(Instant::now()))
    }

    /// Asks the holder who it is, for the message at the end.
    fn ask_who(&self, generator: &DLockGenerator) -> Result<(), Failure> {
        let (generator, lock, tell) = (generator.clone(), self.lock.clone(), self.tell.clone());
        threads::start("dlock-look", move || {
            let asked_at = Instant::now();
            if let Some(holder) = show::holder_of(&generator, &lock) {
                let _ = tell.send(News::Named(asked_at, Box::new(holder)));
            }
        })
    }
}
