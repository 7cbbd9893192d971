//! The places to which a connect has failed, and when the next connect to each is tried. All slots of a place share this, however many wait
//! there.

use super::super::timing::{ASK_FOR_MAP, SUBSCRIBE_AGAIN};
use crate::backoff::Cooldown;
use crate::error::Error;
use crate::store::redis::net::address::Place;
use std::collections::HashMap;
use std::time::Instant;

#[derive(Default)]
pub(super) struct PlaceCooldowns {
    /// The places that are cooling down, each with the error of its last connect.
    places: HashMap<Place, (Cooldown<Instant>, Error)>,
    /// When to ask for a map again.
    ask_at: Option<Instant>,
}

impl PlaceCooldowns {
    /// Notes that a place could not be reached. Returns until when it is cooling down.
    pub(super) fn fail(&mut self, place: Place, error: Error, now: Instant) -> Instant {
        // The pauses of a place go on growing. If they began again with each failure, a dead node would be tried a hundred times a second.
        let mut cooldown = self.places.get(&place).map_or_else(Cooldown::default, |(known, _)| *known);
        let until = cooldown.fail(now, SUBSCRIBE_AGAIN);
        self.places.insert(place, (cooldown, error));
        until
    }

    /// Notes that a place answers, or that another server may do so there.
    pub(super) fn end(&mut self, place: &Place) {
        self.places.remove(place);
    }

    /// Returns until when a place is cooling down, and the error of its last connect. `None` if it is not cooling down.
    pub(super) fn of(&self, place: &Place, now: Instant) -> Option<(Instant, Error)> {
        let (cooldown, error) = self.places.get(place)?;
        Some((cooldown.lasts_until(now)?, error.clone()))
    }

    /// Keeps only what is known of these places.
    pub(super) fn keep(&mut self, places: &[Place]) {
        // A place that has left the map is not tried again, so it would keep the client asking for maps for ever.
        self.places.retain(|place, _| places.contains(place));
    }

    /// Returns when a new map is to be asked for; `None` if no place is cooling down, and no place keeps the client waiting. Calls `ask` if it is
    /// time.
    pub(super) fn ask_for_map(&mut self, now: Instant, is_kept_waiting: bool, ask: impl FnOnce()) -> Option<Instant> {
        // While something is wrong, the map is asked for again and again, at a fixed pause: the map decides when the slots are heard again, and a
        // waiter keeps its place in a queue for a second only. After a time with nothing wrong, the next trouble asks at once.
        if self.places.is_empty() && !is_kept_waiting {
            self.ask_at = None;
        } else if self.ask_at.is_none_or(|at| at <= now) {
            self.ask_at = Some(now + ASK_FOR_MAP);
            ask();
        }
        self.ask_at
    }
}

#[cfg(test)]
#[path = "../../../../../tests/white_box/store/redis/cluster/inbox/cooldowns.rs"]
mod tests;
