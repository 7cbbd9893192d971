//! Unit tests of `src/state/owner.rs`.

use super::*;
use crate::{DLockGenerator, DistributedReentrantLock, MemoryLockProcessor};
use std::sync::Arc;
use std::thread;

#[test]
fn thread_numbers_differ() {
    let mine = current_thread();
    assert_eq!(mine, current_thread());
    let other = thread::spawn(current_thread).join().expect("thread");
    assert_ne!(mine, other);
    assert_ne!(mine, NOBODY);
}

#[test]
fn a_thread_that_ends_with_holds_is_known_until_they_are_forgotten() {
    let tidy = thread::spawn(|| {
        hold_begins();
        hold_ends();
        current_thread()
    });
    assert!(!has_ended(tidy.join().expect("thread")));
    let untidy = thread::spawn(|| {
        (0..3).for_each(|_| hold_begins());
        hold_ends();
        assert!(!has_ended(current_thread()));
        current_thread()
    });
    let thread = untidy.join().expect("thread");
    for _ in 0..2 {
        assert!(has_ended(thread));
        forget_hold(thread);
    }
    assert!(!has_ended(thread));
    forget_hold(thread);
}

fn generator() -> DLockGenerator {
    DLockGenerator::new(MemoryLockProcessor::new()).expect("a generator")
}

fn is_forgotten(thread: u64) -> bool {
    let books = books();
    !books.ended.contains_key(&thread) && !books.gone.contains_key(&thread)
}

#[test]
fn a_hold_that_goes_with_its_client_is_nobodys() {
    // Covers a living thread, on that thread and on another one, and an ended thread.
    let alone = thread::spawn(|| {
        generator().generate("OWNER", "x").expect("a lock").unguarded().lock().expect("held");
        current_thread()
    });
    assert!(is_forgotten(alone.join().expect("thread")));
    for ends_first in [false, true] {
        let (generator, (tell, told)) = (generator(), crossbeam_channel::bounded::<()>(0));
        let lock = generator.generate("OWNER", "x").expect("a lock").unguarded();
        let holder = thread::spawn(move || {
            lock.lock().expect("held");
            drop(lock);
            let _ = told.recv();
            current_thread()
        });
        let thread = if ends_first {
            drop(tell);
            let thread = holder.join().expect("thread");
            assert!(has_ended(thread) || is_forgotten(thread));
            drop(generator);
            thread
        } else {
            // The thread waits for this after it has dropped its handle.
            let _ = tell.send(());
            drop(generator);
            holder.join().expect("thread")
        };
        assert!(is_forgotten(thread), "{ends_first}");
    }
}

#[test]
fn a_thread_has_its_name_until_it_ends() {
    let named = thread::Builder::new().name("a name".to_owned()).spawn(|| {
        let number = current_thread();
        let name = name_of(number).expect("entered");
        assert_eq!(name.name.as_deref(), Some("a name"));
        assert_eq!(name.id.map(|id| format!("ThreadId({id})")), Some(format!("{:?}", thread::current().id())));
        number
    });
    let number = named.expect("a thread").join().expect("it ends");
    assert!(name_of(number).is_none());
}

#[test]
fn a_hold_of_no_thread_has_a_name_while_it_lives_and_is_not_counted() {
    let mine = current_thread();
    let [named, plain] = [Some("session 17"), None].map(HoldNumber::new);
    assert!(is_thread(mine) && !is_thread(named.get()) && !is_thread(plain.get()) && named.get() != plain.get());
    let shown = |number: &HoldNumber| name_of(number.get()).expect("entered");
    assert_eq!((shown(&named).name.as_deref(), shown(&named).id), (Some("session 17"), None));
    let thread = name_of(mine).expect("entered");
    assert_eq!((shown(&plain).name, shown(&plain).id), (thread.name, thread.id));
    hold_begins();
    hold_is_gone(named.get());
    assert!(has_holds(), "the thread's own hold is counted on");
    hold_ends();
    let number = named.get();
    drop(named);
    assert!(name_of(number).is_none() && is_forgotten(number));
}

/// Calls that get nothing leave no name behind.
#[test]
fn a_call_without_a_hold_leaves_no_name() {
    let lock = generator().generate("OWNER", "names").expect("a lock");
    let held = lock.hold().expect("held");
    let name = "a name that no other test has";
    let named = crate::DLockConfig::new("OWNER", "names").with_holder_name(name);
    let count = || books().names.values().filter(|known| known.name.as_deref() == Some(name)).count();
    let asker = lock.handle.client.clone();
    let other = DistributedReentrantLock::new(asker, Arc::clone(&lock.handle.key), Arc::new(named));
    assert!(other.try_hold().expect("an answer").is_none());
    assert!(other.try_hold_for(std::time::Duration::from_millis(1)).expect("an answer").is_none());
    assert_eq!(count(), 0);
    drop(held);
    let mine = other.try_hold().expect("an answer").expect("free");
    assert_eq!(count(), 1);
    drop(mine);
    assert_eq!(count(), 0);
}
