//! What is due when: an ordered map from moments to items, with at most one entry for each id.

use crate::clock::Moment;
use std::collections::{BTreeMap, HashMap};

/// Items ordered by the moment when they are due, and indexed by their id.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    due: BTreeMap<(Moment, u64), T>,
    places: HashMap<u64, Moment>,
}

impl<T> Schedule<T> {
    pub(crate) fn new() -> Self {
        Self { due: BTreeMap::new(), places: HashMap::new() }
    }

    /// Adds an item, or moves it.
    pub(crate) fn put(&mut self, id: u64, at: Moment, item: T) {
        if let Some(old) = self.places.insert(id, at) {
            self.due.remove(&(old, id));
        }
        self.due.insert((at, id), item);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let at = self.places.remove(&id)?;
        self.due.remove(&(at, id))
    }

    /// Removes and returns the items that are due, earliest first, but at most `most`.
    pub(crate) fn take_due(&mut self, now: Moment, most: usize) -> Vec<T> {
        let mut taken = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            let (at, id) = *entry.key();
            if at > now || taken.len() >= most {
                break;
            }
            taken.push(entry.remove());
            self.places.remove(&id);
        }
        taken
    }

    /// Makes every item due now at the latest.
    pub(crate) fn hasten(&mut self, now: Moment) {
        let later = self.due.split_off(&(now, u64::MAX));
        for ((_, id), item) in later {
            self.put(id, now, item);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// Returns when the next item is due, or [`Moment::NEVER`] if there is none.
    pub(crate) fn next(&self) -> Moment {
        self.due.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_once_in_order() {
        let at = Moment::from_nanos;
        let mut schedule = Schedule::new();
        schedule.put(1, at(30), "c");
        schedule.put(2, at(10), "a");
        schedule.put(3, at(20), "b");
        schedule.put(1, at(5), "c");
        schedule.put(4, at(20), "d");
        assert_eq!(schedule.remove(3), Some("b"));
        assert_eq!(schedule.remove(3), None);
        assert_eq!(schedule.next(), at(5));
        assert_eq!(schedule.take_due(at(19), 1), ["c"]);
        assert_eq!(schedule.take_due(at(19), 9), ["a"]);
        assert_eq!(schedule.len(), 1);
        assert_eq!(schedule.take_due(at(20), 9), ["d"]);
        assert!(schedule.due.is_empty() && schedule.places.is_empty());
        assert_eq!(schedule.next(), Moment::NEVER);
    }
}
