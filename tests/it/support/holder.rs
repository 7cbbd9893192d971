//! A process that takes a lock at once, and then does what it is told.

use super::RedisServer;
use super::lab::builder;
use super::worker::{self, Worker};
use redis_dlock::{DLockConfig, DLockGuard, Error, RedisLockProcessor};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The process. It answers with the word `held`, with the word `lost` and a cause, or with the order and what came of it.
pub(crate) struct Holder(Worker);

impl Holder {
    /// Starts the process, which waits for the lock if others hold it.
    pub(crate) fn waiting(server: &RedisServer, config: &DLockConfig) -> Self {
        let times = [config.lease(), config.lock_delay()].map(|time| time.as_millis());
        let settings = format!("{} {} {} {} {}", server.url(), config.lock_type(), config.target(), times[0], times[1]);
        Self(Worker::start("support::holder::holder", &settings))
    }

    /// Starts the process, and waits until it holds the lock.
    pub(crate) fn holding(server: &RedisServer, config: &DLockConfig) -> Self {
        let mut holder = Self::waiting(server, config);
        holder.answer_about("held");
        holder
    }

    /// What came of an order.
    #[track_caller]
    pub(crate) fn obey(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer_about(order)
    }
}

impl Deref for Holder {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.0
    }
}

impl DerefMut for Holder {
    fn deref_mut(&mut self) -> &mut Worker {
        &mut self.0
    }
}

#[test]
#[ignore = "the process, for the tests that start it"]
fn holder() {
    let Some(settings) = worker::settings() else { return };
    let words: Vec<_> = settings.split(' ').collect();
    let [lease, delay] = [words[3], words[4]].map(|ms| Duration::from_millis(ms.parse().unwrap()));
    let builder = builder().on_lost(|loss| worker::answer(&format!("lost {}", loss.cause)));
    let generator = builder.build(RedisLockProcessor::connect(words[0]).unwrap()).unwrap();
    let config = DLockConfig::new(words[1], words[2]).with_lease(lease).with_lock_delay(delay);
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
            "lock" => {
                guard = Some(lock.lock().unwrap());
                "fine".to_owned()
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
