//! With a real server, leases go on by its clock; what a client thinks of them goes by its own.

use super::{LEASE, cause, let_sleep, settings, waits};
use crate::support::crew::{HANG, Member};
use crate::support::lab::{builder, patient};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{DLockConfig, DLockGenerator, LossCause, ManualClock};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: usize = 30;

fn generator(url: &str, clock: &Arc<ManualClock>) -> DLockGenerator {
    builder().clock(clock.clone()).build(patient(url).connect().unwrap()).unwrap()
}

/// Shows: G5, G6.
#[test]
fn a_lease_is_lost() {
    let server = RedisServer::start();
    for round in 0..ROUNDS {
        let clock = Arc::new(ManualClock::new());
        let lock = generator(&server.url(), &clock).generate_with(settings()).unwrap();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        let_sleep(round);
        clock.advance(LEASE);
        lost.recv_timeout(HANG).expect("whoever watches is told");
        assert!(!guard.is_valid());
        assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    }
}

/// Many threads wait for their own process, and many for another one. All their limits end at one moment, and none of them looks at a later one.
/// Shows: G12, L3.
#[test]
fn all_waits_are_over() {
    let server = RedisServer::start();
    for _ in 0..ROUNDS {
        let clock = Arc::new(ManualClock::new());
        let locks = [(); 2].map(|()| generator(&server.url(), &clock).generate_with(settings()).unwrap());
        let guard = locks[0].lock().unwrap();
        let waiters: Vec<_> = (1..=8)
            .flat_map(|threads| locks.each_ref().map(|lock| (lock, threads)))
            .map(|(lock, threads)| waits(lock, threads, |lock| lock.try_lock_for(LEASE / 2).unwrap().is_none()))
            .collect();
        clock.advance(LEASE / 2);
        assert!(waiters.into_iter().all(Member::join));
        guard.unlock().unwrap();
    }
}

/// A client renews a lease that is nearly over together with a longer one, and the answer takes longer than a third of what the first one has
/// left. The client may be late in any round, so one round in which it is not shows that there is time for the answer.
/// Shows: G3.
#[test]
fn a_lease_that_is_nearly_over_leaves_the_others_time_for_an_answer() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::from_millis(2));
    let renewed_together = |_| {
        let clock = Arc::new(ManualClock::new());
        let generator = generator(&proxy.url(), &clock);
        let lock = |target: &str, lease| {
            let settings = DLockConfig::new("urgent", target).with_lease(Duration::from_secs(lease));
            generator.generate_with(settings).unwrap()
        };
        let (long, short) = (lock("long", 40), lock("short", 4));
        let long = long.lock().unwrap();
        clock.advance(Duration::from_secs(28));
        let short = short.lock().unwrap();
        // Both leases are to be extended now.
        let left = Duration::from_millis(2);
        clock.advance(short.remaining() - left);
        let lost = long.lost();
        for _ in 0..500 {
            if long.remaining() > Duration::from_secs(20) {
                return true;
            }
            if lost.recv_timeout(Duration::from_millis(1)).is_ok() {
                break;
            }
        }
        false
    };
    assert!((0..20).any(renewed_together), "the long lease was never extended beside the short one");
}
