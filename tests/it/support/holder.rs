//! A process that wants a lock, and does what it is told once it has it: a worker. It tells of each loss by itself.
//!
//! | order | answers, behind the order |
//! |---|---|
//! | `is_valid`, `remaining` (in milliseconds), `ensure_valid` | what its guard says |
//! | `unlock` | what comes of it |
//! | `drop` | |
//! | `lock` | when it has the lock again |

use super::RedisServer;
use super::lab::builder;
use super::worker::{self, Worker};
use redis_dlock::{DLockConfig, DLockGuard, Error, RedisLockProcessor};
use std::time::Duration;

/// Starts a process that wants the lock.
pub(crate) fn wanting(server: &RedisServer, settings: &DLockConfig) -> Worker {
    let times = [settings.lease(), settings.lock_delay()].map(|time| time.as_millis().to_string());
    let words = [&*server.url(), settings.lock_type(), settings.target(), &times[0], &times[1]];
    Worker::start("support::holder::holder", &words.join(" "))
}

/// Starts a process, and waits until it holds the lock.
pub(crate) fn holding(server: &RedisServer, settings: &DLockConfig) -> Worker {
    let mut worker = wanting(server, settings);
    worker.answer_about("held");
    worker
}

/// Gives a process an order, and returns its answer.
#[track_caller]
pub(crate) fn ask(holder: &mut Worker, order: &str) -> String {
    holder.tell(order);
    holder.answer_about(order)
}

#[test]
#[ignore = "the worker process: it takes the lock at once, and then does what it is told"]
fn holder() {
    let Some(settings) = worker::settings() else { return };
    let words: Vec<_> = settings.split(' ').collect();
    let [url, lock_type, target, lease, delay] = words[..] else { panic!("{settings}") };
    let [lease, delay] = [lease, delay].map(|time| Duration::from_millis(time.parse().unwrap()));
    let builder = builder().on_lost(|loss| worker::answer(&format!("lost {}", loss.cause)));
    let generator = builder.build(RedisLockProcessor::connect(url).unwrap()).unwrap();
    let config = DLockConfig::new(lock_type, target).with_lease(lease).with_lock_delay(delay);
    let lock = generator.generate_with(config).unwrap();
    let mut guard = Some(lock.lock().unwrap());
    worker::answer("held");
    for order in worker::orders() {
        let held = || guard.as_ref().unwrap();
        let answer = match order.as_str() {
            "is_valid" => held().is_valid().to_string(),
            "remaining" => held().remaining().as_millis().to_string(),
            "ensure_valid" => told(held().ensure_valid()),
            "unlock" => told(guard.take().map_or(Ok(()), DLockGuard::unlock)),
            "drop" => {
                guard = None;
                String::new()
            }
            "lock" => {
                guard = Some(lock.lock().unwrap());
                String::new()
            }
            other => panic!("{other}"),
        };
        worker::answer(&format!("{order} {answer}"));
    }
}

fn told(result: Result<(), Error>) -> String {
    match result {
        Ok(()) => "fine".to_owned(),
        Err(Error::LeaseLost(loss)) => format!("lost: {}", loss.cause),
        Err(other) => other.to_string(),
    }
}

/// The value of a lock's key, and its time to live.
pub(crate) fn stored(server: &RedisServer, key: &str) -> (Option<String>, Duration) {
    let (value, ttl): (_, i64) = redis::pipe().get(key).pttl(key).query(&mut server.connection()).unwrap();
    (value, Duration::from_millis(u64::try_from(ttl).unwrap_or(0)))
}
