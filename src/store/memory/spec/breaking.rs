//! The forced break: a key is taken from the locker that was seen to hold it.

use super::key::KeyState;
use super::{Break, Context, Message, Name, Release, Stop, Tenure};

impl<L: Clone> KeyState<L> {
    /// Takes the key from a locker that was seen to hold it: gives it to the first waiter that is heard, or else frees it. If another one
    /// holds the key by now, changes nothing.
    ///
    /// # Errors
    ///
    /// [`Stop`]; as of a release.
    pub(crate) fn break_hold<N: Name<L>>(
        &mut self,
        context: &mut impl Context<L>,
        locker: N,
    ) -> Result<Break<L>, Stop> {
        if !self.is_held_by(locker) {
            return Ok(Break::NotHeldBy(self.held_by()));
        }
        // What its entry in the queue would be matters only to a locker that does not hold.
        let released = self.release(context, Tenure { locker, lease: 0 }, None, None)?;
        context.tell(Message::Broken { locker: locker.into() });
        Ok(match released {
            Release::Released { waiting } => Break::Broken { next: self.held_by(), waiting },
            Release::Passed(_) | Release::Queued(_) | Release::NotOurs(_) => Break::NotHeldBy(self.held_by()),
        })
    }
}
