//! Unit tests of `src/description.rs`.

use super::*;

#[test]
fn a_record_is_read_back() {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_700_000);
    let record = ClientRecord::of_this_process("web-1", started, &[DESCRIBES]);
    let read = ClientRecord::of_line(&record.to_line());
    assert_eq!(read, record);
    assert!(read.describes() && !ClientRecord::of_line("pid=x features=described,de").describes());
}

#[test]
fn what_a_later_version_says_more_is_ignored() {
    let record = ClientRecord::of_line("pid=7 zone=eu-1 host=web-1 colour=");
    assert_eq!((record.pid, record.host.as_deref()), (Some(7), Some("web-1")));
    assert_eq!(ClientRecord { pid: None, host: None, ..record }, ClientRecord::default());
    let (locker, told) = Told::of_line("priority=high locker=l-1 count=2 zone=eu-1");
    assert_eq!((locker.as_deref(), told), (Some("l-1"), Told { hold_count: 2, ..Told::default() }));
}

#[test]
fn an_answer_is_read_back_and_a_long_reason_leaves_the_rest() {
    let told = Told {
        thread: Some("a thread 50%".to_owned()),
        thread_id: Some(7),
        reason: Some("x".repeat(5000)),
        held_for: Some(Duration::from_millis(1)),
        hold_count: 2,
        token: Some(u64::MAX),
        lease_left: Some(Duration::ZERO),
        lingering: true,
        waiting_threads: 3,
        first_waits_for: Some(Duration::from_secs(9)),
        waiters: vec![waits("a, thread", 1), waits("", 0), waits("z", u64::MAX)],
    };
    let line = told.to_line(Some("l-1"));
    assert!(line.len() <= fields::MOST);
    let (locker, read) = Told::of_line(&line);
    assert_eq!(locker.as_deref(), Some("l-1"));
    assert!(read.reason.as_ref().is_some_and(|reason| reason.starts_with("xxx")));
    assert_eq!(Told { reason: None, ..read }, Told { reason: None, ..told });
    assert_eq!(Told::of_line("count=-1 held=never lingering=2 x"), (None, Told::default()));
}

fn waits(name: &str, ms: u64) -> WaitingThread {
    let thread = Some(name).filter(|name| !name.is_empty()).map(str::to_owned);
    WaitingThread { thread, thread_id: ms.checked_add(1), waits_for: Duration::from_millis(ms) }
}

#[test]
fn an_answer_names_the_first_waiting_threads_that_it_has_room_for() {
    for (length, reason, least) in [(1, 0, MOST_WAITERS), (12, 200, MOST_WAITERS), (5000, 5000, 5)] {
        let waiters: Vec<_> = (0..100).map(|n| waits(&"é".repeat(length), n)).collect();
        let told = Told { waiters, waiting_threads: 100, reason: Some("r".repeat(reason)), ..Told::default() };
        let line = told.to_line(Some("host-1-ff-7"));
        assert!(line.len() <= fields::MOST, "{}", line.len());
        let read = Told::of_line(&line).1;
        assert!((least..=MOST_WAITERS).contains(&read.waiters.len()), "{length}: {}", read.waiters.len());
        assert_eq!(read.waiting_threads, 100);
        for (n, (read, waits)) in read.waiters.iter().zip(&told.waiters).enumerate() {
            assert_eq!((read.thread_id, read.waits_for), (waits.thread_id, waits.waits_for), "{n}");
            assert!(read.thread.as_ref().is_some_and(|name| name.starts_with('é') && name.len() <= 64), "{n}");
        }
    }
    // What others have written.
    let odd = "waiter=1,2,a waiter= waiter=x waiter=1,x,a waiter=,7, waiter=1,2,a,b";
    assert_eq!(Told::of_line(odd).1.waiters.iter().map(|w| w.waits_for.as_millis()).collect::<Vec<_>>(), [2, 7, 2]);
    assert_eq!(Told::of_line(&"waiter=1,2,a ".repeat(60)).1.waiters.len(), MOST_WAITERS);
}
