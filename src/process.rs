//! Forks. A forked child has a copy of its parent's memory, and none of its threads. So a mutex that another thread of the parent held at the
//! fork is locked in the child for ever: what is called there takes no mutex of its parent.

use crate::error::Error;
use forkguard::Guard;

/// The process that has made a value. It shows whether a forked child uses the value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process(Guard);

impl Process {
    pub(crate) fn this() -> Self {
        Self::default()
    }

    /// Returns whether the calling process is a forked child of this one, with a copy of its memory. This loads a counter, which a handler of
    /// `pthread_atfork` increments in a child.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        // A guard tells of a fork once. So this asks a copy of it.
        self.0.clone().detected_fork()
    }

    /// Checks that the calling process may use what its parent has made. A forked child would use its parent's connection, and wait for
    /// threads that it does not have. Fails with [`Error::Forked`].
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}
