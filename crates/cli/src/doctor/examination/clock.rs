//! The server's clock, and how long a command takes.

use super::Examination;
use crate::doctor::finding::Subject;
use crate::timing;
use redis_dlock::Error;
use std::time::{Duration, Instant, SystemTime};

/// How many commands are timed.
const SAMPLES: usize = 11;

/// How many round trips a lease should have room for: an extension is tried several times before the lease ends.
const ROOM: u32 = 30;

pub(super) fn look(examination: &mut Examination) {
    let mut trips = Vec::with_capacity(SAMPLES);
    // The offset of the shortest round trip is the most exact.
    let mut nearest: Option<(Duration, Duration, bool)> = None;
    for _ in 0..SAMPLES {
        let (sent_at, begun) = (SystemTime::now(), Instant::now());
        let reply = match examination.ask(&["TIME"]) {
            Ok(reply) => reply,
            // `rights.rs` examines the right.
            Err(Error::Denied { .. }) => return,
            Err(error) => return examination.findings.failed(Subject::RoundTrip, &error),
        };
        let took = begun.elapsed();
        let Some(server) = time(&reply) else { return };
        trips.push(took);
        let here = sent_at + took / 2;
        let (offset, is_ahead) = match server.duration_since(here) {
            Ok(ahead) => (ahead, true),
            Err(behind) => (behind.duration(), false),
        };
        if nearest.is_none_or(|(shortest, ..)| took < shortest) {
            nearest = Some((took, offset, is_ahead));
        }
    }
    trips.sort_unstable();
    if let Some((_, offset, is_ahead)) = nearest {
        tell_offset(examination, offset, is_ahead);
    }
    tell_trips(examination, &trips);
}

fn tell_offset(examination: &mut Examination, offset: Duration, is_ahead: bool) {
    let direction = if is_ahead { "ahead of" } else { "behind" };
    let message = format!("it is {offset:.1?} {direction} this machine's");
    if offset <= timing::CLOCK_FAR {
        return examination.findings.fine(Subject::Clock, message);
    }
    let advice = "leases do not depend on it, but tokens may fall if the server is replaced by one whose clock is behind: \
                  let NTP set the clocks";
    examination.findings.notice(Subject::Clock, message, advice);
}

fn tell_trips(examination: &mut Examination, trips: &[Duration]) {
    let (Some(shortest), Some(longest)) = (trips.first(), trips.last()) else { return };
    let median = trips[trips.len() / 2];
    let message = format!("{shortest:.1?} to {longest:.1?}, median {median:.1?} of {} commands", trips.len());
    if median <= timing::ROUND_TRIP_LONG {
        return examination.findings.fine(Subject::RoundTrip, message);
    }
    let advice = format!("give locks a lease of at least {:.0?}, or run the server nearer", median * ROOM);
    examination.findings.notice(Subject::RoundTrip, message, &advice);
}

/// Reads the reply to `TIME`.
fn time(reply: &[String]) -> Option<SystemTime> {
    let [seconds, micros] = reply else { return None };
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_clock_shows_is_none() {
        let of = |seconds: u64, micros: u64| time(&[seconds.to_string(), micros.to_string()]);
        assert_eq!(of(1, 5), Some(SystemTime::UNIX_EPOCH + Duration::from_micros(1_000_005)));
        assert_eq!([of(u64::MAX, 0), of(u64::MAX, 1_000_000)], [None, None]);
    }
}
