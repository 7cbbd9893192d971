//! What the Sentinels of a service say about its master, and which of it to believe.
//!
//! A Sentinel names an address and an epoch. A failover raises the epoch; `SENTINEL MASTER` shows the new epoch and the new address in one
//! answer. The Sentinels of a service learn of a failover one after another, so answers differ for up to a second.
//!
//! | answer | epoch | address | verdict |
//! |---|---|---|---|
//! | newer | higher than the best one | any | it becomes the best one |
//! | same | the best one's | the best one's | nothing changes |
//! | moved | the best one's | another one | ignored, unless a majority says the same |
//! | failing over | any | the old master's, while the Sentinel that leads a failover has not finished it | ignored if there is a best one; else it counts as an answer of the epoch before |
//! | stale | lower | any | ignored, unless a majority has gone back to the same |
//!
//! 1. *The best one never goes back* to a lower epoch. So a Sentinel that was cut off, and still names the old master, leads nobody there.
//!    Nor does the leader of a failover, which shows the new epoch beside the old address, with the flag `failover_in_progress`, for up to
//!    some seconds after the others know the new one.
//! 2. *Within an epoch, a majority decides.* A failover raises the epoch. Two addresses of one epoch come from an operator, who has used
//!    `SENTINEL REMOVE` and `MONITOR` on one Sentinel, or from a host name that not all Sentinels have resolved anew. When more than half of
//!    the configured Sentinels agree in their last answers on an address, it is the best one. So clients that run and clients that begin do
//!    not part, wherever a majority answers. A client that begins asks on while the Sentinels that it has heard disagree.
//! 3. *A majority may begin again.* After `SENTINEL REMOVE` and `MONITOR` the epochs begin at zero. When more than half of the configured
//!    Sentinels agree in their last answers on a lower epoch and its address, and each of them has told a higher epoch before, that is
//!    the best one. Sentinels that have not heard of a failover yet have never told a higher epoch, however many they are. Answers with the earlier,
//!    higher epochs do not count any more.
//! 4. *An address that turns out not to be a master's is rejected for a while.* A connect that finds a replica, or no server, rejects it. Then
//!    an address on which a majority of the configured Sentinels agrees is tried in its place, unless it is of an epoch before the one at
//!    which a master was last found. If there is none, and no majority says what was rejected, another answer of its epoch is tried, and
//!    becomes the best one if a master is there. Nothing less replaces it: the master of a minority may be the old one.
//!
//! Only the Sentinels of the URL have a vote. A learnt Sentinel may be one of them under another name, or be long gone.

use super::timing::REFUTED;
use std::time::Instant;

/// What a Sentinel says of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MasterReport {
    pub(super) epoch: u64,
    /// The host and the port of its address.
    pub(super) at: (String, u16),
}

#[derive(Debug, Default)]
pub(super) struct MasterView {
    best: Option<MasterReport>,
    /// What Sentinels said of higher epochs when a majority began again.
    outlived: Vec<MasterReport>,
    /// The epoch of the last answer at whose address a master was found.
    found_at: u64,
    /// How many Sentinels have a vote: the first ones.
    voters: usize,
    /// The last answer of each Sentinel with a vote, by its index, and the highest epoch that it has told.
    answers: Vec<(Option<MasterReport>, u64)>,
    /// The addresses at which no master was found, and when.
    refuted: Vec<((String, u16), Instant)>,
}

impl MasterView {
    /// The view of a service with this number of configured Sentinels, which have a vote each.
    pub(super) fn new(voters: usize) -> Self {
        Self { voters, answers: vec![(None, 0); voters], ..Self::default() }
    }

    /// Takes in the answer of a Sentinel; `None` if it does not answer, or does not know the service. `fails_over` is set while it leads a
    /// failover that is not finished.
    pub(super) fn hear(&mut self, sentinel: usize, report: Option<MasterReport>, fails_over: bool) {
        let mut report = report.filter(|_| !fails_over || self.best.is_none());
        if let Some(report) = report.as_mut().filter(|_| fails_over) {
            // Others will name the new master with this epoch.
            report.epoch = report.epoch.saturating_sub(1);
        }
        if let Some((last, highest)) = self.answers.get_mut(sentinel) {
            last.clone_from(&report);
            *highest = report.as_ref().map_or(0, |report| report.epoch).max(*highest);
        }
        let Some(report) = report else { return };
        if self.outlived.contains(&report) {
            return;
        }
        match &self.best {
            Some(best) if report.epoch < best.epoch => {
                if self.has_begun_again(&report) {
                    self.begin_again(report);
                }
            }
            Some(best) if report.epoch == best.epoch && !self.is_agreed(&report) => {}
            _ => self.best = Some(report),
        }
    }

    fn begin_again(&mut self, report: MasterReport) {
        self.outlived = self.last().filter(|last| last.epoch > report.epoch).cloned().collect();
        self.found_at = 0;
        self.answers.iter_mut().for_each(|(last, highest)| *highest = last.as_ref().map_or(0, |last| last.epoch));
        self.best = Some(report);
    }

    /// Whether no master was found there just now.
    pub(super) fn is_refuted(&self, report: &MasterReport, now: Instant) -> bool {
        let is_recent = |since: &Instant| now.saturating_duration_since(*since) < REFUTED;
        self.refuted.iter().any(|(place, since)| report.at == *place && is_recent(since))
    }

    /// Returns the answer to follow at this moment: a refuted one only if there is none that a majority gives in its place.
    pub(super) fn choice(&mut self, now: Instant) -> Option<&MasterReport> {
        self.refuted.retain(|(_, since)| now.saturating_duration_since(*since) < REFUTED);
        let is_refuted = |report: &MasterReport| self.is_refuted(report, now);
        match &self.best {
            Some(best) if is_refuted(best) => {
                let may_be = |report: &&MasterReport| {
                    report.epoch >= self.found_at && !is_refuted(report) && self.is_agreed(report)
                };
                let is_rival = |report: &&MasterReport| !is_refuted(report) && self.is_rival(report);
                let other = self.last().find(may_be).or_else(|| self.last().find(is_rival));
                other.or(self.best.as_ref())
            }
            best => best.as_ref(),
        }
    }

    /// Notes whether a master was found at an address.
    pub(super) fn tried(&mut self, at: (String, u16), found: bool, now: Instant) {
        self.refuted.retain(|(place, _)| *place != at);
        if !found {
            self.refuted.push((at, now));
            return;
        }
        if self.best.as_ref().is_some_and(|best| self.is_refuted(best, now)) {
            let rival = self.last().find(|last| last.at == at && self.is_rival(last)).cloned();
            self.best = rival.or(self.best.take());
        }
        if let Some(best) = &self.best
            && best.at == at
        {
            self.found_at = best.epoch;
        }
    }

    /// Whether voters name different addresses of the epoch of the best answer, and no majority has decided between them.
    pub(super) fn is_disputed(&self) -> bool {
        self.last().any(|last| self.is_rival(last))
    }

    /// The last answers of the voters.
    fn last(&self) -> impl Iterator<Item = &MasterReport> {
        self.answers.iter().filter_map(|(last, _)| last.as_ref())
    }

    /// Whether this is another address of the epoch of the best answer, on which no majority agrees.
    fn is_rival(&self, report: &MasterReport) -> bool {
        let differs = |best: &MasterReport| report.epoch == best.epoch && report.at != best.at;
        self.best.as_ref().is_some_and(|best| differs(best) && !self.is_agreed(best))
    }

    /// Whether more than half of the voters say exactly this.
    fn is_agreed(&self, report: &MasterReport) -> bool {
        2 * self.answers.iter().filter(|(last, _)| last.as_ref() == Some(report)).count() > self.voters
    }

    /// Whether more than half of the voters say exactly this, and have told a higher epoch before.
    fn has_begun_again(&self, report: &MasterReport) -> bool {
        let has =
            |(last, highest): &&(Option<MasterReport>, u64)| last.as_ref() == Some(report) && *highest > report.epoch;
        2 * self.answers.iter().filter(has).count() > self.voters
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/sentinel/view.rs"]
mod tests;
