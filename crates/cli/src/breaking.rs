//! `dlock break`: takes a lock from its holder by force.

use crate::args::{Break, LockName};
use crate::output::{self, one_line};
use crate::settings::Settings;
use crate::show;
use crate::status::{Failure, NOT_HELD, USAGE};
use redis_dlock::{BreakOutcome, DLockGenerator};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

pub(crate) fn break_hold(settings: &Settings, wanted: &Break) -> Result<u8, Failure> {
    let Break { lock, from, reason, yes } = wanted;
    let generator = settings.connect()?;
    let locker = match &from.locker {
        Some(locker) => locker.clone(),
        None => current(&generator, lock, *yes)?,
    };
    let break_hold = |locker: &str| generator.break_lock(&lock.lock_type, &lock.target, locker, reason);
    let outcome = match break_hold(&locker)? {
        // The caller has given the locker as `dlock` prints it.
        BreakOutcome::NotHeldBy { holder: Some(holder) } if holder != locker && one_line(&holder) == locker => {
            break_hold(&holder)?
        }
        outcome => outcome,
    };
    match outcome {
        BreakOutcome::Broken { next, waiting } => {
            let next = next.map_or_else(|| "it is free".to_owned(), |next| format!("{} has it now", one_line(&next)));
            output::print(&format!("taken from {}; {next}; waiting: {waiting}\n", one_line(&locker)))?;
            Ok(0)
        }
        BreakOutcome::NotHeldBy { holder } => {
            // A value that no lock writes is an error of its own, and holds nothing.
            show::holder(&generator, lock)?;
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

/// Returns the locker of the present holder. Unless `yes` is set, shows the holder, and asks the user first.
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

/// Asks on the terminal itself, because standard error may be a file, or contain JSON documents.
fn says_yes(page: &str, locker: &str) -> io::Result<bool> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    write!(terminal, "{page}Take it from {}? [y/N] ", one_line(locker))?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
