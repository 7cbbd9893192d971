//! What the tests of the lock in `tests/it` need, on a consensus store: a fresh prefix, and the clients that meet there.

use crate::consensus::ConsensusStore;
use crate::fresh::Fresh;
use crate::support::crew::{Member, eventually, spawn};
use crate::support::time::Time;
use crate::support::watched::{Watch, Watched};
use dlock_conformance::Store;
use redis_dlock::port::Operations;
use redis_dlock::{
    CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LockProcessor, LossCause,
};
use std::sync::Arc;
use std::time::Duration;

/// A stall of the machine that may cost a lease, or a look at it.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The shortest lease that both stores keep here, and so the unit of the tests' times.
const SHORTEST: u64 = 2000;

/// The longest lease that both stores keep: Consul's sessions last a day at most.
const LONGEST: u64 = 19 * 3_600_000;

/// A store, and what a test may do with it beside locking.
pub(crate) struct Lab {
    store: Box<dyn Store>,
    pub(crate) time: Time,
}

impl Lab {
    pub(crate) fn of<V: ConsensusStore>() -> Self {
        Self { store: Box::new(Fresh::<V>::start()), time: Time::default() }
    }

    /// Another way to the store.
    pub(crate) fn processor(&self) -> Arc<dyn LockProcessor> {
        self.store.processor()
    }

    /// What all clients in this store have in common.
    pub(crate) fn builder(&self) -> redis_dlock::GeneratorBuilder {
        DLockGenerator::builder()
    }

    /// Another way to the store, and what is asked on it.
    pub(crate) fn watched(&self) -> (Watched, Arc<Watch>) {
        Watched::new(self.store.processor())
    }

    /// A new client.
    pub(crate) fn generator(&self) -> DLockGenerator {
        DLockGenerator::new(Watched::unseen(self.store.processor())).unwrap()
    }

    /// A new client, and what it asks of the store.
    pub(crate) fn watched_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = Watched::new(self.store.processor());
        (DLockGenerator::new(processor).unwrap(), watch)
    }

    /// A new client that hears no grant and so never stands in the store's queue, and what it asks of the store.
    pub(crate) fn deaf_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (processor, watch) = Watched::new(self.store.processor());
        (DLockGenerator::builder().listener(false).build(processor).unwrap(), watch)
    }

    /// A new client that hears of grants already, and what it asks of the store.
    pub(crate) fn listening_generator(&self) -> (DLockGenerator, Arc<Watch>) {
        let (generator, watch) = self.watched_generator();
        let lock = generator.generate("TEST", "to begin with").unwrap();
        let _guard = lock.lock().unwrap();
        let (other, cancel) = (lock.clone(), CancelToken::new());
        let token = cancel.clone();
        let waiter = spawn(move || other.lock_cancellable(&token).unwrap().is_some());
        eventually("the inbox is open", || watch.listening() == 1);
        cancel.cancel();
        assert!(!waiter.join());
        (generator, watch)
    }

    /// Deletes the entry of a lock, behind everybody's back.
    pub(crate) fn delete(&self, key: &str) {
        assert!(self.store.delete(key), "{key} is not there");
    }

    /// Has another program hold a lock, behind everybody's back.
    pub(crate) fn overwrite(&self, key: &str, value: &str, lease: Duration) {
        self.store.overwrite(key, value, Some(lease));
    }

    /// Who holds a key, by a client that knows nothing else.
    pub(crate) fn holder(&self, key: &str) -> Option<Held> {
        let processor = self.store.processor();
        let found = processor.inspect(key, processor.limits().command).unwrap();
        processor.close();
        Some(Held { holder: found.holder?, remaining: found.remaining })
    }

    /// Waits for the end of a thread that gets the lock when another client unlocks.
    #[track_caller]
    pub(crate) fn join<T>(&self, member: Member<T>) -> T {
        member.join()
    }

    /// How many stand in the store's queue for a key.
    pub(crate) fn waiting(&self, key: &str) -> u64 {
        let processor = self.store.processor();
        let waiting = processor.inspect(key, processor.limits().command).unwrap().waiting;
        processor.close();
        waiting
    }

    /// The store's name, for reports.
    pub(crate) fn name(&self) -> &'static str {
        self.store.name()
    }

    /// What the store keeps: nothing when no lock is held or waited for.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.store.leftovers()
    }
}

/// Who holds a key.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) holder: String,
    pub(crate) remaining: Option<Duration>,
}

/// Settings of a lock of these tests, with a lease that both stores keep.
pub(crate) fn config(target: &str, lease_ms: u64) -> DLockConfig {
    DLockConfig::new("TEST", target).with_lease(Duration::from_millis(lease_ms.clamp(SHORTEST, LONGEST)))
}

/// Whether the clients hear of grants.
pub(crate) fn is_listener_on() -> bool {
    true
}

/// What all clients of these tests have in common.
pub(crate) fn builder() -> redis_dlock::GeneratorBuilder {
    DLockGenerator::builder()
}

/// Starts a thread that waits for a lock with a token, as the client's waiter number `place`; tells whether it got the lock.
pub(crate) fn wait_with(lock: &DistributedReentrantLock, cancel: &CancelToken, place: usize) -> Member<bool> {
    let (other, cancel) = (lock.clone(), cancel.clone());
    let member = spawn(move || other.lock_cancellable(&cancel).unwrap().is_some());
    eventually("it waits", || lock.queue_length() == place);
    member
}

/// Why the lease was lost that this call tells of.
#[track_caller]
pub(crate) fn cause<T>(result: Result<T, Error>) -> LossCause {
    match result {
        Err(Error::LeaseLost(loss)) => loss.cause,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// Makes a test on a store of a function of a test of the lock; none of those that ask what these stores do not have.
macro_rules! on {
    // These stores do not tell how long a lease lasts.
    ($store:ident, one_question_tells_the_holder_and_how_many_wait) => {};
    ($store:ident, a_hold_has_the_lease_of_the_handle_that_asked) => {};
    ($store:ident, a_holder_is_named_with_its_process_and_lease) => {};
    ($store:ident, a_stale_unlock_leaves_the_others_key_alone) => {};
    // An extension brings one number, and not millions.
    ($store:ident, a_thread_that_comes_back_again_and_again_asks_the_store_once) => {};
    // What may have been executed is ended by the end of its session, in one request, and not released again and again.
    ($store:ident, what_could_not_be_released_is_tried_on_a_fresh_connection_at_the_end) => {};
    ($store:ident, closing_gives_it_back_later_if_the_store_fails_now) => {};
    ($store:ident, who_lost_it_meanwhile_asks_anew) => {};
    ($store:ident, a_release_without_an_answer_is_repeated) => {};
    ($store:ident, a_grant_that_crosses_with_giving_up_is_passed_on) => {};
    ($store:ident, tasks_that_end_together_give_back_in_one_batch) => {};
    // Who waits and dies is passed over when its session has ended, and not at once.
    ($store:ident, the_dead_are_passed_over) => {};
    // The same with the place that a client has left to its twin: the lock stays there for as long as the session.
    ($store:ident, a_thread_that_waits_goes_on_under_another_name) => {};
    // A lease is extended earlier here, since a leader may be missing for a while, and each by a request of its own.
    ($store:ident, it_extends_at_three_quarters_and_probes_in_between) => {};
    ($store:ident, it_keeps_all_that_is_due_in_one_round_trip) => {};
    // Their leases are to be exactly as long as they say, and these stores keep longer ones.
    ($store:ident, a_handle_knows_its_names_and_settings) => {};
    ($store:ident, everything_can_be_printed_at_any_time) => {};
    ($store:ident, a_store_that_fails_costs_the_lease_at_its_deadline) => {};
    ($store:ident, a_store_that_is_silent_costs_the_lease_at_its_deadline) => {};
    ($store:ident, an_extension_whose_answer_is_late_is_a_loss_even_if_nobody_looked) => {};
    ($store:ident, it_asks_first_after_a_tenth_and_then_every_sixth_of_the_lease) => {};
    ($store:ident, it_asks_when_the_holders_lease_ends) => {};
    // Their limits are shorter than a busy store that votes needs for an answer.
    ($store:ident, a_wait_ends_by_its_limit_or_by_its_token) => {};
    ($store:ident, every_way_to_lock_has_one) => {};
    ($store:ident, $name:ident) => {
        #[test]
        fn $name() {
            crate::support::stalls::on_a_running_machine(crate::support::lab::STALL, || {
                super::$name(&crate::support::lab::Lab::of::<crate::consensus::$store>());
            });
        }
    };
}

/// Makes of each function of a test of the lock one on etcd and one on Consul. One that fails while the machine stands still is played again.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod etcd {
            $(crate::support::lab::on!(Etcd, $name);)+
        }
        mod consul {
            $(crate::support::lab::on!(Consul, $name);)+
        }
    };
}

pub(crate) use {on, on_both_stores, on_both_stores as running_on_both_stores};
