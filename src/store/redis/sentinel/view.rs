//! What the Sentinels of a service say about its master, and which of it to believe.
//!
//! A Sentinel names an address and an epoch. A failover raises the epoch; `SENTINEL MASTER` shows the new epoch and the new address in one
//! answer. The Sentinels of a service learn of a failover one after another, so answers differ for up to a second.
//!
//! | answer | epoch | address | verdict |
//! |---|---|---|---|
//! | newer | higher than the best one | any | it becomes the best one |
//! | same | the best one's | the best one's | nothing changes |
//! | moved | the best one's | another one, never left in this epoch | it becomes the best one |
//! | gone back | the best one's | one that was left in this epoch | ignored |
//! | failing over | any | the old master's, while the Sentinel that leads a failover has not finished it | ignored, if there is a best one |
//! | stale | lower | any | ignored, unless a majority has gone back to the same |
//!
//! 1. *The best one never goes back*: neither to a lower epoch nor, within an epoch, to an address that was left. So a Sentinel that was
//!    cut off, and still names the old master, leads nobody there. Nor does the leader of a failover, which shows the new epoch beside the
//!    old address, with the flag `failover_in_progress`, for up to some seconds after the others know the new one.
//! 2. *A majority may begin again.* After `SENTINEL REMOVE` and `MONITOR` the epochs begin at zero. When more than half of the configured
//!    Sentinels agree in their last answers on a lower epoch and its address, and each of them has told a higher epoch before, that is
//!    the best one. Sentinels that have only not heard of a failover yet have never told a higher epoch, however many they are. What
//!    the others go on saying, of the epochs before, counts no more.
//! 3. *A server that is no master is not believed in.* A connect that finds a replica, or nobody, refutes the address for a moment. Then
//!    an address on which a majority of the configured Sentinels agrees is tried in its place, unless it is of an epoch before the one at
//!    which a master was last found. Nothing less replaces it: the master of a minority may be the old one.
//!
//! Only the Sentinels of the URL have a vote. The learnt ones may be others by other names, or be long gone.

use super::timing::REFUTED;
use std::time::Instant;

/// How many addresses of an epoch are remembered as left: one that lies may tell a new one each time.
const MOST_LEFT: usize = 16;

/// What a Sentinel says of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Told {
    fn is_at(&self, place: &(String, u16)) -> bool {
        self.host == place.0 && self.port == place.1
    }

    fn place(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct View {
    best: Option<Told>,
    /// The addresses that were left in the epoch of the best answer.
    left: Vec<(String, u16)>,
    /// What Sentinels said of higher epochs when a majority began again.
    outlived: Vec<Told>,
    /// The epoch of the last answer at whose address a master was found.
    found_at: u64,
    /// How many Sentinels have a vote: the first ones.
    voters: usize,
    /// The last answer of each known Sentinel, by its index, and the highest epoch that it has told.
    answers: Vec<(Option<Told>, u64)>,
    /// The addresses at which no master was found, and when.
    refuted: Vec<((String, u16), Instant)>,
}

impl View {
    /// The view of a service with so many configured Sentinels, which have a vote each.
    pub(super) fn new(voters: usize) -> Self {
        Self { voters, answers: vec![(None, 0); voters], ..Self::default() }
    }

    /// Takes in the answer of a Sentinel; `None` if it does not answer, or does not know the service. `fails_over` is set while it leads a
    /// failover that is not finished.
    pub(super) fn hear(&mut self, sentinel: usize, told: Option<Told>, fails_over: bool) {
        let told = told.filter(|_| !fails_over || self.best.is_none());
        if let Some((last, highest)) = self.answers.get_mut(sentinel) {
            last.clone_from(&told);
            *highest = told.as_ref().map_or(0, |told| told.epoch).max(*highest);
        }
        let Some(told) = told else { return };
        if self.outlived.contains(&told) {
            return;
        }
        match &self.best {
            Some(best) if told.epoch < best.epoch => {
                if self.has_begun_again(&told) {
                    self.begin_again(told);
                }
            }
            Some(best) if told.epoch == best.epoch => {
                if !best.is_at(&told.place()) && !self.left.iter().any(|left| told.is_at(left)) {
                    self.left.truncate(MOST_LEFT - 1);
                    self.left.insert(0, best.place());
                    self.best = Some(told);
                }
            }
            _ => self.begin(told),
        }
    }

    fn begin(&mut self, told: Told) {
        self.best = Some(told);
        self.left.clear();
    }

    fn begin_again(&mut self, told: Told) {
        let higher = self.answers.iter().filter_map(|(last, _)| last.clone()).filter(|last| last.epoch > told.epoch);
        self.outlived = higher.collect();
        self.found_at = 0;
        self.answers.iter_mut().for_each(|(last, highest)| *highest = last.as_ref().map_or(0, |last| last.epoch));
        self.begin(told);
    }

    /// Whether no master was found there just now.
    pub(super) fn is_refuted(&self, told: &Told, now: Instant) -> bool {
        let is_recent = |since: &Instant| now.saturating_duration_since(*since) < REFUTED;
        self.refuted.iter().any(|(place, since)| told.is_at(place) && is_recent(since))
    }

    /// Returns the answer to follow at this moment: a refuted one only if there is none that a majority gives in its place.
    pub(super) fn choice(&mut self, now: Instant) -> Option<&Told> {
        self.refuted.retain(|(_, since)| now.saturating_duration_since(*since) < REFUTED);
        let is_refuted = |told: &Told| self.is_refuted(told, now);
        match &self.best {
            Some(best) if is_refuted(best) => {
                let last = self.answers.iter().filter_map(|(last, _)| last.as_ref());
                let may_be = |told: &&Told| told.epoch >= self.found_at && !is_refuted(told) && self.is_agreed(told);
                let other = last.into_iter().find(may_be);
                other.or(self.best.as_ref())
            }
            best => best.as_ref(),
        }
    }

    /// Notes whether a master was found at an address.
    pub(super) fn tried(&mut self, host: &str, port: u16, found: bool, now: Instant) {
        self.refuted.retain(|(place, _)| (place.0.as_str(), place.1) != (host, port));
        if let Some(best) = &self.best
            && found
            && (best.host.as_str(), best.port) == (host, port)
        {
            self.found_at = best.epoch;
        }
        if !found {
            self.refuted.push(((host.to_owned(), port), now));
        }
    }

    /// Whether more than half of the voters say exactly this.
    fn is_agreed(&self, told: &Told) -> bool {
        2 * self.answers.iter().filter(|(last, _)| last.as_ref() == Some(told)).count() > self.voters
    }

    /// Whether more than half of the voters say exactly this, and have told a higher epoch before.
    fn has_begun_again(&self, told: &Told) -> bool {
        let has = |(last, highest): &&(Option<Told>, u64)| last.as_ref() == Some(told) && *highest > told.epoch;
        2 * self.answers.iter().filter(has).count() > self.voters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(epoch: u64, host: &str) -> Option<Told> {
        Some(Told { epoch, host: host.to_owned(), port: 6379 })
    }

    struct Seen(View, Instant);

    impl Seen {
        fn by(sentinels: usize) -> Self {
            Self(View::new(sentinels), Instant::now())
        }

        fn hear(&mut self, sentinel: usize, epoch: u64, host: &str) -> String {
            self.0.hear(sentinel, told(epoch, host), false);
            self.choice()
        }

        fn choice(&mut self) -> String {
            self.0.choice(self.1).map_or_else(String::new, |told| told.host.clone())
        }

        fn refute(&mut self, host: &str) -> String {
            self.0.tried(host, 6379, false, self.1);
            self.choice()
        }
    }

    #[test]
    fn a_higher_epoch_is_followed_and_a_lower_one_is_not() {
        let mut seen = Seen::by(3);
        assert_eq!(seen.choice(), "");
        assert_eq!(seen.hear(0, 3, "a"), "a");
        assert_eq!(seen.hear(1, 4, "b"), "b");
        assert_eq!(seen.hear(0, 3, "a"), "b");
        assert_eq!(seen.hear(2, 2, "c"), "b");
    }

    #[test]
    fn within_an_epoch_an_address_that_was_left_is_not_taken_again() {
        let mut seen = Seen::by(3);
        assert_eq!(seen.hear(0, 3, "a"), "a");
        assert_eq!(seen.hear(1, 3, "b"), "b");
        assert_eq!(seen.hear(0, 3, "a"), "b");
        assert_eq!(seen.hear(2, 3, "c"), "c");
        assert_eq!(seen.hear(1, 3, "b"), "c");
        // The next failover may lead there again.
        assert_eq!(seen.hear(1, 4, "b"), "b");
    }

    #[test]
    fn a_majority_of_all_known_ones_begins_again_at_a_lower_epoch() {
        let all_at_seven = |sentinels| {
            let mut seen = Seen::by(sentinels);
            (0..sentinels).for_each(|sentinel| assert_eq!(seen.hear(sentinel, 7, "a"), "a"));
            seen
        };
        let mut seen = all_at_seven(3);
        assert_eq!(seen.hear(0, 0, "b"), "a");
        assert_eq!(seen.hear(1, 0, "c"), "a");
        assert_eq!(seen.hear(2, 0, "b"), "b");
        // The next failover counts from there.
        assert_eq!(seen.hear(1, 1, "d"), "d");
        assert_eq!(seen.hear(0, 0, "b"), "d");
        assert_eq!(seen.hear(2, 0, "b"), "d");
        // Two of four are no majority.
        let mut seen = all_at_seven(4);
        assert_eq!(seen.hear(0, 0, "b"), "a");
        assert_eq!(seen.hear(1, 0, "b"), "a");
        assert_eq!(seen.hear(3, 0, "b"), "b");
        // One that was cut off meanwhile, and still says what was said before, leads nobody back.
        let mut seen = all_at_seven(3);
        assert_eq!(seen.hear(0, 0, "b"), "a");
        assert_eq!(seen.hear(1, 0, "b"), "b");
        assert_eq!(seen.hear(2, 7, "a"), "b");
        assert_eq!(seen.hear(2, 8, "c"), "c");
        // An answer that was taken back counts no more.
        let mut seen = all_at_seven(3);
        assert_eq!(seen.hear(0, 0, "b"), "a");
        seen.0.hear(0, None, false);
        assert_eq!(seen.hear(1, 0, "b"), "a");
    }

    #[test]
    fn those_who_have_not_heard_of_a_failover_lead_nobody_back_however_many_they_are() {
        let mut seen = Seen::by(3);
        (0..3).for_each(|sentinel| assert_eq!(seen.hear(sentinel, 4, "a"), "a"));
        assert_eq!(seen.hear(1, 5, "b"), "b");
        for _ in 0..3 {
            assert_eq!(seen.hear(0, 4, "a"), "b");
            assert_eq!(seen.hear(2, 4, "a"), "b");
        }
    }

    #[test]
    fn a_lie_is_not_followed_for_long() {
        let mut seen = Seen::by(3);
        assert_eq!(seen.hear(0, 3, "a"), "a");
        assert_eq!(seen.hear(1, 3, "a"), "a");
        assert_eq!(seen.hear(2, 9, "liar"), "liar");
        assert_eq!(seen.refute("liar"), "a");
        // Neither is believed: there is nothing better than the best answer.
        assert_eq!(seen.refute("a"), "liar");
        // A moment later it may have become a master.
        seen.1 += REFUTED;
        assert_eq!(seen.choice(), "liar");
        assert_eq!(seen.refute("liar"), "a");
        seen.0.tried("liar", 6379, true, seen.1);
        assert_eq!(seen.choice(), "liar");
    }

    #[test]
    fn a_minority_leads_nobody_back_to_an_old_master() {
        let mut seen = Seen::by(3);
        assert_eq!(seen.hear(0, 3, "old"), "old");
        assert_eq!(seen.hear(1, 4, "new"), "new");
        assert_eq!(seen.refute("new"), "new");
    }

    #[test]
    fn the_leader_of_a_failover_leads_nobody_back() {
        let mut seen = Seen::by(3);
        (0..3).for_each(|sentinel| assert_eq!(seen.hear(sentinel, 4, "old"), "old"));
        assert_eq!(seen.hear(1, 5, "new"), "new");
        // It shows the new epoch and the old address until it has finished.
        for _ in 0..3 {
            seen.0.hear(0, told(5, "old"), true);
            assert_eq!(seen.choice(), "new");
        }
        assert_eq!(seen.hear(0, 5, "new"), "new");
        // Who knows nothing better begins with it.
        let mut seen = Seen::by(3);
        seen.0.hear(0, told(5, "old"), true);
        assert_eq!(seen.choice(), "old");
        assert_eq!(seen.hear(1, 5, "new"), "new");
        seen.0.hear(0, told(5, "old"), true);
        assert_eq!(seen.choice(), "new");
    }

    #[test]
    fn one_connect_that_fails_leads_nobody_back_from_a_master_that_was_found() {
        let mut seen = Seen::by(3);
        (0..3).for_each(|sentinel| assert_eq!(seen.hear(sentinel, 4, "old"), "old"));
        assert_eq!(seen.hear(1, 5, "new"), "new");
        seen.0.tried("new", 6379, true, seen.1);
        assert_eq!(seen.refute("new"), "new");
        // The others follow, and are asked again.
        assert_eq!(seen.hear(0, 5, "new"), "new");
        assert_eq!(seen.hear(2, 5, "new"), "new");
    }

    #[test]
    fn learnt_ones_are_heard_and_have_no_vote() {
        let mut seen = Seen::by(1);
        assert_eq!(seen.hear(0, 4, "a"), "a");
        assert_eq!(seen.hear(7, 5, "b"), "b");
        for sentinel in 8..20 {
            assert_eq!(seen.hear(sentinel, 6, "c"), "c");
            assert_eq!(seen.hear(sentinel, 0, "d"), "c");
        }
    }

    mod any {
        use super::*;
        use proptest::prelude::*;

        proptest! {
            /// Without a majority for less, the epoch never falls, and within an epoch no address comes back.
            #[test]
            fn the_best_answer_goes_forward(steps in prop::collection::vec((0_usize..5, 0_u64..4, 0_u16..3), 1..40)) {
                let mut view = View::new(5);
                let mut past: Vec<Told> = Vec::new();
                for (sentinel, epoch, port) in steps {
                    let told = Told { epoch, host: "h".to_owned(), port };
                    view.hear(sentinel, Some(told.clone()), false);
                    let best = view.best.clone().expect("an answer was heard");
                    if past.last() == Some(&best) {
                        continue;
                    }
                    prop_assert_eq!(&best, &told);
                    if let Some(before) = past.last() {
                        if best.epoch < before.epoch {
                            prop_assert!(view.is_agreed(&best));
                            past.clear();
                        } else {
                            prop_assert!(!past.contains(&best));
                        }
                    }
                    past.push(best);
                }
            }
        }
    }
}
