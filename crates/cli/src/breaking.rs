//! `dlock break`: takes a lock from its holder by force.

use crate::args::{Break, LockName};
use crate::output::{self, one_line};
use crate::settings::Settings;
use crate::show;
use crate::status::{Failure, NOT_HELD, USAGE};
use redis_dlock::{BreakOutcome, DLockGenerator};
use std::io::{self, IsTerminal, Write};

pub(crate) fn break_hold(settings: &Settings, wanted: &Break) -> Result<u8, Failure> {
    let Break { lock, from, reason, yes } = wanted;
    let generator = settings.connect()?;
    let locker = match &from.locker {
        Some(locker) => locker.clone(),
        None => current(&generator, lock, *yes)?,
    };
    match generator.break_lock(&lock.lock_type, &lock.target, &locker, reason)? {
        BreakOutcome::Broken { next, waiting } => {
            let next = next.map_or_else(|| "it is free".to_owned(), |next| format!("{} has it now", one_line(&next)));
            output::print(&format!("taken from {}; {next}; waiting: {waiting}\n", one_line(&locker)))?;
            Ok(0)
        }
        BreakOutcome::NotHeldBy { holder } => {
            let holder =
                holder.map_or_else(|| "nobody does".to_owned(), |holder| format!("{} does", one_line(&holder)));
            Err(Failure::new(
                NOT_HELD,
                format!("{} does not hold the lock, {holder}: nothing was changed", one_line(&locker)),
            ))
        }
        outcome => Err(Failure::new(NOT_HELD, format!("{outcome:?}"))),
    }
}

/// Returns the locker that holds the lock now, if whoever sees it says yes.
fn current(generator: &DLockGenerator, lock: &LockName, yes: bool) -> Result<String, Failure> {
    if !yes && !io::stdin().is_terminal() {
        let message = "--current asks on a terminal, and standard input is none: give --yes, or --locker";
        return Err(Failure::new(USAGE, message));
    }
    let seen = generator.describe(&*lock.lock_type, &lock.target)?;
    let page = show::page(&seen);
    let Some(holder) = seen.holder else {
        return Err(Failure::new(NOT_HELD, "nobody holds the lock: nothing was changed"));
    };
    if yes || says_yes(&page, &holder.locker).map_err(|error| Failure::system("cannot ask", error))? {
        return Ok(holder.locker);
    }
    Err(Failure::new(NOT_HELD, "nothing was changed"))
}

fn says_yes(page: &str, locker: &str) -> io::Result<bool> {
    let mut out = io::stderr().lock();
    write!(out, "{page}Take it from {}? [y/N] ", one_line(locker))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
