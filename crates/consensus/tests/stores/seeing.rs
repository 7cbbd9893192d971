//! What people see of the stores while keys change, and what is in the way of it.

use crate::consensus::{ConsensusStore, Counter, Etcd, Look};
use crate::fresh::Fresh;
use crate::support::LONG;
use crate::support::crew::eventually;
use dlock_conformance::Store;
use redis_dlock::port::{Break, BreakOutcome, Directory, KeyFilter, LockProcessor, Operations};
use redis_dlock::{DLockConfig, DLockGenerator, Error};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

on_each_store!(
    a_list_shows_each_lock_once_whatever_else_is_in_the_store,
    a_place_that_no_page_has_told_is_refused,
    a_record_stays_while_its_client_lives_and_is_written_again_if_somebody_deletes_it,
    a_record_goes_with_its_client_also_if_others_of_its_process_live,
    records_that_a_limit_leaves_no_time_for_are_left_out,
    a_break_is_of_the_hold_that_was_seen_and_not_of_the_next_one_with_its_name,
    a_break_does_not_hit_a_later_hold_without_a_name,
    a_break_does_not_hit_a_hold_that_begins_while_it_is_under_way,
    a_break_of_a_client_that_is_the_next_holder_tells_it_both,
    a_holder_that_does_not_listen_is_shown_by_its_record,
);

const HOUR: Duration = Duration::from_secs(3600);

fn directory(processor: &Arc<dyn LockProcessor>) -> &dyn Directory {
    processor.directory().unwrap()
}

/// All locks of a list, and how many pages it has.
fn list(processor: &Arc<dyn LockProcessor>) -> (Vec<String>, usize) {
    let (mut keys, mut from, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = directory(processor).list(&KeyFilter::new(|_| true), from.as_deref(), LONG).unwrap();
        keys.extend(page.locks.into_iter().map(|(key, _)| key));
        pages += 1;
        from = page.next;
        if from.is_none() {
            return (keys, pages);
        }
    }
}

/// A key with more entries than a page, and locks before it and behind it.
fn a_list_shows_each_lock_once_whatever_else_is_in_the_store<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    assert_eq!(list(&processor), (Vec::new(), 1));
    for key in ["DLOCK_a", "DLOCK_b/d", "DLOCK_é", "DLOCK_z", "OTHER"] {
        store.overwrite(key, "somebody", Some(HOUR));
    }
    let of_a = store.lock("DLOCK_b").replace(".lock", "");
    (0..1100).for_each(|n| store.servers.put(&format!("{of_a}x{n}"), "no entry of a lock"));
    for other in [&of_a.replace("_b/", "_b"), &of_a.replace("_b", "_%"), &of_a.replace("_b", "_%62")] {
        store.servers.put(other, "no lock");
    }
    let (mut keys, pages) = list(&processor);
    keys.sort_unstable();
    assert_eq!(keys, ["DLOCK_a", "DLOCK_b/d", "DLOCK_z", "DLOCK_é"]);
    // Consul has no pages.
    assert!(if V::NAME == "etcd" { pages > 1 } else { pages == 1 }, "{pages}");
    store.overwrite("DLOCK_b", "somebody", Some(HOUR));
    let (mut keys, _) = list(&processor);
    keys.sort_unstable();
    assert_eq!(keys, ["DLOCK_a", "DLOCK_b", "DLOCK_b/d", "DLOCK_z", "DLOCK_é"]);
}

/// Whoever may write has put them there.
#[test]
fn etcd_lists_the_locks_behind_many_names_that_are_no_texts() {
    let store = Fresh::<Etcd>::start();
    let processor = store.processor();
    let locks = ["DLOCK_a", "DLOCK_z"];
    locks.iter().for_each(|key| store.overwrite(key, "somebody", Some(HOUR)));
    let of_a = store.lock("DLOCK_a").replace("/.lock", "").into_bytes();
    (0..2100).for_each(|n| store.servers.put_bytes(&[&of_a[..], b"\xff", n.to_string().as_bytes()].concat()));
    assert_eq!(list(&processor).0, locks);
}

fn a_place_that_no_page_has_told_is_refused<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    for from in ["", "0", "../", ".inbox/", "OTHER"] {
        let outcome = directory(&processor).list(&KeyFilter::new(|_| true), Some(from), LONG);
        assert!(matches!(outcome, Err(Error::InvalidConfig { .. })), "{from:?}: {outcome:?}");
    }
}

fn a_record_stays_while_its_client_lives_and_is_written_again_if_somebody_deletes_it<V: ConsensusStore>() {
    // The servers of this test alone: it counts what they write.
    let servers = V::start(1);
    let [processor, other] = [(); 2].map(|()| V::processor(&servers.url("a")));
    let put =
        |by: &Arc<dyn LockProcessor>, text: &str| directory(by).put_record("host-1-a", text, V::LEASE, LONG).unwrap();
    let read = || directory(&processor).records(&["host-1-a", "host-1"], LONG).unwrap();
    put(&processor, "pid=1");
    let index = servers.log_index();
    for _ in 0..6 {
        std::thread::sleep(V::LEASE / 2);
        put(&processor, "pid=1");
        assert_eq!(read(), [Some("pid=1".to_owned()), None]);
    }
    // A renewal is no write, but the servers write by themselves now and then.
    let rise = servers.log_index() - index;
    assert!(rise < 6, "{rise}");
    assert!(servers.delete("a/.client/host-1-a"));
    assert_eq!(read(), [None, None]);
    put(&processor, "pid=1");
    assert_eq!(read(), [Some("pid=1".to_owned()), None]);
    // The same client in another process, as a copy of it.
    put(&other, "pid=2");
    assert_eq!(read(), [Some("pid=2".to_owned()), None]);
    put(&processor, "pid=1");
    assert_eq!(read(), [Some("pid=1".to_owned()), None]);
    other.close();
    put(&processor, "pid=1");
    processor.close();
    assert_eq!(servers.list("a/"), [""; 0]);
}

/// A client may end without removing its record, as when the store does not answer.
fn a_record_goes_with_its_client_also_if_others_of_its_process_live<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    let put = |client| directory(&processor).put_record(client, "pid=1", V::LEASE, LONG).unwrap();
    let [ended, lives] = ["host-1-a", "host-1-b"];
    put(ended);
    eventually("its record has gone", || {
        put(lives);
        let found = directory(&processor).records(&[ended, lives], LONG).unwrap();
        assert!(found[1].is_some());
        std::thread::sleep(V::LEASE / 4);
        found[0].is_none()
    });
    // Each client removes its own.
    put(ended);
    directory(&processor).remove_record(ended, LONG).unwrap();
    assert_eq!(directory(&processor).records(&[ended, lives], LONG).unwrap(), [None, Some("pid=1".to_owned())]);
    directory(&processor).remove_record(lives, LONG).unwrap();
    assert_eq!(store.leftovers(), [""; 0]);
}

/// A description of many clients on a slow network shows the first of them.
fn records_that_a_limit_leaves_no_time_for_are_left_out<V: ConsensusStore>() {
    const SHORT: Duration = Duration::from_millis(500);
    let store = Fresh::<V>::start();
    let processor = store.processor();
    directory(&processor).put_record("host-1-a", "pid=1", LONG, LONG).unwrap();
    let clients = vec!["host-1-a"; 20_000];
    let found = directory(&processor).records(&clients, SHORT).unwrap();
    assert_eq!(found.len(), clients.len());
    let read = found.iter().take_while(|record| record.is_some()).count();
    assert!((1..clients.len()).contains(&read), "{read}");
    assert!(found[read..].iter().all(Option::is_none));
    // A limit that leaves no time at all is an error, as elsewhere.
    assert!(directory(&processor).records(&clients, Duration::ZERO).is_err());
    processor.close();
}

/// The text of another program, which may write the same again.
fn a_break_is_of_the_hold_that_was_seen_and_not_of_the_next_one_with_its_name<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    let order = Break::new("k", "somebody", "me-1", "it hangs");
    for _ in 0..3 {
        store.overwrite("k", "somebody", Some(LONG));
        assert_eq!(processor.break_hold(&order, LONG).unwrap(), BreakOutcome::Broken { next: None, waiting: 0 });
        assert_eq!(processor.break_hold(&order, LONG).unwrap(), BreakOutcome::NotHeldBy { holder: None });
    }
    let told = processor.broken("k", "somebody", LONG).unwrap().unwrap();
    assert_eq!((told.by.as_str(), told.reason.as_str()), ("me-1", "it hangs"));
    // Whoever gave the order may end.
    processor.close();
    let other = store.processor();
    assert!(other.broken("k", "somebody", LONG).unwrap().is_some());
}

/// As of `consul lock`, which writes no text: its session is its name.
fn a_break_does_not_hit_a_later_hold_without_a_name<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    let begins = || {
        store.servers.hold(&store.lock("k"), "", Some(HOUR));
        processor.inspect("k", LONG).unwrap().holder.unwrap()
    };
    let (seen, next) = (begins(), begins());
    assert!(!seen.is_empty() && seen != next, "{seen:?} {next:?}");
    let break_hold = |locker: &str| processor.break_hold(&Break::new("k", locker, "me-1", "it hangs"), LONG).unwrap();
    for other in [seen.as_str(), ""] {
        assert_eq!(break_hold(other), BreakOutcome::NotHeldBy { holder: Some(next.clone()) });
    }
    assert_eq!(break_hold(&next), BreakOutcome::Broken { next: None, waiting: 0 });
}

/// It has the same text as the one that was seen. It begins between the look and the transaction.
fn a_break_does_not_hit_a_hold_that_begins_while_it_is_under_way<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let counter = Counter::to(store.servers.address());
    let processor = store.counted(&counter);
    let (servers, path) = (Arc::clone(&store.servers), store.lock("k"));
    let begins = move || servers.hold(&path, "somebody", Some(HOUR));
    begins();
    counter.before(if V::NAME == "etcd" { "/v3/kv/txn HTTP" } else { "/v1/txn HTTP" }, begins);
    let outcome = processor.break_hold(&Break::new("k", "somebody", "me-1", "it hangs"), LONG).unwrap();
    assert_eq!(outcome, BreakOutcome::NotHeldBy { holder: Some("somebody".into()) });
    let found = store.servers.look_at(&store.lock("k"))();
    assert!(matches!(found, Some(Look::Held { .. })), "{found:?}");
}

/// Two lockers of one client, of which one holds and the other one waits. An inbox of etcd keeps one message of a transaction.
fn a_break_of_a_client_that_is_the_next_holder_tells_it_both<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let processor = store.processor();
    let claim = |n: u32| redis_dlock::port::Claim::new("k", "host-1-a", ["host-1-a-1", "host-1-a-2"][n as usize], LONG);
    let mut inbox = processor.queue().unwrap().open_inbox("host-1-a", LONG).unwrap();
    processor.acquire(&claim(0), LONG).unwrap();
    processor.join(&claim(1), LONG).unwrap();
    let order = Break::new("k", "host-1-a-1", "me-1", "it hangs");
    let next = Some("host-1-a-2".to_owned());
    assert_eq!(processor.break_hold(&order, LONG).unwrap(), BreakOutcome::Broken { next, waiting: 0 });
    let mut heard = BTreeSet::new();
    eventually("it has heard of both", || {
        if let Some(message) = inbox.next(Duration::from_millis(100)).unwrap() {
            heard.insert(format!("{message:?}").split([' ', '{']).next().unwrap().to_owned());
        }
        heard.contains("Broken") && heard.contains(if V::NAME == "etcd" { "Changed" } else { "Granted" })
    });
    processor.release(&claim(1), LONG).unwrap();
    processor.release(&claim(0), LONG).unwrap();
}

/// A client that does not listen is shown by its record, and nobody waits for its answer for ever.
fn a_holder_that_does_not_listen_is_shown_by_its_record<V: ConsensusStore>() {
    let store = Fresh::<V>::start();
    let generator = |record| DLockGenerator::builder().client_record(record).build(store.processor()).unwrap();
    let (holder, asker) = (generator(true), generator(false));
    let lock = holder.generate_with(DLockConfig::new("SEE", "x").with_lease(LONG)).unwrap();
    let guard = lock.lock().unwrap();
    eventually("it is described", || {
        let found = asker.describe("SEE", "x").unwrap().holder.unwrap();
        found.told.is_none() && found.client.is_some_and(|client| client.pid == Some(std::process::id()))
    });
    guard.unlock().unwrap();
    holder.close();
    assert_eq!(store.leftovers(), [""; 0]);
}
