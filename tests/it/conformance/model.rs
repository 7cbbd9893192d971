//! Random requests of three clients and a poller for one key. The store must answer them as the embedded store does, which runs the
//! specification of the protocol (`src/store/memory/spec`).

use super::suite::{Client, InboxReader, MemoryStore, RedisStore, Suite, Tenure};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use redis_dlock::Error;
use redis_dlock::processor::{
    AcquireOutcome, Break, BreakOutcome, ExtendOutcome, Gap, Grant, Limit, Message, Operations, Outcome, PollOutcome,
    ReleaseDelay, ReleaseOutcome, Request,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CASES: u32 = 250;
const CLIENTS: usize = 3;
/// The first clients listen; the last one has no inbox, so its waiters are dead.
const LISTENERS: usize = 2;
const JVM: &str = "jvm-1";
/// What the key contains while a release is delayed, before the locker.
const MARK: &str = "delayed ";
/// Longer than any case takes, and so short that no lease ends in one.
const LEASE: Duration = Duration::from_secs(100_000);
const GAP: Gap = Gap::new(Duration::from_secs(100), Duration::from_secs(200));
/// What may be denied during a step, during an acquire, and during an acquire of a free key. `SET` is not among them: a script also sets
/// the fence, when the clock has moved on. A Redis store may try an acquire without the script; it takes a free key and gives it back when
/// one of the other commands is denied.
const COMMANDS: [&str; 7] = ["INCR", "DEL", "PEXPIRE", "RPUSH", "LPUSH", "LPOP", "LREM"];
const QUEUEING: [&str; 3] = ["PEXPIRE", "RPUSH", "LREM"];
const QUEUEING_BEHIND: [&str; 2] = ["PEXPIRE", "RPUSH"];

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        client: usize,
        wait: bool,
    },
    Poll(Index),
    Extend(Index),
    Probe(Index),
    Release {
        tenure: Index,
        next: bool,
        gap: bool,
    },
    /// Ends a tenure whose key is to be kept from everybody for longer than the case takes.
    Delay(Index),
    /// An operator takes the key from this locker.
    Break(Index),
    /// What a JVM does that finds the key free.
    Take,
    /// A gap's length goes by.
    Pass,
    /// What an administrator does, and what the end of a lease looks like.
    Delete,
}

/// The command that is denied during a step.
type Denied = Option<&'static str>;

/// Steps with gaps, or steps during which a command is denied. (A gap that is over stays in a Redis queue until the next hand-over, which
/// can be denied.)
fn steps() -> impl Strategy<Value = Vec<(Step, Denied)>> {
    let denied = prop::option::weighted(0.3, select(&COMMANDS[..]));
    prop_oneof![
        prop::collection::vec((step(true), Just(None)), 1..60),
        prop::collection::vec((step(false), denied), 1..60),
    ]
}

fn step(gaps: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CLIENTS, prop::bool::weighted(0.8)).prop_map(|(client, wait)| Step::Acquire { client, wait }),
        3 => any::<Index>().prop_map(Step::Poll),
        1 => any::<Index>().prop_map(Step::Extend),
        1 => any::<Index>().prop_map(Step::Probe),
        4 => (any::<Index>(), any::<bool>(), any::<bool>())
            .prop_map(move |(tenure, next, gap)| Step::Release { tenure, next, gap: gap && gaps }),
        1 => any::<Index>().prop_map(Step::Delay),
        1 => any::<Index>().prop_map(Step::Break),
        1 => Just(Step::Take),
        1 => Just(Step::Pass),
        1 => Just(Step::Delete),
    ]
}

/// Whether the step is a request during which this command may be denied.
fn may_be_denied(step: &Step, command: &str, is_held: bool) -> bool {
    match step {
        Step::Acquire { .. } if !is_held => QUEUEING_BEHIND.contains(&command),
        Step::Acquire { .. } => QUEUEING.contains(&command),
        Step::Poll(_) | Step::Extend(_) | Step::Probe(_) | Step::Release { .. } | Step::Delay(_) | Step::Break(_) => {
            true
        }
        Step::Take | Step::Pass | Step::Delete => false,
    }
}

/// What a step did. Numbers and times differ between stores, so they are left out.
#[derive(Debug, PartialEq)]
enum Seen {
    Answered(Outcome),
    Broken(BreakOutcome),
    Denied,
    /// Of a poller and an administrator: whether there was what they wanted.
    Found(bool),
    Nothing,
}

/// A store that is asked, with everything that asks it.
struct Side<'s> {
    suite: &'s Suite,
    key: String,
    clients: Vec<Client<'s>>,
    ears: Vec<InboxReader>,
    /// With the place of its client.
    tenures: Vec<(usize, Tenure)>,
    last_number: u64,
}

impl<'s> Side<'s> {
    fn new(suite: &'s Suite, key: &str) -> Self {
        let clients: Vec<_> = (0..CLIENTS).map(|_| suite.client()).collect();
        let ears = clients[..LISTENERS].iter().map(Client::listen).collect();
        Self { suite, key: key.to_owned(), clients, ears, tenures: Vec::new(), last_number: 0 }
    }

    /// Makes a new tenure, and returns its place.
    fn tenure(&mut self, client: usize) -> usize {
        self.tenures.push((client, self.clients[client].tenure_with(&self.key, LEASE)));
        self.tenures.len() - 1
    }

    /// The tenure that a step is about. Half of the releases are the holder's, or random ones would hardly ever be.
    fn chosen(&self, step: &Step) -> Option<usize> {
        let holder = self.suite.holder(&self.key);
        let held = || self.tenures.iter().position(|(_, tenure)| Some(&tenure.locker) == holder.as_ref());
        match step {
            Step::Release { tenure, .. } | Step::Delay(tenure) | Step::Break(tenure)
                if tenure.index(2) == 0 && held().is_some() =>
            {
                held()
            }
            Step::Break(index)
            | Step::Delay(index)
            | Step::Poll(index)
            | Step::Extend(index)
            | Step::Probe(index)
            | Step::Release { tenure: index, .. } => {
                (!self.tenures.is_empty()).then(|| index.index(self.tenures.len()))
            }
            Step::Acquire { .. } | Step::Take | Step::Pass | Step::Delete => None,
        }
    }

    /// Does a step, about the tenure that was chosen for it, while a command is denied.
    fn play(&mut self, step: &Step, chosen: Option<usize>, denied: Denied) -> Seen {
        let Some(command) = denied else { return self.act(step, chosen) };
        self.suite.store().deny(&[command]);
        let seen = self.act(step, chosen);
        self.suite.store().deny(&[]);
        seen
    }

    fn act(&mut self, step: &Step, chosen: Option<usize>) -> Seen {
        let store = self.suite.store();
        let me = match (step, chosen) {
            (Step::Acquire { client, .. }, _) => self.tenure(*client),
            (Step::Take, _) => return Seen::Found(store.take(&self.key, JVM, LEASE)),
            (Step::Delete, _) => return Seen::Found(store.delete(&self.key)),
            (Step::Pass, _) => {
                store.pass_time_of_gaps(&self.key, GAP.length);
                return Seen::Nothing;
            }
            (_, Some(chosen)) => chosen,
            (_, None) => return Seen::Nothing,
        };
        let next = match step {
            Step::Release { next: true, .. } => Some(self.tenure(self.tenures[me].0)),
            _ => None,
        };
        let tenure = &self.tenures[me].1;
        if let Step::Break(_) = step {
            let order = Break::new(&self.key, &tenure.locker, "operator-1", "why");
            return match tenure.processor().break_hold(&order, LEASE) {
                Ok(outcome) => Seen::Broken(outcome),
                Err(Error::Denied { .. }) => Seen::Denied,
                Err(error) => panic!("{step:?}: {error}"),
            };
        }
        let (claim, next) = (tenure.claim(), next.map(|next| &self.tenures[next].1));
        let mark = format!("{MARK}{}", claim.locker);
        let request = match step {
            Step::Acquire { wait: true, .. } => Request::Join(claim),
            Step::Acquire { .. } => Request::Acquire(claim),
            Step::Poll(_) => Request::Poll(claim),
            Step::Extend(_) => Request::Extend(claim),
            Step::Probe(_) => Request::Probe(claim),
            Step::Delay(_) => Request::DelayRelease(claim, ReleaseDelay::new(&mark, LEASE)),
            Step::Release { gap, .. } => {
                let ends = claim.with_poller_gap(gap.then_some(GAP));
                next.map_or(Request::Release(ends), |next| Request::HandOver(ends, next.claim()))
            }
            Step::Break(_) | Step::Take | Step::Pass | Step::Delete => unreachable!("no request"),
        };
        let outcome = tenure.processor().run_one(request, Limit::Call(LEASE));
        match outcome {
            Ok(outcome) => Seen::Answered(self.comparable(outcome)),
            Err(Error::Denied { .. }) => Seen::Denied,
            Err(error) => panic!("{step:?}: {error}"),
        }
    }

    fn comparable(&mut self, mut outcome: Outcome) -> Outcome {
        match &mut outcome {
            Outcome::Acquire(AcquireOutcome::Acquired(grant))
            | Outcome::Poll(PollOutcome::Acquired(grant))
            | Outcome::Release(ReleaseOutcome::Passed(grant)) => self.granted(grant),
            Outcome::Acquire(AcquireOutcome::Busy(busy))
            | Outcome::Poll(PollOutcome::Waiting(busy))
            | Outcome::Release(ReleaseOutcome::Queued(busy)) => busy.remaining = None,
            Outcome::Extend(ExtendOutcome::Extended(extension)) => extension.numbers = None,
            _ => {}
        }
        outcome
    }

    /// Checks that the number rises, and leaves it out.
    fn granted(&mut self, grant: &mut Grant) {
        assert!(grant.number > self.last_number, "{grant:?} after {}", self.last_number);
        self.last_number = std::mem::take(&mut grant.number);
    }

    /// Hears the next message, if there must be one, or there is.
    fn hear(&mut self, client: usize, must: bool) -> Option<Message> {
        let mut message =
            if must { Some(self.ears[client].hear()) } else { self.ears[client].hear_within(Duration::ZERO) };
        if let Some(Message::Granted { grant, .. }) = &mut message {
            self.granted(grant);
        }
        message
    }

    /// Who holds the key, and how many wait.
    fn look(&self) -> (Option<String>, u64) {
        let found = self.suite.inspect(&self.key);
        (found.holder, found.waiting)
    }
}

pub(crate) fn random_requests_are_answered_as_by_the_embedded_store(store: RedisStore) {
    let suite = &Suite::on(store);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let keys = AtomicU64::new(0);
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let key = format!("k{}", keys.fetch_add(1, Ordering::Relaxed));
        // Its clients have the same names.
        let embedded = Suite::beside(suite, MemoryStore::start());
        play(Side::new(suite, &key), Side::new(&embedded, &key), &steps)?;
        suite.assert_nothing_is_left();
        embedded.assert_nothing_is_left();
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}

fn play(mut real: Side<'_>, mut embedded: Side<'_>, steps: &[(Step, Denied)]) -> Result<(), TestCaseError> {
    for (step, denied) in steps {
        let is_held = embedded.look().0.is_some();
        let denied = denied.filter(|command| may_be_denied(step, command, is_held));
        let chosen = embedded.chosen(step);
        let expected = embedded.play(step, chosen, denied);
        prop_assert_eq!(real.play(step, chosen, denied), expected, "at {:?}, without {:?}", step, denied);
        prop_assert_eq!(real.look(), embedded.look(), "after {:?}, without {:?}", step, denied);
        for client in 0..LISTENERS {
            while let Some(expected) = embedded.hear(client, false) {
                let heard = real.hear(client, true);
                if heard == Some(expected.clone()) {
                    continue;
                }
                // A store may give the key away before it looks at the asker, who then tells of itself if it is the first to.
                let (Step::Acquire { wait: true, .. }, Message::Granted { key, locker, mut grant }) = (step, expected)
                else {
                    return Err(TestCaseError::fail(format!("{heard:?} at {step:?}, without {denied:?}")));
                };
                grant.waiting -= 1;
                let is_first = grant.waiting == 0 && embedded.look().1 == 1;
                let contended = Message::Contended { key: key.clone(), locker: locker.clone() };
                prop_assert_eq!(heard, Some(Message::Granted { key, locker, grant }), "at {:?}", step);
                if is_first {
                    prop_assert_eq!(real.hear(client, true), Some(contended), "at {:?}", step);
                }
            }
        }
    }
    for ear in &mut real.ears {
        prop_assert_eq!(ear.hear_within(Duration::from_millis(1)), None);
    }
    for side in [&real, &embedded] {
        // What a gap, a JVM and a delayed release leave ends with time, which this spares; a last asker finds the key without a gap.
        side.suite.store().pass_time_of_gaps(&side.key, GAP.every);
        if side.look().0.is_some_and(|holder| holder == JVM || holder.starts_with(MARK)) {
            side.suite.store().delete(&side.key);
        }
        side.clients[0].tenure(&side.key).ask(false);
    }
    Ok(())
}
