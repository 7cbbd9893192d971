//! Records what the threads of an execution believed, and checks whether all of them could be right.
//!
//! No thread can check all guards at one moment. But a guard that was once found invalid stays invalid. So a guard that says "valid"
//! was valid from its beginning until it was asked, and the times for which this is known of two guards must not overlap.

use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
struct Book {
    time: u64,
    holds: Vec<Belief>,
    faults: Vec<String>,
}

/// One hold.
#[derive(Debug)]
struct Belief {
    who: String,
    token: u64,
    /// When its guard was first and last asked and said "valid".
    valid: Option<(u64, u64)>,
    doubted: bool,
    /// Whether the lock was taken away from it by force: its guard may say "valid" for a while, whoever is inside.
    broken: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Book>>);

/// The entry of a hold.
pub(crate) struct Entry {
    journal: Journal,
    place: usize,
    is_broken: Box<dyn Fn() -> bool>,
}

impl Journal {
    /// Records that a property does not hold.
    pub(crate) fn object(&self, what: impl Into<String>) {
        self.with(|book| book.faults.push(what.into()));
    }

    pub(crate) fn objections(&self) -> Vec<String> {
        self.with(|book| std::mem::take(&mut book.faults))
    }

    /// Enters a hold that begins.
    /// Shows: G7.
    pub(crate) fn enter(&self, who: impl Into<String>, token: u64) -> Entry {
        let place = self.with(|book| {
            let who = who.into();
            if let Some(other) = book.holds.iter().find(|other| other.token == token) {
                book.faults.push(format!("{who} and {} have the same token {token}", other.who));
            }
            book.holds.push(Belief { who, token, valid: None, doubted: false, broken: false });
            book.holds.len() - 1
        });
        Entry { journal: self.clone(), place, is_broken: Box::new(|| false) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Book) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Entry {
    /// Sets by what to know that the hold was broken. From then on what its guard says is not compared with what others say.
    pub(crate) fn excused_if(self, is_broken: impl Fn() -> bool + 'static) -> Self {
        Self { is_broken: Box::new(is_broken), ..self }
    }

    /// Asks whether the hold is valid, and checks whether the answer is possible. The answer counts for the moment *before* the
    /// question, because it may be out of date when it arrives.
    pub(crate) fn ask(&self, is_valid: impl FnOnce() -> bool) -> bool {
        self.ask_with(|| is_valid().then_some(())).is_some()
    }

    /// Does as [`ask`](Self::ask) for a call whose success says that the hold was valid when the call began.
    pub(crate) fn ask_with<R>(&self, question: impl FnOnce() -> Option<R>) -> Option<R> {
        let at = self.journal.with(|book| {
            book.time += 1;
            book.time
        });
        let answer = question();
        let broken = (self.is_broken)();
        self.journal.with(|book| {
            book.holds[self.place].broken |= broken;
            book.take(self.place, at, answer.is_some());
        });
        answer
    }
}

impl Book {
    /// Shows: G1, G6, G7.
    fn take(&mut self, place: usize, at: u64, valid: bool) {
        let (who, token) = (self.holds[place].who.clone(), self.holds[place].token);
        if !valid {
            self.holds[place].doubted = true;
            return;
        }
        if self.holds[place].doubted {
            self.faults.push(format!("{who} was invalid, and is valid again"));
        }
        if self.holds[place].broken {
            return;
        }
        let first = self.holds[place].valid.map_or(at, |(first, _)| first);
        let is_new = self.holds[place].valid.is_none();
        self.holds[place].valid = Some((first, at));
        for (_, other) in self.holds.iter().enumerate().filter(|(other, _)| *other != place) {
            let Some((others_first, others_last)) = other.valid else { continue };
            if first <= others_last && others_first <= at {
                self.faults.push(format!("{who} and {} are inside at once", other.who));
            }
            if is_new && others_first < first && other.token >= token {
                self.faults.push(format!("{who} has token {token} after {} of {}", other.token, other.who));
            }
        }
    }
}

#[test]
fn two_who_are_valid_at_once_are_seen() {
    let journal = Journal::default();
    let (a, b) = (journal.enter("a", 1), journal.enter("b", 2));
    assert!(a.ask(|| true) && b.ask(|| true));
    assert!(journal.objections().is_empty(), "one may have ended before the other began");
    assert!(a.ask(|| true));
    assert_eq!(journal.objections(), ["a and b are inside at once"]);
}

#[test]
fn tokens_that_fall_or_repeat_are_seen() {
    let journal = Journal::default();
    let (a, b, c) = (journal.enter("a", 2), journal.enter("b", 1), journal.enter("c", 2));
    assert!(a.ask(|| true) && b.ask(|| true) && !c.ask(|| false) && c.ask(|| true));
    assert_eq!(
        journal.objections(),
        [
            "c and a have the same token 2",
            "b has token 1 after 2 of a",
            "c was invalid, and is valid again",
            "c has token 2 after 2 of a",
        ]
    );
}
