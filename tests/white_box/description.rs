//! Unit tests of `src/description.rs`.

use super::*;
use crate::lock::Holder;

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

#[test]
fn a_mark_is_read_back_and_is_nobodys_locker() {
    let mark = DelayedRelease {
        locker: "web-1-7-c0ffee-12D500L".to_owned(),
        held_for: Duration::from_millis(1500),
        delay: Duration::from_secs(86_400),
        ended: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_700_000)),
        holder_name: Some("nightly 50%-7".to_owned()),
        reason: Some("for the books".to_owned()),
        program: Some("export".to_owned()),
        host: Some("web-1".to_owned()),
        pid: Some(7),
    };
    let text = mark.to_mark();
    assert_eq!(DelayedRelease::of_locker(&text).as_ref(), Some(&mark));
    assert!(text.len() <= fields::MOST && text.contains(' ') && !text.contains(|c: char| c.is_control()), "{text}");
    assert_eq!(crate::port::marks(&text), None, "{text}");
    assert_eq!(mark.ended_ago(Some(Duration::from_secs(86_000))), Some(Duration::from_secs(400)));
    assert_eq!(mark.ended_ago(Some(Duration::MAX)), Some(Duration::ZERO), "its key was given more time");
    let none = DelayedRelease { ended: None, ..DelayedRelease::default() };
    assert_eq!(none.ended_ago(None), None);

    let long = DelayedRelease {
        reason: Some(" ".repeat(9000)),
        holder_name: Some("-7\n".repeat(9000)),
        host: Some("é".repeat(9000)),
        ..mark
    };
    let text = long.to_mark();
    let read = DelayedRelease::of_locker(&text).expect("it is read");
    assert!(text.len() <= fields::MOST && crate::port::marks(&text).is_none(), "{text}");
    assert_eq!((read.locker, read.delay, read.pid), (long.locker, long.delay, long.pid));
}

#[test]
fn what_is_no_mark_is_none() {
    for text in
        ["", "web-1-7-c0ffee-12", "delayed-release", "delayed-release ", "delayed-release held=5", "10.0.0.5-17"]
    {
        assert_eq!(DelayedRelease::of_locker(text), None, "{text:?}");
    }
    let odd =
        DelayedRelease::of_locker("delayed-release held=-1 delay=x ended=99999999999999999999 locker=a%0ab pid=no z=1");
    let odd = odd.expect("it names a locker");
    assert_eq!(
        (odd.locker.as_str(), odd.held_for, odd.delay, odd.ended),
        ("a\\nb", Duration::ZERO, Duration::ZERO, None)
    );
}

#[test]
fn who_holds_a_lock_is_one_part_of_a_line() {
    let locker = "web-1-7-c0ffee-12".to_owned();
    let bare = Party { locker: locker.clone(), is_local: false, client: None, told: None };
    assert_eq!(bare.to_string(), r#""web-1-7-c0ffee-12""#);
    let client = ClientRecord {
        program: Some("export".to_owned()),
        pid: Some(7),
        host: Some("web-1".to_owned()),
        user: Some("orders".to_owned()),
        ..ClientRecord::default()
    };
    let held_for = Some(Duration::from_millis(93_784_999));
    let told =
        Told { held_for, first_waits_for: Some(Duration::ZERO), reason: Some("a\nb".to_owned()), ..Told::default() };
    let holder = Party { client: Some(client), told: Some(told), ..bare.clone() };
    assert_eq!(holder.to_string(), r#""web-1-7-c0ffee-12": export (pid 7) on web-1, for 1day 2h 3m 4s (a\nb)"#);
    let told = Told { first_waits_for: Some(Duration::from_millis(9_050)), ..Told::default() };
    let waits = Party { client: Some(ClientRecord::default()), told: Some(told), ..bare };
    assert_eq!(waits.to_string(), r#""web-1-7-c0ffee-12": ? (pid ?) on ?, waiting for 9s 50ms"#);

    let held = Holder { locker: locker.clone(), remaining: Some(Duration::from_secs(9)), is_local: true };
    assert_eq!((held.to_string(), held.delayed_release()), (format!("{locker:?}"), None));
    let ended = DelayedRelease {
        locker,
        holder_name: Some("nightly".to_owned()),
        reason: Some("for the books".to_owned()),
        program: Some("export".to_owned()),
        host: Some("web-1".to_owned()),
        pid: Some(7),
        ..DelayedRelease::default()
    };
    assert_eq!(ended.to_string(), "export (pid 7) on web-1, nightly, in 0s (for the books)");
    let kept = Holder { locker: ended.to_mark(), ..held };
    assert_eq!(kept.to_string(), format!("nobody: held last by {ended}"));
    assert_eq!(kept.delayed_release(), Some(ended));
}
