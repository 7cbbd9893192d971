//! What others can do to us by words: the names that a program gives to its locks, and what strangers write into the store, publish or answer.

mod foreign;
mod monitor;
mod names;
mod secrets;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Words that would do harm where a name is put together with others unescaped.
const WORDS: &[&str] = &[
    " ",
    "  ",
    "\n",
    "\r\n",
    "\0",
    "\"",
    "'",
    "\\",
    "{",
    "}",
    "{}",
    "{0}",
    "*",
    "?",
    "[a-z]",
    "-",
    "L",
    "_",
    ":",
    "é",
    "\u{3000}",
    "\u{202e}",
    "\u{10ffff}",
    "DLOCK_",
    "DLOCK_SECURITY_bystander",
    "DLOCK:1:fence",
    "DLOCK:1:{0}:queue:DLOCK_a_b",
    ":queue:",
    ":gapped:",
    "DLOCK:1:inbox:",
    "granted 1 0 h-1-ff-2 DLOCK_a_b",
    " contended h-1-ff-2L ",
    "\r\n*1\r\n$8\r\nFLUSHALL\r\n",
    "'; return redis.call('FLUSHALL') --",
    "]]",
    "%d+",
    "$(reboot)",
    "2026-01-01 WARN forged",
];

/// Any text, or one made from words like these, up to very long ones: a lock's name may consist of three, and has less than 16 KiB.
fn text() -> impl Strategy<Value = String> {
    let words = proptest::collection::vec(
        prop_oneof![4 => proptest::sample::select(WORDS).prop_map(str::to_owned), 1 => ".{0,3}"],
        0..6,
    );
    prop_oneof![
        3 => words.prop_map(|words| words.concat()),
        2 => any::<String>(),
        1 => (any::<char>(), 1usize..1_300).prop_map(|(c, n)| c.to_string().repeat(n)),
    ]
}

/// Any bytes, or one of these texts as bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        text().prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..60),
        ("[a-z0-9 .-]{0,20}", any::<u8>()).prop_map(|(text, b)| [text.as_bytes(), &[b], b"-7L"].concat()),
    ]
}

/// Runs a property; one that fails tells its smallest case.
fn check<S: Strategy>(cases: u32, strategy: &S, property: impl Fn(S::Value))
where
    S::Value: std::fmt::Debug,
{
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() });
    match runner.run(strategy, |case| {
        property(case);
        Ok(())
    }) {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => panic!("{why}\nsmallest case: {case:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// One line, that a terminal shows as it is.
fn is_plain(shown: &str) -> bool {
    !shown.contains(|c: char| {
        c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    })
}
