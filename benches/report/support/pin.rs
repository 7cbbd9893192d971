//! Cores: threads, and the processes and threads that they start, are kept to one of them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::thread;

/// Who is to run where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever the system puts it.
    Anywhere,
    /// The server's core.
    Server,
    /// The clients' core, which is another one.
    Clients,
}

/// The two settings of most experiments: what they are called, and where the server and the clients are then.
pub(crate) const SETTINGS: [(&str, Place, Place); 2] =
    [("pinned apart", Place::Server, Place::Clients), ("not pinned", Place::Anywhere, Place::Anywhere)];

/// The cores that this process may use.
pub(crate) fn cores() -> Vec<usize> {
    let all = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect()
}

/// Runs `body` on a thread of its own at that place; what it starts inherits the place.
pub(crate) fn at<R: Send>(place: Place, body: impl FnOnce() -> R + Send) -> R {
    let run = || {
        let cores = cores();
        let core = match place {
            Place::Anywhere => None,
            Place::Server => cores.first(),
            // With one core alone there is no apart.
            Place::Clients => cores.get(1).or(cores.first()),
        };
        if let Some(core) = core {
            let mut set = CpuSet::new();
            set.set(*core);
            sched_setaffinity(None, &set).unwrap();
        }
        body()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}
