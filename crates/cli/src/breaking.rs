//! `dlock break`: takes a lock from its holder by force.

use crate::args::Break;
use crate::output::{self, one_line};
use crate::settings::Settings;
use crate::status::{Failure, NOT_HELD};
use redis_dlock::BreakOutcome;

pub(crate) fn break_hold(settings: &Settings, wanted: &Break) -> Result<u8, Failure> {
    let Break { lock, locker, reason } = wanted;
    match settings.connect()?.break_lock(&lock.lock_type, &lock.target, locker, reason)? {
        BreakOutcome::Broken { next, waiting } => {
            let next = next.map_or_else(|| "it is free".to_owned(), |next| format!("{} has it now", one_line(&next)));
            output::print(&format!("taken from {}; {next}; waiting: {waiting}\n", one_line(locker)))?;
            Ok(0)
        }
        BreakOutcome::NotHeldBy { holder } => {
            let holder =
                holder.map_or_else(|| "nobody does".to_owned(), |holder| format!("{} does", one_line(&holder)));
            Err(Failure::new(
                NOT_HELD,
                format!("{} does not hold the lock, {holder}: nothing was changed", one_line(locker)),
            ))
        }
        outcome => Err(Failure::new(NOT_HELD, format!("{outcome:?}"))),
    }
}
