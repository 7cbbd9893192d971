//! Threads that all do their own thing for a while, and what they got done.

pub(crate) use super::kit::crew::{eventually, hang};

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What one thread does again and again.
pub(crate) type Work<'a> = Box<dyn FnMut() + Send + 'a>;

/// What came of it.
pub(crate) struct Done {
    pub(crate) per_second: f64,
    /// How long each took, in microseconds.
    pub(crate) times: Vec<f64>,
    /// How often the threads went off their cores, of their own will and otherwise.
    pub(crate) switches: [u64; 2],
}

/// Lets each work on a thread of its own for `window`, resting up to `rest` at random before each time.
pub(crate) fn run(works: &mut [Work<'_>], window: Duration, rest: Duration) -> Done {
    let (start, stop) = (Barrier::new(works.len() + 1), AtomicBool::new(false));
    let (start, stop) = (&start, &stop);
    thread::scope(|scope| {
        let threads: Vec<_> = works
            .iter_mut()
            .zip(1u64..)
            .map(|(work, seed)| {
                scope.spawn(move || {
                    let (mut times, mut dice) =
                        (Vec::with_capacity(16 * 1024), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    let before = switches();
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        if !rest.is_zero() {
                            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            thread::sleep(rest.mul_f64((dice >> 40) as f64 / (1u64 << 24) as f64));
                        }
                        let begin = Instant::now();
                        work();
                        times.push(begin.elapsed().as_secs_f64() * 1e6);
                    }
                    let after = switches();
                    (times, [after[0] - before[0], after[1] - before[1]])
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        thread::sleep(window);
        stop.store(true, Ordering::Relaxed);
        let (mut times, mut switches) = (Vec::new(), [0; 2]);
        for thread in threads {
            let (mut its_times, its_switches) = thread.join().unwrap();
            times.append(&mut its_times);
            (0..2).for_each(|i| switches[i] += its_switches[i]);
        }
        Done { per_second: times.len() as f64 / begin.elapsed().as_secs_f64(), times, switches }
    })
}

/// How often the calling thread has slept, and was put off its core.
fn switches() -> [u64; 2] {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = |field: &str| {
        status.lines().find_map(|line| line.strip_prefix(field)).and_then(|count| count.trim().parse().ok()).unwrap()
    };
    ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(count)
}

/// Microseconds that one of `count` calls takes.
pub(crate) fn micros_each(count: usize, mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    (0..count).for_each(|_| work());
    begin.elapsed().as_secs_f64() * 1e6 / count as f64
}
