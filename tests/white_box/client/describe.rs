//! Unit tests of `src/client/describe.rs`.

use super::*;

#[test]
fn words_are_read_back_and_others_ignored() {
    let (asker, key) = ("host-1-ff".to_owned(), "DLOCK_a_ b  c é".to_owned());
    let words = Words::Inquiry(Inquiry { nonce: 7, asker: asker.clone(), key: key.clone() });
    assert_eq!(read(&inquiry(7, &asker, &key)), Some(words));
    assert_eq!(read(&answer(7, "")), Some(Words::Answer { nonce: 7, text: String::new() }));
    let greeting = || Greeting { nonce: 7, client: asker.clone(), proof: u64::MAX };
    assert_eq!(read(&greeting().to_line()), Some(Words::Greeting(greeting())));
    for other in [
        "",
        "describe",
        "describe 1",
        "describe 1 k",
        "describe x a k",
        "describe 1  k",
        "described 7",
        "here 7 c",
        "here 7 c -1",
        "x 7 y",
    ] {
        assert_eq!(read(other), None, "{other:?}");
    }
    assert_eq!(read(&inquiry(7, &"x".repeat(257), "k")), None);
}

#[test]
fn only_what_was_asked_is_heard_and_questions_are_bounded() {
    let inquiries = Describe::default();
    let asking = inquiries.begin(2);
    inquiries.hear(asking.nonce(1), "b".to_owned());
    inquiries.hear(asking.nonce(1), "again".to_owned());
    inquiries.hear(99, "nobody's".to_owned());
    assert_eq!(asking.answers.try_iter().collect::<Vec<_>>(), [(1, "b".to_owned())]);
    drop(asking);
    assert!(inquiries.0.lock().asked.is_empty());
    let ask = || Inquiry { nonce: 1, asker: "a".to_owned(), key: "k".to_owned() };
    assert_eq!((0..100).filter(|_| inquiries.note(ask())).count(), MOST_INQUIRIES);
    assert_eq!(inquiries.take().len(), MOST_INQUIRIES);
}
