//! What the thread `dlock-watch` does in a round.

use super::Sentinels;
use super::timing::{ROUND, WHOLE};
use super::watch::{Watch, Watched};
use crate::log;
use crate::store::redis::net::endpoint::Finder;
use std::time::Instant;

impl Watched for Sentinels {
    fn watch(&self) -> &Watch {
        &self.watch
    }

    fn round(&self) {
        for (index, sentinel) in self.all().iter().enumerate() {
            if self.watch.is_stopped() {
                return;
            }
            if !sentinel.is_cooling_down(Instant::now())
                && let Err(error) = self.hear(index, sentinel, Instant::now() + WHOLE)
            {
                log::debug!(TRANSPORT, "the Sentinel at {}: {error}", sentinel.address);
            }
        }
        let Some(choice) = self.choice() else { return };
        let is_in_trouble = self.watch.is_in_trouble();
        // Compare with the server of the last connection, whoever made it.
        let last = self.servers.servers.last_place();
        if (last.as_ref() == Some(&choice.place) && !is_in_trouble) || self.watch.is_stopped() {
            return;
        }
        let reached =
            self.servers.connect_to(&choice, Instant::now() + self.servers.connect_timeout.min(ROUND), &|| {
                self.is_choice(&choice)
            });
        self.note(&choice, reached.is_ok());
        match reached {
            Ok(_) if last.as_ref() != Some(&choice.place) => {
                log::info!(TRANSPORT, "{}: the master is {choice} now", self.service);
            }
            Ok(_) => {}
            Err(error) => log::debug!(TRANSPORT, "{}: cannot reach {choice} yet: {error}", self.service),
        }
    }

    fn ask_for_more(&self) -> bool {
        let report = self
            .all()
            .iter()
            .filter(|sentinel| !sentinel.is_cooling_down(Instant::now()) && !self.watch.is_stopped())
            .find_map(|sentinel| sentinel.others(self.dialer(), &self.name, Instant::now() + WHOLE).ok());
        let has_answered = report.is_some();
        if let Some(report) = report {
            self.learn(report);
        }
        has_answered
    }
}
