//! Unit tests of `src/store/redis/script/reply.rs`.

use super::*;
use crate::port::Claim;
use proptest::prelude::*;

#[test]
fn shapes_that_no_script_has_are_errors() {
    use Value::{Int, Nil, Okay};
    let string = || Value::BulkString(b"h-1".to_vec());
    for reply in [
        Nil,
        Okay,
        Value::Array(vec![]),
        Int(-1),
        Value::Array(vec![Int(9)]),
        Value::Array(vec![Int(1), Int(-5), Int(0)]),
        Value::Array(vec![Int(0), Nil, Int(5)]),
        Value::Array(vec![Int(0), string(), Nil]),
        Value::Array(vec![Int(1), Int(5), Int(0), Int(0)]),
        Int(9_007_199_254_740_992),
    ] {
        assert_eq!(acquire(&reply), Err(Unexpected), "{reply:?}");
    }
    assert_eq!(extend(&Value::Array(vec![Int(1), Int(0), Int(7), Int(6)])), Err(Unexpected));
    assert_eq!(poll(&Value::Array(vec![Int(1), Int(i64::MAX), Int(0)])), Err(Unexpected));
    let request = Request::Probe(Claim::new("k", "l", "l-1", Duration::ZERO));
    let error = outcome(&request, &Value::Array(vec![Int(4), string(), Nil])).expect_err("unknown");
    assert!(error.to_string().contains("[integer, string, nil]"), "{error}");
    assert!(matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. }));
}

#[test]
fn foreign_holders_are_shown_as_they_are() {
    let holder = Value::BulkString(b"\xff 1".to_vec());
    let reply = Value::Array(vec![Value::Int(0), holder, Value::Int(-1)]);
    let want = Busy::new("\\xff 1", None);
    assert_eq!(acquire(&reply), Ok(AcquireOutcome::Busy(want)));
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn shapes_that_no_break_has_are_errors() {
    let array = Value::Array;
    let read = |reply| break_outcome(&array(reply));
    let broken = |next: Option<&str>, waiting| BreakOutcome::Broken { next: next.map(str::to_owned), waiting };
    assert_eq!(read(vec![Value::Int(1), bulk("b-1"), Value::Int(2)]), Ok(broken(Some("b-1"), 2)));
    assert_eq!(read(vec![Value::Int(1), Value::Nil, Value::Int(0)]), Ok(broken(None, 0)));
    let other = BreakOutcome::NotHeldBy { holder: Some("c-1".to_owned()) };
    assert_eq!(read(vec![Value::Int(0), bulk("c-1")]), Ok(other));
    assert_eq!(read(vec![Value::Int(0), Value::Nil]), Ok(BreakOutcome::NotHeldBy { holder: None }));
    for reply in [vec![], vec![Value::Int(1)], vec![Value::Int(2), Value::Nil], vec![Value::Nil, Value::Nil]] {
        assert_eq!(read(reply.clone()), Err(Unexpected), "{reply:?}");
    }
    assert_eq!(read(vec![Value::Int(1), Value::Nil, Value::Int(-1)]), Err(Unexpected));
    assert!(super::broken(&Value::Int(7)).is_err());
}

proptest! {
    #[test]
    fn whatever_stands_there_is_on_one_line(bytes: Vec<u8>) {
        let Broken { by, reason } = read_words(&bytes);
        prop_assert!(!(by + &reason).contains(|c: char| c.is_control()));
    }
}
