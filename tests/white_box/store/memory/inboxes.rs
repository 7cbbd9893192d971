//! Unit tests of `src/store/memory/inboxes.rs`.

use super::*;

#[test]
fn a_client_is_what_stands_before_the_last_dash() {
    assert_eq!(client_of("host-7-ab-12"), Some("host-7-ab"));
    assert_eq!(client_of("jvm"), None);
}
