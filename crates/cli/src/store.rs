//! The connection to the server.

use crate::settings::Settings;
use crate::status::{Failure, say};
use redis_dlock::{DLockGenerator, Error, RedisBuilder, RedisLockProcessor};
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

/// The pauses between two attempts to connect to a server that is away.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

/// Connects. A server that is away may come back, so it is waited for, until the end if there is one, and that is said once.
pub(crate) fn wait_for(builder: &RedisBuilder, end: Option<Instant>) -> Result<RedisLockProcessor, Error> {
    let mut pause = *PAUSES.start();
    loop {
        let connected = builder.clone().connect();
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        match &connected {
            Err(error) if error.is_transient() && !left.is_zero() => {
                if pause == *PAUSES.start() {
                    say(&format!("{error}: waiting for the server"));
                }
                thread::sleep(pause.min(left));
                pause = (pause * 2).min(*PAUSES.end());
            }
            _ => return connected,
        }
    }
}

/// Connects for questions. Nothing is written that says so.
pub(crate) fn connect(settings: &Settings) -> Result<DLockGenerator, Failure> {
    asking(settings.connect()?)
}

/// The same, once the server is there.
pub(crate) fn connect_when_there(settings: &Settings) -> Result<DLockGenerator, Failure> {
    asking(wait_for(&settings.builder()?, None)?)
}

fn asking(store: RedisLockProcessor) -> Result<DLockGenerator, Failure> {
    Ok(DLockGenerator::builder().client_record(false).build(store)?)
}
