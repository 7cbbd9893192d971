//! What a fuzz target is, and the properties that several targets check.

/// One reader and its properties.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Panics when a property does not hold.
    pub(crate) check: fn(&[u8]),
}

/// Checks that a text may be shown in the log or on an operator's terminal: it is one line, read in one direction.
pub(crate) fn assert_plain(shown: &str) {
    let bad = |c: char| {
        c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!shown.contains(bad), "not plain: {shown:?}");
}

/// Checks that both ways of showing an error are plain.
pub(crate) fn assert_plain_error(error: &crate::Error) {
    assert_plain(&error.to_string());
    assert_plain(&format!("{error:?}"));
}
