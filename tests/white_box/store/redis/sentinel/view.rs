//! Unit tests of `src/store/redis/sentinel/view.rs`.

use super::*;

fn report(epoch: u64, host: &str) -> Option<MasterReport> {
    Some(MasterReport { epoch, at: (host.to_owned(), 6379) })
}

struct Seen(MasterView, Instant);

impl Seen {
    fn by(sentinels: usize) -> Self {
        Self(MasterView::new(sentinels), Instant::now())
    }

    /// So many that name this host.
    fn agreed(sentinels: usize, epoch: u64, host: &str) -> Self {
        let mut seen = Self::by(sentinels);
        (0..sentinels).for_each(|sentinel| assert_eq!(seen.hear(sentinel, epoch, host), host));
        seen
    }

    fn hear(&mut self, sentinel: usize, epoch: u64, host: &str) -> String {
        self.0.hear(sentinel, report(epoch, host), false);
        self.choice()
    }

    /// Hears of each sentinel's epoch and host, and checks which host is chosen then.
    fn hears<const N: usize>(&mut self, steps: [(usize, u64, &str, &str); N]) {
        for (sentinel, epoch, host, choice) in steps {
            assert_eq!(self.hear(sentinel, epoch, host), choice, "{sentinel}, {epoch}, {host}");
        }
    }

    fn choice(&mut self) -> String {
        self.0.choice(self.1).map_or_else(String::new, |report| report.at.0.clone())
    }

    fn refute(&mut self, host: &str) -> String {
        self.0.tried((host.to_owned(), 6379), false, self.1);
        self.choice()
    }
}

#[test]
fn a_higher_epoch_is_followed_and_a_lower_one_is_not() {
    let mut seen = Seen::by(3);
    assert_eq!(seen.choice(), "");
    seen.hears([(0, 3, "a", "a"), (1, 4, "b", "b"), (0, 3, "a", "b"), (2, 2, "c", "b")]);
}

#[test]
fn within_an_epoch_a_majority_decides_and_may_change_its_mind() {
    let mut seen = Seen::by(3);
    seen.hears([
        (0, 3, "a", "a"),
        (1, 3, "b", "a"),
        (5, 3, "b", "a"),
        (2, 3, "b", "b"),
        (1, 3, "a", "a"),
        (0, 3, "b", "b"),
    ]);
    // The next failover needs no majority.
    assert_eq!(seen.hear(1, 4, "a"), "a");
}

/// As after a host name that only one of them has resolved anew.
#[test]
fn without_a_majority_another_address_of_the_epoch_replaces_one_without_a_master() {
    for voters in [2, 3] {
        let mut seen = Seen::by(voters);
        seen.hears([(0, 5, "old", "old"), (1, 5, "new", "old")]);
        assert!(seen.0.is_disputed());
        assert_eq!(seen.refute("old"), "new");
        seen.0.tried(("new".to_owned(), 6379), true, seen.1);
        seen.1 += REFUTED;
        assert_eq!(seen.hear(0, 5, "old"), "new", "a master was found there");
    }
    // What a majority says is not left for less.
    let mut seen = Seen::by(3);
    seen.hears([(0, 5, "a", "a"), (1, 5, "a", "a"), (2, 5, "b", "a")]);
    assert!(!seen.0.is_disputed());
    assert_eq!(seen.refute("a"), "a");
    seen.0.tried(("b".to_owned(), 6379), true, seen.1);
    assert_eq!(seen.choice(), "a");
}

#[test]
fn a_majority_of_all_known_ones_begins_again_at_a_lower_epoch() {
    let mut seen = Seen::agreed(3, 7, "a");
    seen.hears([(0, 0, "b", "a"), (1, 0, "c", "a"), (2, 0, "b", "b")]);
    // The next failover counts from there.
    seen.hears([(1, 1, "d", "d"), (0, 0, "b", "d"), (2, 0, "b", "d")]);
    // Two of four are no majority.
    let mut seen = Seen::agreed(4, 7, "a");
    seen.hears([(0, 0, "b", "a"), (1, 0, "b", "a"), (3, 0, "b", "b")]);
    // One that was cut off meanwhile, and still says what was said before, leads nobody back.
    let mut seen = Seen::agreed(3, 7, "a");
    seen.hears([(0, 0, "b", "a"), (1, 0, "b", "b"), (2, 7, "a", "b"), (2, 8, "c", "c")]);
    // An answer that was taken back counts no more.
    let mut seen = Seen::agreed(3, 7, "a");
    assert_eq!(seen.hear(0, 0, "b"), "a");
    seen.0.hear(0, None, false);
    assert_eq!(seen.hear(1, 0, "b"), "a");
}

#[test]
fn those_who_have_not_heard_of_a_failover_lead_nobody_back_however_many_they_are() {
    let mut seen = Seen::agreed(3, 4, "a");
    assert_eq!(seen.hear(1, 5, "b"), "b");
    for _ in 0..3 {
        seen.hears([(0, 4, "a", "b"), (2, 4, "a", "b")]);
    }
}

#[test]
fn a_lie_is_not_followed_for_long() {
    let mut seen = Seen::by(3);
    seen.hears([(0, 3, "a", "a"), (1, 3, "a", "a"), (2, 9, "liar", "liar")]);
    assert_eq!(seen.refute("liar"), "a");
    // Neither is believed: there is nothing better than the best answer.
    assert_eq!(seen.refute("a"), "liar");
    // A moment later it may have become a master.
    seen.1 += REFUTED;
    assert_eq!(seen.choice(), "liar");
    assert_eq!(seen.refute("liar"), "a");
    seen.0.tried(("liar".to_owned(), 6379), true, seen.1);
    assert_eq!(seen.choice(), "liar");
}

#[test]
fn a_minority_leads_nobody_back_to_an_old_master() {
    let mut seen = Seen::by(3);
    seen.hears([(0, 3, "old", "old"), (1, 4, "new", "new")]);
    assert_eq!(seen.refute("new"), "new");
}

#[test]
fn the_leader_of_a_failover_leads_nobody_back() {
    let mut seen = Seen::agreed(3, 4, "old");
    assert_eq!(seen.hear(1, 5, "new"), "new");
    // It shows the new epoch and the old address until it has finished.
    for _ in 0..3 {
        seen.0.hear(0, report(5, "old"), true);
        assert_eq!(seen.choice(), "new");
    }
    assert_eq!(seen.hear(0, 5, "new"), "new");
    // Who knows nothing better begins with it.
    let mut seen = Seen::by(3);
    seen.0.hear(0, report(5, "old"), true);
    assert_eq!(seen.choice(), "old");
    assert_eq!(seen.hear(1, 5, "new"), "new");
    seen.0.hear(0, report(5, "old"), true);
    assert_eq!(seen.choice(), "new");
}

#[test]
fn one_connect_that_fails_leads_nobody_back_from_a_master_that_was_found() {
    let mut seen = Seen::agreed(3, 4, "old");
    assert_eq!(seen.hear(1, 5, "new"), "new");
    seen.0.tried(("new".to_owned(), 6379), true, seen.1);
    assert_eq!(seen.refute("new"), "new");
    // The others follow, and are asked again.
    seen.hears([(0, 5, "new", "new"), (2, 5, "new", "new")]);
}

#[test]
fn learnt_ones_are_heard_and_have_no_vote() {
    let mut seen = Seen::by(1);
    seen.hears([(0, 4, "a", "a"), (7, 5, "b", "b")]);
    for sentinel in 8..20 {
        seen.hears([(sentinel, 6, "c", "c"), (sentinel, 0, "d", "c")]);
    }
}

mod any {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Without a majority, the epoch never falls, and within an epoch the address never changes.
        #[test]
        fn the_best_answer_goes_forward(steps in prop::collection::vec((0_usize..5, 0_u64..4, 0_u16..3), 1..40)) {
            let mut view = MasterView::new(5);
            let mut past: Option<MasterReport> = None;
            for (sentinel, epoch, port) in steps {
                let report = MasterReport { epoch, at: ("h".to_owned(), port) };
                view.hear(sentinel, Some(report.clone()), false);
                let best = view.best.clone().expect("an answer was heard");
                if past.as_ref() == Some(&best) {
                    continue;
                }
                prop_assert_eq!(&best, &report);
                if past.as_ref().is_some_and(|before| best.epoch <= before.epoch) {
                    prop_assert!(view.is_agreed(&best));
                }
                past = Some(best);
            }
        }
    }
}
