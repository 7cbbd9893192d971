//! The reason why `dlock run` has not got the lock.

use super::kept;
use crate::args::Run;
use crate::message::HolderFields;
use crate::status::{Failure, NOT_ACQUIRED, UNREACHABLE};
use crate::threads;
use crate::timing;
use redis_dlock::{DLockGenerator, Description, DistributedReentrantLock};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// Returns the reason why the lock was not acquired in time, as far as the store and the holder tell it soon. The limit of the wait is over, so a
/// thread asks them, and goes on alone if the store does not answer.
pub(super) fn of(generator: &DLockGenerator, wanted: &Run, lock: &DistributedReentrantLock) -> Failure {
    let (tell, told) = channel();
    let (generator, asked, handle) = (generator.clone(), wanted.lock.clone(), lock.clone());
    let ask = move || {
        if ask_store(&handle, &tell)
            // The store answers at once, but a holder that stands still would have to be waited for.
            && let Ok(Description { holder: Some(holder), delayed_release: None, .. }) =
                generator.describe(&*asked.lock_type, &asked.target)
        {
            let _ = tell.send(held(&handle, &format!(" by {holder}")).naming(&holder));
        }
    };
    let mut last = threads::start("dlock-ask", ask).err();
    let end = Instant::now() + timing::HOLDER_TELLS_WITHIN;
    while let Ok(failure) = told.recv_timeout(end.saturating_duration_since(Instant::now())) {
        last = Some(failure);
    }
    last.unwrap_or_else(|| unanswered(lock, "the server does not answer"))
}

/// Asks only the store. Returns whether somebody holds the lock.
fn ask_store(lock: &DistributedReentrantLock, tell: &Sender<Failure>) -> bool {
    let key = lock.key();
    let (failure, is_held) = match lock.holder() {
        Ok(None) => {
            let message = format!("{key:?} was not acquired in time, and nobody holds it now");
            (Failure::new(NOT_ACQUIRED, message), false)
        }
        Ok(Some(holder)) => match holder.delayed_release() {
            Some(ended) => {
                let words = kept::in_words(&ended, holder.remaining);
                (Failure::new(NOT_ACQUIRED, format!("{key:?} is {words}: not acquired")).naming(&ended), false)
            }
            None => (held(lock, &format!(" by {holder}")).naming(HolderFields::of(holder.locker)), true),
        },
        Err(error) if error.is_transient() => (unanswered(lock, &error.to_string()), false),
        // Without the right to ask, the failed attempt still shows that somebody holds the lock.
        Err(_) => (held(lock, ""), false),
    };
    tell.send(failure).is_ok() && is_held
}

fn held(lock: &DistributedReentrantLock, by: &str) -> Failure {
    Failure::new(NOT_ACQUIRED, format!("{:?} is held{by}: not acquired in time", lock.key()))
}

/// Returns the failure of a wait that has ended without an answer of the store.
pub(super) fn unanswered(lock: &DistributedReentrantLock, why: &str) -> Failure {
    Failure::new(UNREACHABLE, format!("{:?} was not acquired in time: {why}", lock.key()))
}
