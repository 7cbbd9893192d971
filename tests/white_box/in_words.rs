//! Unit tests of `src/in_words.rs`.

use super::*;
use crate::description::{ClientRecord, Told};
use crate::lock::Holder;

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
