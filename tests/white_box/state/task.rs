//! Unit tests of `src/state/task.rs`.

use super::*;
use std::task::Wake;

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(Mutex<usize>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        *self.0.lock() += 1;
    }
}

#[test]
fn a_task_wakes_itself_until_no_answer_is_expected_soon() {
    let wakes = Arc::<Wakes>::default();
    let waker = Waker::from(Arc::clone(&wakes));
    let mut polling = TaskPolling::begin();
    let again = [true, true, false, true].map(|is_soon| polling.again(&waker, |_| is_soon));
    assert_eq!((again, *wakes.0.lock()), ([true, true, false, false], 2));
    assert!(!TaskPolling::default().again(&waker, |_| true), "one that has not begun");
}
