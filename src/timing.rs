//! How often, how long and how many: the rules of a client about time, with their reasons.
//!
//! The settings of a lock are in `config`, the end of a program is in `client::at_exit`, and what a connection waits for is with the
//! transport of its store.
//!
//! | rule | of |
//! |---|---|
//! | lease/10, then lease/6 | the pauses of a waiter that asks |
//! | lease/6 | the pause between two probes of a holder |
//! | max(2 ms, lease/100) | how much earlier than the store a client counts its lease as over |
//! | lease/2 | what must be left of a lease when a hold begins |
//! | lease/6 + max(3 ms, lease/60) | how long a key stays free for pollers |

use std::time::Duration;

/// The longest pause between two tries to reach a store that does not answer: it may be back at any time.
pub(crate) const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(1);

// A waiter.

/// The pause of a waiter before it asks the store again, `asked` times after its first question. Six questions in a lease are what JVM
/// DLock's retry thread asks, so that both take part on equal terms. The first pause is shorter: most holds are short.
pub(crate) fn ask_pause(lease: Duration, asked: u32) -> Duration {
    if asked == 0 { lease / 10 } else { lease / 6 }
}

/// The longest pause after a question without an answer: no longer than after one with an answer.
pub(crate) fn longest_ask_retry(lease: Duration) -> Duration {
    (lease / 6).min(LONGEST_RETRY_PAUSE)
}

/// The shortest time that a command is given: less could not even be sent.
pub(crate) const SHORTEST_COMMAND: Duration = Duration::from_millis(1);

/// How long a single attempt waits for a lock that lingers: so long, or so many round trips if they take longer.
pub(crate) const RECALL: Duration = Duration::from_millis(5);
pub(crate) const RECALL_TRIPS: u32 = 5;

/// The first pause before such an attempt asks again; each is twice as long as the one before.
pub(crate) const FIRST_RECALL_PAUSE: Duration = Duration::from_micros(200);

/// Such an attempt asks no more often, also by a clock that stands still.
pub(crate) const MOST_RECALLS: u32 = 10;

// A holder.

/// How much earlier than the store a client counts a lease as over. The clocks of two machines do not tick alike, and Redis rounds to
/// milliseconds.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 100).max(Duration::from_millis(2))
}

/// The least that must be left of a lease when a hold begins: with less, it is extended before the caller is told.
pub(crate) fn least_left(lease: Duration) -> Duration {
    lease / 2
}

/// The pause between two looks whether the key is still ours: a lost key is noticed within this time and a round trip.
pub(crate) fn probe_pause(lease: Duration) -> Duration {
    lease / 6
}

/// A lease whose round trips are long is extended earlier, but not earlier than this after the last extension.
pub(crate) fn earliest_extension(lease: Duration) -> Duration {
    lease / 6
}

/// So many round trips must fit between an extension and the deadline: three attempts of two trips.
pub(crate) const TRIPS_BEFORE_DEADLINE: u32 = 6;

/// How long one attempt to renew may take where the most urgent tenure has `left`, and a round trip takes `trip`: a third of what is
/// left, or four round trips (a fresh connection takes three) if they fit in half of it. Never so long that no other attempt is left
/// for that tenure, however slow the last ones were: they may have met a connection that fell silent.
pub(crate) fn attempt_limit(left: Duration, trip: Duration) -> Duration {
    (left / 3).max((trip * 4).min(left / 2))
}

/// The pause after a failed attempt to renew: a part of the time that is left, so that several attempts fit.
pub(crate) fn renewal_pause(left: Duration) -> Duration {
    (left / 8).clamp(Duration::from_millis(1), LONGEST_RETRY_PAUSE)
}

/// After a faster round trip, the slowest one that is remembered falls by this part of it.
pub(crate) const TRIP_DECAY: u64 = 8;

/// The pause between two looks at a hold that was lost: its thread may have ended meanwhile.
pub(crate) fn stale_look_pause(lease: Duration) -> Duration {
    lease / 6
}

/// For how long the threads of this process may go on among themselves when others wait.
pub(crate) const LOCAL_TIME: Duration = Duration::from_millis(10);

/// How long a key stays free for pollers: they ask every sixth of the lease, and oversleep a little.
pub(crate) fn gap_length(lease: Duration) -> Duration {
    lease / 6 + (lease / 60).max(Duration::from_millis(3))
}

// A release.

/// How often a release is tried before it goes on the clean-up list.
pub(crate) const RELEASE_TRIES: u32 = 3;

/// The least time that a try of a release has, also after the lease's end.
pub(crate) const SHORTEST_RELEASE: Duration = Duration::from_millis(50);

/// The longest pause between two tries of a release.
pub(crate) fn longest_release_pause(lease: Duration) -> Duration {
    (lease / 6).min(LONGEST_RETRY_PAUSE)
}

/// An answer to a posted release is heard with the next one on its connection, and after this time at the latest.
pub(crate) const COLLECT_PAUSE: Duration = Duration::from_millis(100);

/// The pause of the clean-up list after answered release number `answers` of a locker whose acquire may still come. What comes late
/// mostly comes soon; and nobody has the lock as long as it is not released again.
pub(crate) fn late_acquire_pause(lease: Duration, answers: u32) -> Duration {
    Duration::from_millis(50).saturating_mul(1 << answers.min(16)).min(lease / 6)
}

/// The longest pause of the clean-up list after a failure.
pub(crate) fn longest_cleanup_pause(lease: Duration) -> Duration {
    lease.clamp(Duration::from_secs(1), Duration::from_secs(60))
}

// The threads.

/// How long the listener listens before it looks whether it is still needed. Stopping does not wait for that.
pub(crate) const LISTEN: Duration = Duration::from_secs(30);

/// How long subscribing may take: as long as the store lets it. A limit that is shorter than a connect would throw away each connect.
pub(crate) const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(2 * 86_400);

/// The longest sleep of a thread: a bound on what a missed suspend of the machine can delay (sleeping does not count suspend).
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The pause of a thread of ours after a round that panicked.
pub(crate) const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

/// The pause between two looks for the answers to posted releases, when a client closes.
pub(crate) const CLOSING_LOOK: Duration = Duration::from_micros(200);

#[cfg(all(test, not(dlock_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_leaves_time_for_the_next_one_of_the_most_urgent_tenure() {
        let millis = Duration::from_millis;
        for trip in [0, 1, 10, 100, 1_000, 100_000] {
            assert!(attempt_limit(millis(900), millis(trip)) <= millis(450), "{trip} ms a round trip");
        }
        assert_eq!(attempt_limit(millis(900), millis(1)), millis(300));
        // Four trips, where they fit.
        assert_eq!(attempt_limit(millis(900), millis(100)), millis(400));
    }
}
