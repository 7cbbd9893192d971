//! What never leaves the process: reentry, taking up a lock that lingers, and handing on from thread to thread.

use crate::Plan;
use crate::round_trip::unlocked;
use crate::support::crew::micros_each;
use crate::support::pin::{self, Place};
use crate::support::raw::{Pair, Raw};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{Variant, interleave, median, ratio};
use parking_lot::{Mutex, MutexGuard, ReentrantMutex};
use redis_dlock::{DLockConfig, DLockGenerator};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("In the process: reentry, linger, hand-over between threads");
    alone(plan, &mut section);
    hand_over(plan, &mut section);
    section
}

fn alone(plan: &Plan, section: &mut Section) {
    let server = Server::start(Place::Server);
    let figures = pin::at(Place::Clients, || {
        let generator = DLockGenerator::connect(&server.tcp().url()).unwrap();
        let lock = generator.generate("BENCH", "reentry").unwrap();
        let held = lock.lock().unwrap();
        let mutex = ReentrantMutex::new(());
        let locked = mutex.lock();
        let minute = Duration::from_secs(60);
        let lingering = generator.generate_with(DLockConfig::new("BENCH", "linger").with_linger(minute)).unwrap();
        // Lingering needs the listener, which the first wait starts.
        wait_once(&generator, &lingering);
        let trip = generator.generate("BENCH", "trip").unwrap();
        let (mut raw, pair) = (Raw::connect(&server.tcp()), Pair::new(&server.tcp(), "x"));
        let (many, few) = (plan.size(200_000, 1000), plan.size(1000, 20));
        let mut variants: [Variant<'_>; 6] = [
            Box::new(|| micros_each(many, || drop(black_box(mutex.lock())))),
            Box::new(|| micros_each(many, || drop(black_box(lock.lock().unwrap())))),
            Box::new(|| micros_each(many, || black_box(lock.lock().unwrap()).unlock().unwrap())),
            Box::new(|| micros_each(many, || black_box(lingering.lock().unwrap()).unlock().unwrap())),
            Box::new(|| micros_each(few, || unlocked(&trip))),
            Box::new(|| micros_each(few, || pair.run(&mut raw))),
        ];
        let figures = interleave(plan.rounds, &mut variants);
        drop((variants, locked));
        held.unlock().unwrap();
        figures
    });
    let [mutex, dropped, reentry, linger, trip, raw] = figures.try_into().unwrap();
    let row = |name: &str, figures: &[f64]| {
        let relative = [ratio(figures, &mutex), ratio(figures, &trip), ratio(figures, &raw)].map(number);
        [vec![name.to_owned(), number(1000.0 * median(figures))], relative.into()].concat()
    };
    section.table(
        &["lock + unlock, one thread", "ns", "relative to `ReentrantMutex`", "to a lock trip", "to the raw pair"],
        &[
            row("parking_lot `ReentrantMutex`, relock", &mutex),
            row("reentry, drop", &dropped),
            row("reentry, `unlock()`", &reentry),
            row("lingering, `unlock()`", &linger),
            row("lock trip, `unlock()`", &trip),
            row("raw pair", &raw),
        ],
    );
    section.target("reentry against ReentrantMutex", Limit::AtMost(1.2), ratio(&dropped, &mutex));
    section.target("lock + unlock of a lingering key, ns", Limit::AtMost(150.0), 1000.0 * median(&linger));
}

/// Has a thread wait for the lock in vain, and then lock it, so that it lingers.
pub(crate) fn wait_once(generator: &DLockGenerator, lock: &redis_dlock::DistributedReentrantLock) {
    let held = generator.generate("BENCH", "waited for").unwrap();
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let wait = || assert!(held.try_lock_for(Duration::from_millis(20)).unwrap().is_none());
        scope.spawn(wait);
    });
    guard.unlock().unwrap();
    // The subscription is open a moment later.
    for _ in 0..200 {
        unlocked(lock);
        if lock.is_locked().unwrap() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("the lock does not linger");
}

/// Who had it last, and when it was let go.
type Last = Option<(ThreadId, Instant)>;

fn hand_over(plan: &Plan, section: &mut Section) {
    section.paragraph(
        "Two threads take turns, each with the lock for 100 µs: microseconds from before the unlock to the return of the other's `lock()`, median. Against \
         parking_lot's `Mutex` with `unlock_fair`.",
    );
    let mut rows = Vec::new();
    for (setting, place) in [("one core", Place::Clients), ("not pinned", Place::Anywhere)] {
        let server = Server::start(Place::Server);
        let figures = pin::at(place, || {
            let generator = DLockGenerator::connect(&server.tcp().url()).unwrap();
            let lock = generator.generate("BENCH", "hand-over").unwrap();
            let (fair, last) = (Mutex::new(None), Mutex::new(None));
            let count = plan.size(1000, 20);
            let mut variants: [Variant<'_>; 2] = [
                Box::new(|| {
                    turns(count, |hold| {
                        let mut guard = fair.lock();
                        let time = hold(&mut guard);
                        MutexGuard::unlock_fair(guard);
                        time
                    })
                }),
                Box::new(|| {
                    turns(count, |hold| {
                        let guard = lock.lock().unwrap();
                        let time = hold(&mut last.lock());
                        guard.unlock().unwrap();
                        time
                    })
                }),
            ];
            interleave(plan.rounds, &mut variants)
        });
        let relative = ratio(&figures[1], &figures[0]);
        let times = figures.iter().map(|figures| number(median(figures)));
        rows.push([setting.to_owned()].into_iter().chain(times).chain([number(relative)]).collect());
        section.target(format!("hand-over between threads, {setting}"), Limit::AtMost(1.3), relative);
    }
    section.table(&["", "`unlock_fair`", "ours", "relative"], &rows);
}

/// Two threads lock in turn, until the lock has changed hands so often; the median time from one's end to the other's beginning, in
/// microseconds.
fn turns<'a>(count: usize, locked: impl Fn(&dyn Fn(&mut Last) -> Option<f64>) -> Option<f64> + Sync + 'a) -> f64 {
    let hold = |last: &mut Last| {
        let now = Instant::now();
        let me = thread::current().id();
        let time = last.filter(|(who, _)| *who != me).map(|(_, end)| (now - end).as_secs_f64() * 1e6);
        thread::sleep(Duration::from_micros(100));
        *last = Some((me, Instant::now()));
        time
    };
    let changes = AtomicUsize::new(0);
    let run = || {
        let mut times = Vec::new();
        while changes.load(Ordering::Relaxed) < count {
            if let Some(time) = locked(&hold) {
                changes.fetch_add(1, Ordering::Relaxed);
                times.push(time);
            }
        }
        times
    };
    thread::scope(|scope| {
        let other = scope.spawn(run);
        median(&[run(), other.join().unwrap()].concat())
    })
}
