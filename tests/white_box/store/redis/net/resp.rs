//! Unit tests of `src/store/redis/net/resp.rs`.

use super::*;
use crate::check::fuzz::trees::encode;
use proptest::prelude::*;

fn parsed(bytes: &[u8]) -> Option<Value> {
    ::redis::parse_redis_value(bytes).ok()
}

fn values() -> impl Strategy<Value = Value> {
    let error = |line: String| parsed(format!("-{line}\r\n").as_bytes()).expect("an error");
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        any::<i64>().prop_map(Value::Int),
        "[a-z ]{0,20}".prop_map(Value::SimpleString),
        "(ERR|NOSCRIPT|OOM)( [a-z]{1,9}){0,3}".prop_map(error),
        proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..40)
            .prop_map(Value::BulkString),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| proptest::collection::vec(inner, 0..5).prop_map(Value::Array))
}

proptest! {
    #[test]
    fn replies_are_read_as_the_parser_reads_them(value in values()) {
        let mut bytes = Vec::new();
        encode(&value, &mut bytes);
        prop_assert_eq!(parsed(&bytes), Some(value.clone()));
        prop_assert_eq!(Parser::default().next(&bytes), Ok(Some((value, bytes.len()))));
    }

    #[test]
    fn replies_are_read_however_the_bytes_are_cut(
        sent in proptest::collection::vec(values(), 1..6),
        cuts in proptest::collection::vec(1usize..9, 1..20),
    ) {
        let mut wire = Vec::new();
        sent.iter().for_each(|v| encode(v, &mut wire));
        let (mut reader, mut buffer, mut got) = (Parser::default(), Vec::new(), Vec::new());
        let (mut rest, mut cuts) = (wire.as_slice(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let n = cuts.next().expect("a cycle never ends").min(rest.len());
            buffer.extend_from_slice(&rest[..n]);
            rest = &rest[n..];
            while let Some((value, end)) = reader.next(&buffer).expect("well-formed") {
                prop_assert_eq!(parsed(&buffer[..end]), Some(value.clone()));
                got.push(value);
                buffer.drain(..end);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), typed in "[+$*:0-9\r\n-]{0,30}") {
        let _ = Parser::default().next(&bytes);
        if let Ok(Some((value, end))) = Parser::default().next(typed.as_bytes()) {
            prop_assert_eq!(Some(value), parsed(&typed.as_bytes()[..end]));
        }
    }
}

#[test]
fn what_is_no_resp2_is_refused() {
    for wire in [
        "HTTP/1.1 400\r\n",
        ":1x\r\n",
        "$-2\r\n",
        "$99999999999\r\n",
        "*99999999\r\n",
        "*-7\r\n",
        "$3\r\nabcde\r\n",
        "%1\r\n",
        ">2\r\n",
        "\r\n",
        "$\r\n",
    ] {
        assert!(Parser::default().next(wire.as_bytes()).is_err(), "{wire:?}");
    }
    for wire in [&b"+\xff\r\n"[..], b"-ERR \xff\r\n", b"*2\r\n:1\r\n+\xff\r\n"] {
        assert_eq!(Parser::default().next(wire), Err(NO_TEXT), "{wire:?}");
        assert_eq!(parsed(wire), None, "{wire:?}");
    }
    assert!(Parser::default().next("*1\r\n".repeat(MAX_DEPTH + 1).as_bytes()).is_err());
    assert!(Parser::default().next(&vec![b'+'; MAX_LINE + 2]).is_err());
}
