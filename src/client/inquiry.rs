//! What clients say to one another about keys, as data: the questions that this client is to answer, and those that it has asked.

use crate::sync::Mutex;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::collections::VecDeque;

/// How many questions wait for their answers. Further ones are dropped: their askers do not wait for long.
const MOST_INQUIRIES: usize = 64;

/// The longest name of an asker.
const LONGEST_ASKER: usize = 256;

/// A question of another client about a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inquiry {
    pub(crate) nonce: u64,
    pub(crate) asker: String,
    pub(crate) key: String,
}

/// An answer: the client that was asked, by its place among those that were asked together, and its words.
pub(crate) type Answer = (usize, String);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Inquiries {
    waiting: Mutex<VecDeque<Inquiry>>,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// The last number of a question. Numbers begin anew with each client, whose inbox is its own.
    last: u64,
    open: HashMap<u64, (usize, Sender<Answer>)>,
}

/// Words of another client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Inquiry(Inquiry),
    Answer {
        nonce: u64,
        text: String,
    },
    /// A client says that it hears its inbox.
    Greeting {
        nonce: u64,
        client: String,
    },
}

/// Reads the words of another client. `None` if they are no words of this version.
pub(crate) fn read(text: &str) -> Option<Words> {
    let (verb, rest) = text.split_once(' ')?;
    let (nonce, rest) = rest.split_once(' ')?;
    let nonce = nonce.parse().ok()?;
    match verb {
        "describe" => {
            let (asker, key) = rest.split_once(' ')?;
            let is_named = !asker.is_empty() && asker.len() <= LONGEST_ASKER;
            is_named.then(|| Words::Inquiry(Inquiry { nonce, asker: asker.to_owned(), key: key.to_owned() }))
        }
        "described" => Some(Words::Answer { nonce, text: rest.to_owned() }),
        "here" => Some(Words::Greeting { nonce, client: rest.to_owned() }),
        _ => None,
    }
}

/// Writes a question.
pub(crate) fn inquiry(nonce: u64, asker: &str, key: &str) -> String {
    format!("describe {nonce} {asker} {key}")
}

/// Writes an answer.
pub(crate) fn answer(nonce: u64, line: &str) -> String {
    format!("described {nonce} {line}")
}

/// Writes a greeting.
pub(crate) fn greeting(nonce: u64, client: &str) -> String {
    format!("here {nonce} {client}")
}

impl Inquiries {
    /// Notes a question. Returns `false` if it is dropped, because too many wait.
    pub(crate) fn note(&self, inquiry: Inquiry) -> bool {
        let mut waiting = self.waiting.lock();
        let has_room = waiting.len() < MOST_INQUIRIES;
        if has_room {
            waiting.push_back(inquiry);
        }
        has_room
    }

    /// Takes the questions that wait.
    pub(crate) fn take(&self) -> VecDeque<Inquiry> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Begins to ask so many clients together.
    pub(crate) fn begin(&self, count: usize) -> Asking<'_> {
        let (sender, answers) = bounded(count.max(1));
        let mut asked = self.asked.lock();
        let first = asked.last + 1;
        asked.last += count as u64;
        for place in 0..count {
            asked.open.insert(first + place as u64, (place, sender.clone()));
        }
        Asking { inquiries: self, first, count, answers }
    }

    /// Notes an answer. One to a question that nobody has asked, or asks no more, is ignored.
    pub(crate) fn hear(&self, nonce: u64, text: String) {
        if let Some((place, sender)) = self.asked.lock().open.remove(&nonce) {
            // There is room for each, and the receiver may be gone.
            let _ = sender.try_send((place, text));
        }
    }
}

/// Questions that were asked together. Dropping it ends the wait for their answers.
#[derive(Debug)]
pub(crate) struct Asking<'t> {
    inquiries: &'t Inquiries,
    first: u64,
    count: usize,
    pub(crate) answers: Receiver<Answer>,
}

impl Asking<'_> {
    /// The number of the question to the client at this place.
    pub(crate) fn nonce(&self, place: usize) -> u64 {
        self.first + place as u64
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asked = self.inquiries.asked.lock();
        for place in 0..self.count {
            asked.open.remove(&(self.first + place as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_others_ignored() {
        let (asker, key) = ("host-1-ff".to_owned(), "DLOCK_a_ b  c é".to_owned());
        let words = Words::Inquiry(Inquiry { nonce: 7, asker: asker.clone(), key: key.clone() });
        assert_eq!(read(&inquiry(7, &asker, &key)), Some(words));
        assert_eq!(read(&answer(7, "")), Some(Words::Answer { nonce: 7, text: String::new() }));
        assert_eq!(read(&greeting(7, &asker)), Some(Words::Greeting { nonce: 7, client: asker.clone() }));
        for other in
            ["", "describe", "describe 1", "describe 1 k", "describe x a k", "describe 1  k", "described 7", "x 7 y"]
        {
            assert_eq!(read(other), None, "{other:?}");
        }
        assert_eq!(read(&inquiry(7, &"x".repeat(257), "k")), None);
    }

    #[test]
    fn only_what_was_asked_is_heard_and_questions_are_bounded() {
        let inquiries = Inquiries::default();
        let asking = inquiries.begin(2);
        inquiries.hear(asking.nonce(1), "b".to_owned());
        inquiries.hear(asking.nonce(1), "again".to_owned());
        inquiries.hear(99, "nobody's".to_owned());
        assert_eq!(asking.answers.try_iter().collect::<Vec<_>>(), [(1, "b".to_owned())]);
        drop(asking);
        assert!(inquiries.asked.lock().open.is_empty());
        let ask = || Inquiry { nonce: 1, asker: "a".to_owned(), key: "k".to_owned() };
        assert_eq!((0..100).filter(|_| inquiries.note(ask())).count(), MOST_INQUIRIES);
        assert_eq!(inquiries.take().len(), MOST_INQUIRIES);
    }
}
