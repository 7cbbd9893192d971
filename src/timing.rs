//! The rules of a client about time: its pauses, limits and counts, with their reasons.
//!
//! The settings of a lock are in `config`. The times for which a connection to a server waits are in the rooms of its store.
//!
//! | rule | of |
//! |---|---|
//! | lease/10, then lease/6 | the pauses of a waiter that polls |
//! | lease/6 | the pause between two probes of a holder |
//! | max(2 ms, lease/100) | how much earlier than the store a client counts its lease as ended |
//! | 75 % of the lease, earlier where the store may be away for longer than the rest | when a lease is extended |
//! | lease/2 | the time that must be left of a lease when a hold begins |
//! | lease/6 + max(3 ms, lease/60) | how long a key stays free for pollers |

use crate::backoff::Backoff;
use std::time::Duration;
#[cfg(feature = "redis")]
use std::time::Instant;

/// The longest time for which a key may be kept from everybody after a hold: 366 days. A number of milliseconds that no server takes would make
/// the release fail.
pub(crate) const LONGEST_RELEASE_DELAY: Duration = Duration::from_secs(366 * 24 * 3600);

/// The pause after a first failure; each further one doubles it. It is long compared with a round trip, and short compared with
/// most leases.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The shortest upper limit of such pauses, however short the lease is: failures that follow at once must not keep a core busy.
const SHORTEST_RETRY_CAP: Duration = Duration::from_millis(1);

/// The pauses between attempts that fail one after another. They double, up to `longest`.
pub(crate) fn retries(longest: Duration) -> Backoff {
    Backoff::new(FIRST_RETRY_PAUSE, longest.max(SHORTEST_RETRY_CAP))
}

/// The longest pause between two tries to reach a store that does not answer, because it may be back at any time.
pub(crate) const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(1);

// A clock for tests.

/// The shortest and the longest pause between two checks of a caller whose limit counts by a clock that is moved by hand, while the store
/// answers.
pub(crate) const STORE_LOOK_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A pause between two checks of threads that are at work. They need the processor more than the thread that checks.
#[cfg(any(test, feature = "test-util"))]
pub(crate) const LOOK_AGAIN: Duration = Duration::from_micros(20);

// An observer.

/// How long a thread must wait until the program is told of the wait, if the program sets no other time.
pub(crate) const SLOW_WAIT: Duration = Duration::from_secs(10);

/// How long a thread that holds a lock waits for another one until the client looks whether such waits form a circle.
pub(crate) const CIRCLE: Duration = Duration::from_secs(1);

/// The shortest limit of a request with which a failure to answer is the store's and not the caller's.
pub(crate) const FAIR_LIMIT: Duration = Duration::from_millis(100);

/// How long no request may have failed before an answer about any key shows that the store is back. This is longer than a waiting thread pauses after
/// a failure and then waits for its next answer.
pub(crate) const STORE_QUIET: Duration = Duration::from_secs(3);

// When a lease is extended.

/// The part of a lease after which it is extended, as in JVM DLock.
pub(crate) const RENEW_AT: f64 = 0.75;

/// The earliest such part. A shorter one would cost more commands than a lease that fits the store.
pub(crate) const EARLIEST_RENEW_AT: f64 = 1.0 / 3.0;

/// The part of a lease after which it is extended if the lock does not say: as late as possible, and early enough for the rest of the
/// lease to outlive an outage of the store.
pub(crate) fn renew_at(lease: Duration, outage: Duration) -> f64 {
    lease.saturating_sub(outage).div_duration_f64(lease).clamp(EARLIEST_RENEW_AT, RENEW_AT)
}

/// The shortest lease that outlives an outage of the store when it is extended as early as that.
pub(crate) fn lease_for(outage: Duration) -> Duration {
    outage.div_f64(1.0 - EARLIEST_RENEW_AT)
}

// A waiter.

/// The pause of a waiter before it asks the store again, where `asked` counts its questions after the first one. The retry
/// thread of JVM DLock asks six times in a lease, too, so both compete on equal terms. The first pause is shorter because most
/// holds are short.
pub(crate) fn ask_pause(lease: Duration, asked: u32) -> Duration {
    if asked == 0 { lease / 10 } else { lease / 6 }
}

/// The longest pause of a waiter where the store does not tell when the holder's lease ends: that may be shorter than the waiter's own. This is
/// the pause with the default lease.
pub(crate) const LONGEST_BLIND_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause after a question that had no answer: as long as after one that was answered.
pub(crate) fn longest_ask_retry(lease: Duration) -> Duration {
    (lease / 6).min(LONGEST_RETRY_PAUSE)
}

/// The shortest limit of a command. In less time, it could not even be sent.
pub(crate) const SHORTEST_COMMAND: Duration = Duration::from_millis(1);

/// How long the next question may take, judging by the last one, which took `trip`: half as long again. A waiter with less time
/// than this asks no more.
pub(crate) fn next_trip(trip: Duration) -> Duration {
    trip + trip / 2
}

/// How long a single attempt waits for a lock that lingers elsewhere: this long, or `RECALL_TRIPS` round trips if they take
/// longer.
pub(crate) const RECALL: Duration = Duration::from_millis(5);
pub(crate) const RECALL_TRIPS: u32 = 5;

/// The first pause before such an attempt asks again; each further pause is twice as long.
pub(crate) const FIRST_RECALL_PAUSE: Duration = Duration::from_micros(200);

/// The most times that such an attempt asks, so that it ends even on a clock that stands still.
pub(crate) const MOST_RECALLS: u32 = 10;

// The times of a holder.

/// How much earlier than the store a client counts a lease as ended: the clocks of two machines run at slightly different
/// speeds, and Redis rounds to milliseconds.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 100).max(Duration::from_millis(2))
}

/// The least time that must be left of a lease when a hold begins. With less, the lease is extended before the caller is told.
pub(crate) fn least_left(lease: Duration) -> Duration {
    lease / 2
}

/// The pause between two checks that the key is still ours. A lost key is noticed within this time and a round trip.
pub(crate) fn probe_pause(lease: Duration) -> Duration {
    lease / 6
}

/// The longest pause of a leader that has lost its term, because what has cost it the term is over soon, or somebody looks into it.
const LONGEST_CAMPAIGN_PAUSE: Duration = Duration::from_secs(5);

/// The pause of a leader that has lost its term before it campaigns again. What has cost it the term may last for a while.
pub(crate) fn campaign_pause(lease: Duration) -> Duration {
    (lease / 6).min(LONGEST_CAMPAIGN_PAUSE)
}

/// The pause between two checks of one key because of messages that its hold was broken. A true one comes once, so it waits only behind a
/// forged one.
pub(crate) const BROKEN_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two looks whether the thread of a hold knows of it, when the hold already lasts so long that it is to be reported.
pub(crate) const UNTOLD_PAUSE: Duration = Duration::from_millis(100);

/// If round trips are long, a lease is extended earlier, but no earlier than this after its last extension.
pub(crate) fn earliest_extension(lease: Duration) -> Duration {
    lease / 6
}

/// The number of round trips that must fit between an extension and the deadline: three attempts of two trips each.
pub(crate) const TRIPS_BEFORE_DEADLINE: u32 = 6;

/// The least time that an attempt allows for an answer, if it can. On a busy machine an answer may take so long, however fast the last ones were.
const BUSY_TRIP: Duration = Duration::from_millis(20);

/// The least time that must be left for another attempt to renew, where `trip` is a round trip.
pub(crate) fn least_for_attempt(trip: Duration) -> Duration {
    trip * 2
}

/// Returns how long one attempt to renew may take. `urgent` is the time left to the most urgent tenure, `patient` the time left to the least
/// urgent tenure of the attempt, and `trip` is a round trip.
///
/// The limit is a third of `urgent`. If four round trips take longer (a new connection needs three), it is four round trips, but at most half of
/// `urgent`. This leaves the most urgent tenure time for another attempt: this one may have met a connection that fell silent.
///
/// A tenure that has less than two round trips left cannot have another attempt. It does not shorten this one for the other tenures: an
/// attempt that ends before its answer breaks the connection of all of them. The limit is then at least two round trips, or half of `patient` if
/// that is shorter.
pub(crate) fn attempt_limit(urgent: Duration, patient: Duration, trip: Duration) -> Duration {
    let limit = (urgent / 3).max((trip * 4).min(urgent / 2));
    let needed = least_for_attempt(trip).max(BUSY_TRIP);
    if urgent < needed { limit.max(needed.min(patient / 2)) } else { limit }
}

/// The pause after a failed attempt to renew: a fraction of the time that is left, so that several attempts fit.
pub(crate) fn renewal_pause(left: Duration) -> Duration {
    (left / 8).clamp(Duration::from_millis(1), LONGEST_RETRY_PAUSE)
}

/// After a faster round trip, the slowest one that is remembered is reduced by one part in this many.
pub(crate) const TRIP_DECAY: u64 = 8;

/// The pause between two checks of a lost hold, whose thread may have ended meanwhile.
pub(crate) fn stale_look_pause(lease: Duration) -> Duration {
    lease / 6
}

/// For how long the threads of this process may pass the lock on among themselves while others wait.
pub(crate) const LOCAL_TIME: Duration = Duration::from_millis(10);

/// How long a key stays free for pollers: they ask every sixth of the lease, and may wake a little late.
pub(crate) fn gap_length(lease: Duration) -> Duration {
    lease / 6 + (lease / 60).max(Duration::from_millis(3))
}

// A release.

/// How many times a release is tried before it goes on the clean-up list.
pub(crate) const RELEASE_TRIES: u32 = 3;

/// The shortest limit of one try of a release, even after the end of the lease.
pub(crate) const SHORTEST_RELEASE: Duration = Duration::from_millis(50);

/// The longest pause between two tries of a release.
pub(crate) fn longest_release_pause(lease: Duration) -> Duration {
    (lease / 6).min(LONGEST_RETRY_PAUSE)
}

/// The reply to a posted release is read together with the next reply on its connection, but after this time at the latest.
pub(crate) const COLLECT_PAUSE: Duration = Duration::from_millis(100);

/// For how long after its deadline a tenure is released again if its release had no answer: one lease. Then the key is gone by
/// itself.
pub(crate) fn unanswered_release(lease: Duration) -> Duration {
    lease
}

/// For how long after its first answered release a locker is released again if its acquire had no answer: one lease. Closing a
/// socket does not cancel what was sent on it.
pub(crate) fn unanswered_acquire(lease: Duration) -> Duration {
    lease
}

/// The pause of the clean-up list before it repeats the release of a locker whose acquire may still arrive; `answers` counts
/// the releases of it that were answered before the last one. A late acquire mostly arrives soon. If it takes the lock, nobody
/// can use the lock until it is released again.
pub(crate) fn late_acquire_pause(lease: Duration, answers: u32) -> Duration {
    Backoff::new(Duration::from_millis(50), lease / 6).exact().after(answers.saturating_add(1))
}

/// The longest pause of the clean-up list after a failure.
pub(crate) fn longest_cleanup_pause(lease: Duration) -> Duration {
    lease.clamp(Duration::from_secs(1), Duration::from_secs(60))
}

// The threads.

/// For how long the thread that works for tasks yields before it sleeps: a little longer than waking a sleeping core takes, as the answer of a task
/// may come sooner. A yield that comes back later than this ends it, because another program computes on the core.
pub(crate) const AWAKE: Duration = Duration::from_micros(50);

/// How long the listener waits for a message before it checks whether it is still needed. Stopping it does not wait for this.
pub(crate) const LISTEN: Duration = Duration::from_secs(30);

/// How long subscribing may take: as long as the store allows, which is a connect and a reply. A limit shorter than a connect
/// would abandon every connect.
pub(crate) const SUBSCRIBE_LIMIT: Duration = LONGEST_TIMEOUT.saturating_mul(2);

/// An inbox that lives for less than this counts as one that could not be opened. It is as long as the longest pause after a failed attempt.
pub(crate) const BRIEF: Duration = LONGEST_RETRY_PAUSE;

/// How long the first lock that may linger waits at most until its key is heard. It is the time of some round trips.
pub(crate) const LISTEN_FIRST: Duration = Duration::from_millis(50);

/// The pause before the right to send messages is checked again, after a check without an answer.
pub(crate) const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// The longest sleep of a thread. It bounds the delay after a suspend of the machine, because a sleep does not count the time
/// in suspend.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The pause of one of the client's threads after a round that panicked.
pub(crate) const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

// The end of a client, and of the main thread.

/// The pause between two checks for the replies to posted releases, when a client closes.
pub(crate) const CLOSING_LOOK: Duration = Duration::from_micros(200);

/// How many times a closing client tries the last releases. The first try may only reveal that the connection is dead.
pub(crate) const CLOSING_TRIES: usize = 2;

/// The pause between two checks for the replies to posted releases, at the end of the main thread. The program waits for it.
#[cfg(all(unix, not(all(test, dlock_shuttle))))]
pub(crate) const EXIT_LOOK: Duration = Duration::from_micros(100);

/// How long the end of the main thread waits for the replies to posted releases, where a command may take `command_limit`: two
/// commands, enough to notice a broken connection and to repeat the release on another one, but ten seconds at most.
#[cfg(all(unix, not(all(test, dlock_shuttle))))]
pub(crate) fn exit_wait(command_limit: Duration) -> Duration {
    command_limit.saturating_mul(2).min(Duration::from_secs(10))
}

// A store on a server.

/// The longest time-out that may be set for a connection. It keeps every sum of moments in range.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Returns the end of a limit that begins at `begin`. A limit counts as a year at most, so that the clock can express its end, and sums of it.
#[cfg(feature = "redis")]
pub(crate) fn end_of(limit: Duration, begin: Instant) -> Instant {
    begin + limit.min(Duration::from_secs(365 * 86_400))
}

// What people are told.

/// How long after the beginning of its first lock a client writes its record into the store, if it holds something then: the locks of a program that
/// has just started come first.
pub(crate) const RECORD_DELAY: Duration = Duration::from_millis(100);

/// How often a client that holds nothing waits for that time again. So a process that only waits writes its record after about a second.
pub(crate) const RECORD_DELAYS: u32 = 10;

/// The pause between two writes of that record.
pub(crate) const RECORD_PAUSE: Duration = Duration::from_secs(30);

/// The pause after a write without an answer.
pub(crate) const RECORD_RETRY: Duration = Duration::from_secs(5);

/// How long the store keeps it: two writes may fail.
pub(crate) const RECORD_LIFE: Duration = Duration::from_secs(90);

/// How long somebody who asks for a description waits for answers.
pub(crate) const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);

/// How long the answers that wait may take to be sent, together. The thread that asks for waiting threads waits for it.
pub(crate) const ANSWERS_LIMIT: Duration = Duration::from_millis(200);

/// How long the lease thread may ask what no lease depends on, unless round trips are longer. A lease that begins meanwhile waits for it.
pub(crate) const SIDE_LIMIT: Duration = Duration::from_millis(200);

/// The pause between two looks whether the inbox is open.
pub(crate) const SUBSCRIBE_LOOK: Duration = Duration::from_millis(1);

#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../tests/white_box/timing.rs"]
mod tests;
