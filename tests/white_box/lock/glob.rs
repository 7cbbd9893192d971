//! Unit tests of `src/lock/generator/glob.rs`.

use super::*;

#[test]
fn stars_stand_for_any_text() {
    let is_like = |pattern: &str, text: &str| matches(&pattern.chars().collect::<Vec<_>>(), text);
    for (pattern, text) in [
        ("*", ""),
        ("", ""),
        ("ORDER_*", "ORDER_"),
        ("ORDER_*", "ORDER_47*11"),
        ("*_47", "A_47_47"),
        ("a*b*c", "a_b_b_c"),
        ("?é?", "aéb"),
        ("a\\*", "a*"),
        ("\\", "\\"),
        ("**", "x"),
    ] {
        assert!(is_like(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in
        [("", "a"), ("a", ""), ("?", ""), ("a*b", "a"), ("a\\*", "ab"), ("*_47", "A_471"), ("ORDER_*", "ORDERS_1")]
    {
        assert!(!is_like(pattern, text), "{pattern} {text}");
    }
    assert!(!is_like(&"*a".repeat(1000), &"a".repeat(999)));
}
