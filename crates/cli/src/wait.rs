//! `dlock wait`: waits until nobody holds a lock, and takes none.

use crate::args::Wait;
use crate::settings::Settings;
use crate::show;
use crate::status::{Failure, NOT_ACQUIRED, say};
use crate::timing;
use std::thread;
use std::time::Instant;

pub(crate) fn wait(settings: &Settings, wanted: &Wait) -> Result<u8, Failure> {
    let end = wanted.timeout.and_then(|time| Instant::now().checked_add(time));
    let generator = settings.connect_until(end)?;
    let (mut pause, mut is_told) = (*timing::FREE_LOOKS.start(), false);
    loop {
        let seen = show::locker(&generator, &wanted.lock);
        if matches!(&seen, Ok(None)) {
            return Ok(0);
        }
        let left = end.map_or(timing::A_YEAR, |end| end.saturating_duration_since(Instant::now()));
        match seen {
            Err(error) if !error.is_transient() || left.is_zero() => return Err(error.into()),
            Err(error) if !is_told => {
                say(&format!("{error}: waiting for the server"));
                is_told = true;
            }
            Ok(Some(_)) if left.is_zero() => {
                let holder = show::holder_of(&generator, &wanted.lock).unwrap_or_default();
                return Err(Failure::new(NOT_ACQUIRED, format!("{} is still held{holder}", show::key(&wanted.lock))));
            }
            _ => {}
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(*timing::FREE_LOOKS.end());
    }
}
