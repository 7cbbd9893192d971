//! Unit tests of `src/fields.rs`.

use super::*;
use proptest::prelude::*;

#[test]
fn a_text_that_is_too_long_is_cut_and_says_so() {
    let mut fields = Fields::default();
    fields.put_text("why", Some(&"é\n".repeat(2000)), 4000);
    fields.put("late", Some(7));
    let line = fields.into_line();
    assert!(line.len() <= MOST && !line.contains('\n'), "{}", line.len());
    let (name, value) = read(&line).next().expect("a field");
    assert!(name == "why" && value.starts_with("é\\né\\n") && value.ends_with('…'), "{value}");
    assert_eq!(read(&"a=b ".repeat(1000)).count(), 0);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_as_one_line(first in ".{0,40}", second in "\\PC{0,40}") {
        let mut fields = Fields::default();
        fields.put_text("first", Some(&first), 600);
        fields.put("none", None::<u32>);
        fields.put("second", Some(&second));
        let line = fields.into_line();
        let read: Vec<_> = read(&line).collect();
        let shown = |text: &str| OneLine(text).to_string();
        prop_assert_eq!(read, [("first", shown(&first)), ("second", shown(&second))]);
    }

    #[test]
    fn anything_can_be_read(line in "(=|%|%[0-9a-f]{2}|[ -~]|\\PC|.){0,80}") {
        for (_, value) in read(&line) {
            prop_assert!(!value.contains(|c: char| c.is_control()), "{value:?}");
        }
    }
}
