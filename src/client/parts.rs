//! The parts of a client, above its core. The handles of the client and its threads share them; the threads have weak pointers.
//!
//! A part is data: what is to be done, and when. Its methods know the [core](super::core), and at most a part below. What is done with
//! several parts at once, such as a turn, a loss or the work of a thread, stands above them, and receives all of them.

use super::alarms::Alarms;
use super::core::Core;
use super::describe::Describe;
use super::orders::Order;
use super::record::Record;
use super::renewals::Renewals;
use super::retries::Retries;
use super::server::ServerWatch;
use super::slow_nodes::{Backlog, SlowNodeWorkers};
use super::subscription::Subscription;
use super::worker::{Round, Worker};
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::state::machine::Waiter;
use crate::sync::Mutex;
use crate::timing::PAUSE_AFTER_PANIC;
use std::sync::{Arc, Weak};

pub(crate) struct Parts {
    pub(crate) core: Core,
    /// The tenures that the client keeps.
    pub(super) renewals: Arc<Renewals>,
    /// What is asked for, cleaned up and collected.
    pub(crate) retries: Arc<Retries>,
    pub(super) slow_nodes: SlowNodeWorkers,
    /// What the retry thread is ordered to do, and has not taken yet. `None` once the client is down.
    orders: Mutex<Option<Vec<Order>>>,
    /// When tasks are to be woken.
    pub(super) alarms: Alarms,
    pub(super) subscription: Arc<Subscription>,
    /// What the client says of itself in the store.
    pub(super) record: Record,
    /// What clients say to one another.
    pub(super) describe: Describe,
    server: Arc<ServerWatch>,
    #[cfg_attr(any(not(unix), all(test, dlock_shuttle)), expect(dead_code, reason = "nobody waits there"))]
    pub(super) this: Weak<Self>,
}

/// The work of a client's threads, which stands above the parts.
pub(super) struct Rounds {
    pub(super) lease: Round<Parts>,
    pub(super) lease_on_slow_nodes: Round<Parts>,
    pub(super) retry: Round<Parts>,
    pub(super) retry_on_slow_nodes: Round<Parts>,
    pub(super) alarm: Round<Parts>,
    /// Listens until the inbox breaks. Returns `None` if the client is gone or stops listening.
    pub(super) listen: fn(&Weak<Parts>) -> Option<Moment>,
}

impl Parts {
    pub(super) fn new(core: Core, has_record: bool, rounds: &Rounds) -> Arc<Self> {
        let parts = Arc::new_cyclic(|this: &Weak<Self>| {
            let worker = |name, round| Worker::new(name, &core.clock, &core.process, this, round);
            let (listen, listening) = (rounds.listen, Weak::clone(this));
            let listener = Worker::listening("dlock-listen", &core.clock, &core.process, move |_| listen(&listening));
            let renewals = Arc::new(Renewals::new(&core, worker("dlock-lease", rounds.lease)));
            let retries = Arc::new(Retries::new(&core, worker("dlock-retry", rounds.retry)));
            let subscription = Arc::new(Subscription::new(listener));
            Self {
                slow_nodes: SlowNodeWorkers {
                    renewals: Backlog::new(worker("dlock-lease-2", rounds.lease_on_slow_nodes)),
                    retries: Backlog::new(worker("dlock-retry-2", rounds.retry_on_slow_nodes)),
                },
                orders: Mutex::new(Some(Vec::new())),
                alarms: Alarms::new(worker("dlock-alarm", rounds.alarm)),
                record: Record::new(has_record),
                describe: Describe::default(),
                server: Arc::new(ServerWatch::new(&core, &renewals, &retries, &subscription)),
                this: Weak::clone(this),
                renewals,
                retries,
                subscription,
                core,
            }
        });
        parts.server.watch(&*parts.core.processor);
        parts
    }

    /// Leaves an order to the retry thread. If the client is down, the order is dropped.
    pub(super) fn order(&self, order: Order) {
        self.order_all([order]);
    }

    /// As [`order`](Self::order), for several orders, which one round takes together.
    pub(super) fn order_all(&self, orders: impl IntoIterator<Item = Order>) {
        self.add_orders(orders);
        self.retries.thread.wake_and_expect_more(self.core.clock.now());
    }

    /// Puts orders back that were not carried out, after a panic of the store or at the closing.
    pub(super) fn put_back_orders(&self, orders: impl IntoIterator<Item = Order>) {
        let mut orders = orders.into_iter().peekable();
        if orders.peek().is_some() {
            self.add_orders(orders);
            self.retries.thread.wake_by(self.core.clock.now() + PAUSE_AFTER_PANIC);
        }
    }

    fn add_orders(&self, orders: impl IntoIterator<Item = Order>) {
        let mut list = self.orders.lock();
        if let Some(list) = &mut *list {
            return list.extend(orders);
        }
        // The orders are dropped without the mutex, because they may have the last handle.
        drop(list);
        drop(orders);
    }

    /// Takes the orders, to carry them out.
    pub(super) fn take_orders(&self) -> Vec<Order> {
        self.orders.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes the releases that need no more than to be posted, if there are at least so many.
    pub(super) fn take_plain_releases(&self, least: usize) -> Vec<Order> {
        let mut orders = self.orders.lock();
        match &mut *orders {
            Some(orders) if orders.iter().filter(|order| order.is_plain_release()).count() >= least => {
                orders.extract_if(.., |order| order.is_plain_release()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes the last orders, for a client that is down: from now on orders are refused.
    pub(super) fn end_orders(&self) -> Vec<Order> {
        self.orders.lock().take().unwrap_or_default()
    }

    /// Has the retry thread shut the client down.
    pub(super) fn order_shutdown(&self) {
        match self.retries.thread.start() {
            Ok(_) => self.order(Order::ShutDown),
            // Another thread shuts the client down, or has done so.
            Err(Error::ShutDown) => {}
            Err(error) => log::error!(CLIENT, "the closed client ends with its last handle: {error}"),
        }
    }

    /// Wakes a waiting task whose wait a thread of the client has ended, and counts it out. Call it with no mutex held.
    pub(super) fn dismiss(&self, waiter: &Waiter) {
        self.count_out_task();
        waiter.wake();
    }

    /// Counts out a task that waited, or the hold of one. If it was the last one after the closing, the retry thread shuts the client down.
    pub(super) fn count_out_task(&self) {
        if self.core.activity.end_hold() {
            self.order_shutdown();
        }
    }
}
