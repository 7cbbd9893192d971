//! `--at-least` and `--once-every`: the lock is kept from everybody for a while after the command.

use crate::args::Run;
use crate::output::time;
use crate::timing;
use redis_dlock::port::StoreLimits;
use redis_dlock::{CancelToken, DLockConfig, DLockGuard, DelayedRelease, DistributedReentrantLock, Error};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

/// The beginning of the holder's name if the lock is kept whatever the status of the command.
const AT_LEAST: &str = "--at-least ";

/// Notes in the holder's name that the lock will be kept whatever the status of the command.
pub(crate) fn noted(wanted: &Run, config: DLockConfig) -> DLockConfig {
    match wanted.at_least {
        Some(least) => config.with_holder_name(format!("{AT_LEAST}{}", time(least))),
        None => config,
    }
}

/// Returns whether the command of a hold that has ended is known to have succeeded.
fn is_done(ended: &DelayedRelease) -> bool {
    !ended.holder_name.as_deref().is_some_and(|name| name.starts_with(AT_LEAST))
}

/// Fails if the store cannot keep a lock for so long, or for no longer, before the lock is taken.
pub(crate) fn check(wanted: &Run, limits: &StoreLimits) -> Result<(), Error> {
    let of = |name, time: Option<Duration>| time.map(|time| (name, time));
    let Some((name, time)) = of("--at-least", wanted.at_least).or(of("--once-every", wanted.once_every)) else {
        return Ok(());
    };
    limits.check_release_delay(time)?;
    let shortest = limits.shortest_release_delay;
    if time < shortest {
        let hint =
            format!("this store keeps a lock for {shortest:?} at least: give that or more, or leave the option out");
        return Err(Error::invalid_config(name, format!("{time:?}"), hint));
    }
    Ok(())
}

/// How long after its beginning a hold keeps others out, if its command has ended with this status. `--once-every` does not apply to a failed
/// command, which may run again.
pub(crate) fn time_of(wanted: &Run, status: u8, held: &DLockGuard<'_>) -> Option<Duration> {
    let since_now = wanted.once_every.filter(|_| status == 0).map(|time| held.held_for().saturating_add(time));
    wanted.at_least.or(since_now)
}

/// Ends a wait with `--once-every` when the lock is found to be kept, even if the command that holds it ends only now: the job is done, and `dlock`
/// does not wait for the next time. Looks until the returned value is dropped.
pub(crate) fn ends_wait(wanted: &Run, lock: &DistributedReentrantLock, cancel: &CancelToken) -> Option<Sender<()>> {
    wanted.once_every?;
    let (lock, cancel) = (lock.clone(), cancel.clone());
    let (stop, is_over) = channel::<()>();
    let look = move || {
        while !finds_it_done(&lock) {
            if is_over.recv_timeout(timing::DONE_LOOK) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
        cancel.cancel();
    };
    // Without the thread the wait lasts until the next time, or until the end of `--wait`.
    thread::Builder::new().name("dlock-done".to_owned()).spawn(look).ok().map(|_| stop)
}

fn finds_it_done(lock: &DistributedReentrantLock) -> bool {
    let holder = lock.holder().ok().flatten();
    holder.and_then(|holder| holder.delayed_release()).is_some_and(|ended| is_done(&ended))
}

/// Returns a text that says how long a lock is kept, by whom, and whether the command is done.
pub(crate) fn in_words(ended: &DelayedRelease, remaining: Option<Duration>) -> String {
    let ended_at = ended.ended_ago(remaining).and_then(|ago| SystemTime::now().checked_sub(ago));
    // A mark may say any time, and a moment before 1970 cannot be written.
    let at = ended_at.filter(|at| *at >= SystemTime::UNIX_EPOCH).map_or_else(String::new, at);
    let until = match remaining {
        Some(left) => format!("for {}", time(left)),
        None => "for a while".to_owned(),
    };
    let what = if is_done(ended) { "done" } else { "held last" };
    format!("kept {until}: {what}{at}, by {ended}")
}

fn at(moment: SystemTime) -> String {
    format!(" at {}", humantime::format_rfc3339_seconds(moment))
}
