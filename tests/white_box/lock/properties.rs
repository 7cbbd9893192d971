//! Unit tests of `src/lock/properties.rs`.

use super::*;
use proptest::prelude::*;

fn ms(leases: &Leases, lock_type: &str) -> Option<u128> {
    leases.get(lock_type).map(Duration::as_millis)
}

#[test]
fn the_jvms_own_file_is_read() {
    let leases = parse("CUSTOMER_LOCK=1000", "config").expect("valid");
    assert_eq!(ms(&leases, "CUSTOMER_LOCK"), Some(1000));
    assert_eq!(leases.len(), 1);
}

#[test]
fn the_syntax_is_javas() {
    let text = "# a comment\r\n ! another\n\n  A : 100\nB 200\nC\\ D=300\nE=\\\n   4\\\n   00\n\\u0046\\==500 \nA=150";
    let leases = parse(text, "config").expect("valid");
    for (lock_type, lease) in [("A", 150), ("B", 200), ("C D", 300), ("E", 400), ("F=", 500)] {
        assert_eq!(ms(&leases, lock_type), Some(lease), "{lock_type}");
    }
    assert_eq!(leases.len(), 5);
}

#[test]
fn wrong_lines_are_named() {
    for (line, part) in [
        ("A=", "not a whole number"),
        ("A", "not a whole number"),
        ("A=1s", "1s"),
        ("A=-5", "negative"),
        ("A=0", "20 ms"),
        ("A=19", "20 ms"),
        ("A=2147483648", "2147483647"),
        ("A=99999999999999999999", "not a whole number"),
        ("=100", "type is missing"),
        ("A\\u00zz=100", "hex"),
    ] {
        let error = parse(&format!("# first\nOK=100\n{line}\n"), "my.properties").expect_err(line).to_string();
        for part in [part, "my.properties", "line 3", "properties"] {
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("/no/such.properties")).expect_err("missing").to_string();
    assert!(error.contains("/no/such.properties"), "{error}");
}

#[test]
fn a_byte_order_mark_belongs_to_no_type() {
    let leases = parse("\u{feff}ORDER=1000\nUSER=2000\n", "config").expect("valid");
    assert_eq!((ms(&leases, "ORDER"), ms(&leases, "USER")), (Some(1000), Some(2000)));
}

/// A character of a lock type as Java may write it.
fn written(c: char, as_hex: bool) -> String {
    match c {
        '\0'..='\u{ffff}' if as_hex => format!("\\u{:04x}", u32::from(c)),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        ' ' | '=' | ':' | '#' | '!' | '\\' => format!("\\{c}"),
        _ => c.to_string(),
    }
}

proptest! {
    #[test]
    fn what_is_written_as_java_writes_it_is_read_back(
        lines in proptest::collection::vec(
            ("([ =:#!\\\\\t\n\r\u{c}A-Z]|.){1,8}", 20u64..=2_147_483_647, 0usize..5, any::<bool>()),
            0..6,
        ),
    ) {
        let (mut text, mut expected) = (String::from("! a comment\n"), Leases::new());
        for (name, lease, separator, as_hex) in lines {
            text.extend(name.chars().map(|c| written(c, as_hex)));
            text += ["=", ":", " ", "\t= ", "\\\n  = "][separator];
            text += &format!("{lease}\n");
            expected.insert(name, Duration::from_millis(lease));
        }
        prop_assert_eq!(parse(&text, "any").expect("well-formed"), expected);
    }
}
