//! Unit tests of `src/store/memory/inbox.rs`.

use super::*;
use crate::store::memory::MemoryLockProcessor;

fn open(processor: &MemoryLockProcessor) -> MemoryInbox {
    MemoryInbox::open(&processor.shared, &processor.link, "a-b").expect("reachable")
}

fn contended() -> Message {
    Message::Contended { key: "k".to_owned(), locker: "a-b-1".to_owned() }
}

#[test]
fn a_client_listens_until_its_last_inbox_is_dropped() {
    let processor = MemoryLockProcessor::new();
    let hears = || processor.shared.store.lock().inboxes.hears("a-b-1");
    assert!(!hears());
    let mut old = open(&processor);
    let mut new = open(&processor);
    processor.shared.store.lock().inboxes.tell("a-b-1", contended);
    for inbox in [&mut old, &mut new] {
        assert_eq!(inbox.next(Duration::ZERO).expect("open"), Some(contended()));
        assert_eq!(inbox.next(Duration::ZERO).expect("open"), None);
    }
    drop(old);
    assert!(hears());
    drop(new);
    assert!(!hears());
    assert!(processor.shared.store.lock().inboxes.is_empty());
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let processor = MemoryLockProcessor::new();
    let mut inbox = open(&processor);
    for _ in 0..=CAPACITY {
        processor.shared.store.lock().inboxes.tell("a-b-1", contended);
    }
    assert!(!processor.shared.store.lock().inboxes.hears("a-b-1"));
    for _ in 0..CAPACITY {
        assert_eq!(inbox.next(Duration::ZERO).expect("still there"), Some(contended()));
    }
    assert!(inbox.next(Duration::ZERO).is_err());
}
