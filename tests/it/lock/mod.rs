//! The lock, measured against `java.util.concurrent.locks.ReentrantLock` in fair mode, on every store alike.

mod asking;
mod cancelling;
mod closing;
mod giving_up;
mod granted;
mod handles;
mod late_answers;
mod lingering;
mod looking;
mod loss;
mod loss_causes;
mod loss_hook;
mod low_priority;
mod max_hold;
mod order;
mod orphans;
mod outages;
mod owned;
mod ownership;
mod passing;
mod races;
mod reentry;
mod renewing;
mod retrying;
mod threads;
mod trying;
