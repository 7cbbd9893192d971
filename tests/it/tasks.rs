//! The owner of a hold is the thread: what tasks of one thread do to one another, and what keeps a hold out of their reach.

use crate::support::crew::{eventually, spawn};
use crate::support::lab::Lab;
use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, MemoryLockProcessor};
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use std::{env, fs};

fn lock() -> DistributedReentrantLock {
    DLockGenerator::new(MemoryLockProcessor::new()).unwrap().generate("TASK", "x").unwrap()
}

/// Pending once: an `.await` at which a single-threaded executor runs another task.
#[derive(Default)]
struct Once(bool);

impl Future for Once {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_task_reenters_what_another_task_of_its_thread_holds() {
    let lock = lock();
    let (inside, most, counts) = (Cell::new(0), Cell::new(0), Cell::new((0, 0)));
    let task = || async {
        let before = lock.hold_count();
        let guard = lock.lock().unwrap();
        counts.set((before, lock.hold_count()));
        inside.set(inside.get() + 1);
        most.set(most.get().max(inside.get()));
        Once::default().await;
        inside.set(inside.get() - 1);
        guard.unlock().unwrap();
    };
    let (mut first, mut second) = (pin!(task()), pin!(task()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert_eq!((most.get(), counts.get()), (1, (0, 1)));
    assert!(second.as_mut().poll(&mut context).is_pending());
    // That is what the documentation warns of, and how a program finds out.
    assert_eq!((most.get(), counts.get()), (2, (1, 2)));
    assert!(first.as_mut().poll(&mut context).is_ready() && second.as_mut().poll(&mut context).is_ready());
    assert_eq!(lock.hold_count(), 0);
}

/// Shows: G1.
#[test]
fn a_hold_on_a_thread_of_its_own_excludes_them() {
    // What `spawn_blocking` does: a thread of a pool for the whole hold.
    let lock = lock();
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let token = lock.with(|guard| {
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.fencing_token()
                });
                assert!(token.unwrap() > 0);
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
}

/// Shows: G6, L2.
#[test]
fn with_locks_for_a_closure_and_hears_what_came_of_it() {
    let lab = Lab::memory();
    let lock = lab.generator().generate_with(DLockConfig::new("TASK", "with")).unwrap();
    let counted = lock.with(|guard| (guard.is_valid(), lock.hold_count(), lock.with(|_| lock.hold_count()))).unwrap();
    assert!(matches!(counted, (true, 1, Ok(2))), "{counted:?}");
    assert_eq!((lock.hold_count(), lab.leftovers()), (0, vec![]));
    assert_eq!(lock.try_with(|_| 7).unwrap(), Some(7));

    // A result of a hold whose lease was lost is not returned as if nothing had been.
    let lost = lock.with(|_| lab.delete(lock.key()));
    assert!(matches!(lost, Err(Error::LeaseLost(_))), "{lost:?}");
    let lost = lock.try_with(|_| lab.delete(lock.key()));
    assert!(matches!(lost, Err(Error::LeaseLost(_))), "{lost:?}");
    assert_eq!((lock.hold_count(), lab.leftovers()), (0, vec![]));

    let lost = lock.try_with_for(Duration::from_secs(60), |_| lab.delete(lock.key()));
    assert!(matches!(lost, Err(Error::LeaseLost(_))), "{lost:?}");
    let lost = lock.with_cancellable(&CancelToken::new(), |_| lab.delete(lock.key()));
    assert!(matches!(lost, Err(Error::LeaseLost(_))), "{lost:?}");
    let ended = lock.with(|_| lock.unguarded().unlock());
    assert!(matches!(ended, Err(Error::NotHeld { .. })), "{ended:?}");

    // A panic in the closure unlocks as a dropped guard does.
    assert!(catch_unwind(AssertUnwindSafe(|| lock.with(|_| panic!("on purpose")))).is_err());
    assert_eq!((lock.hold_count(), lab.leftovers()), (0, vec![]));

    // While another thread holds the lock, the closure of `try_with` does not run.
    let guard = lock.lock().unwrap();
    let other = lock.clone();
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let asking = spawn(move || {
        assert!(other.try_with(|_| unreachable!("it is held")).unwrap().is_none());
        let moment = Duration::from_millis(1);
        assert!(other.try_with_for(moment, |_| unreachable!("it is held")).unwrap().is_none());
        assert!(other.with_cancellable(&cancelled, |_| unreachable!("it is cancelled")).unwrap().is_none());
    });
    lab.time.join(asking);
    guard.unlock().unwrap();
}

/// This crate as the compiler wrote it last, beside this test.
fn library() -> (PathBuf, PathBuf) {
    let deps = env::current_exe().unwrap().parent().unwrap().to_owned();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libredis_dlock-") && name.ends_with(".rlib")
    };
    let written =
        |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let found = fs::read_dir(&deps).unwrap().filter_map(|entry| Some(entry.ok()?.path())).filter(is_ours);
    (found.max_by_key(written).expect("the library that this test is linked with"), deps)
}

/// What the compiler says of a program that does `body` with a lock; `None` when it has nothing against it. A library that another build
/// is about to write can be found and not be read yet.
fn refusal(directory: &Path, body: &str) -> Option<String> {
    let mut said = None;
    eventually("the library can be read", || {
        said = compile(directory, body);
        !said.as_ref().is_some_and(|said| said.contains("can't find crate"))
    });
    said
}

fn compile(directory: &Path, body: &str) -> Option<String> {
    let (library, deps) = library();
    let source = directory.join("main.rs");
    let program = format!(
        "use redis_dlock::DistributedReentrantLock;\npub fn run(lock: DistributedReentrantLock) {{ {body} }}\n"
    );
    fs::write(&source, program).unwrap();
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata"])
        .arg("--extern")
        .arg(format!("redis_dlock={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", deps.display()))
        .arg("--out-dir")
        .arg(directory)
        .arg(source)
        .output()
        .unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_compiler_names_why_a_guard_stays_with_its_thread() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |body: &str| refusal(directory.path(), body);
    // Those that hold the lock on one thread, or give the lock and not the guard away, compile.
    for body in [
        "std::thread::spawn(move || lock.with(|guard| guard.fencing_token()).map(drop));",
        "let guard = lock.lock().unwrap(); std::thread::scope(|scope| { scope.spawn(|| guard.is_valid()); });",
    ] {
        assert_eq!(refusal(body), None);
    }
    for body in [
        "let guard = lock.lock().unwrap(); std::thread::scope(|scope| { scope.spawn(move || drop(guard)); });",
        // A task that an executor with several threads would take.
        "fn spawn(_: impl Future<Output = ()> + Send) {}
         spawn(async move { let guard = lock.lock().unwrap(); std::future::ready(()).await; drop(guard); });",
    ] {
        let said = refusal(body).expect("must not compile");
        assert!(said.contains("cannot be sent between threads safely"), "{said}");
        assert!(said.contains("TheThreadThatLocksMustUnlock"), "the name of the type says why: {said}");
    }
}
