//! Unit tests of `src/error.rs`.

use super::*;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

#[test]
fn a_wrong_password_gets_advice_about_passwords() {
    for words in [
        "WRONGPASS invalid username-password pair",
        "NOAUTH HELLO must be called",
        "403: ACL not found",
        "etcd wants to know its users",
    ] {
        let text = Error::denied(words).to_string();
        assert!(text.contains("password") && !text.contains("rights"), "{text}");
    }
    assert!(Error::denied("NOPERM this user").to_string().contains("rights"));
}

#[test]
fn an_error_goes_everywhere_and_a_copy_has_the_same_cause() {
    fn goes_everywhere<E: StdError + Clone + Send + Sync + UnwindSafe + RefUnwindSafe + 'static>(_: &E) {}
    let cause = io::Error::other("the cable");
    let error = Error::backend_caused_by(BackendFailure::NotExecuted, format!("no answer: {cause}"), cause);
    goes_everywhere(&error);
    assert_eq!(error.to_string(), "the lock store failed (command not executed): no answer: the cable");
    let copy = error.clone();
    let [a, b] = [&error, &copy].map(|error| error.source().and_then(|source| source.downcast_ref::<io::Error>()));
    assert!(a.is_some() && a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref));
    assert!(Error::backend(BackendFailure::Unknown, "no words").source().is_none());
}
