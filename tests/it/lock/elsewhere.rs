//! The tests of the lock, for a store of another crate whose `support` has a lab. They wait for no clock that is moved by hand, and for no lease
//! that is shorter than consensus stores keep.

mod asking;
mod awaiting;
mod cancelling;
mod closing;
mod delayed;
mod giving_up;
mod granted;
mod handles;
mod holds;
mod leading;
mod lingering;
mod looking;
mod loss;
mod loss_causes;
mod loss_hook;
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
mod several;
mod slow_wait;
mod trying;
mod twins;
