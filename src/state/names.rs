//! The names of threads, for people: what thread has a number of [`owner`](super::owner).
//!
//! A thread enters its name when it gets its number, and takes it out when it ends.

use crate::sync::thread_local;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;

static NAMES: Mutex<BTreeMap<u64, Name>> = Mutex::new(BTreeMap::new());

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    pub(crate) name: Option<String>,
    /// The number in its `ThreadId`.
    pub(crate) id: Option<u64>,
}

/// Takes the name out when the thread ends.
struct Entered(Cell<u64>);

impl Drop for Entered {
    fn drop(&mut self) {
        NAMES.lock().remove(&self.0.get());
    }
}

thread_local! {
    static ENTERED: Entered = const { Entered(Cell::new(0)) };
}

/// Enters the name of the calling thread, which has this number.
pub(crate) fn enter(number: u64) {
    // At the very end of a thread nobody would take it out any more.
    if ENTERED.try_with(|entered| entered.0.set(number)).is_ok() {
        let thread = std::thread::current();
        let id: String = format!("{:?}", thread.id()).chars().filter(char::is_ascii_digit).collect();
        NAMES.lock().insert(number, Name { name: thread.name().map(str::to_owned), id: id.parse().ok() });
    }
}

/// Returns the name of the thread with this number, if it has not ended.
pub(crate) fn of(number: u64) -> Option<Name> {
    NAMES.lock().get(&number).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::owner::current_thread;

    #[test]
    fn a_thread_has_its_name_until_it_ends() {
        let named = std::thread::Builder::new().name("a name".to_owned()).spawn(|| {
            let number = current_thread();
            let name = of(number).expect("entered");
            assert_eq!(name.name.as_deref(), Some("a name"));
            assert_eq!(name.id.map(|id| format!("ThreadId({id})")), Some(format!("{:?}", std::thread::current().id())));
            number
        });
        let number = named.expect("a thread").join().expect("it ends");
        assert!(of(number).is_none());
    }
}
