//! Random requests of three clients and a poller for one key, compared with a model of a few lines: a holder, a queue, and
//! the gap that is left for the poller.

use super::suite::{Client, Ear, Store, Suite, Tenure};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use redis_dlock::processor::{
    AcquireOutcome, Busy, ExtendOutcome, Gap, Grant, Message, NotOurs, PollOutcome, ProbeOutcome, ReleaseOutcome,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CASES: u32 = 150;
const CLIENTS: usize = 3;
/// The first clients listen; the last one has no inbox, so its waiters are dead.
const LISTENERS: usize = 2;
/// What stands in the place of a tenure when a JVM holds the key, or in a gap nobody.
const JVM: usize = usize::MAX;
const POLLERS: usize = usize::MAX - 1;
/// Longer than any case takes, and so short that no lease ends in one.
const LEASE: Duration = Duration::from_secs(100_000);
const GAP: Gap = Gap::new(Duration::from_secs(100), Duration::from_secs(200));

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
    /// What a JVM does that finds the key free.
    Take,
    /// A gap's length goes by.
    Pass,
    /// What an administrator does, and what the end of a lease looks like.
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CLIENTS, prop::bool::weighted(0.8)).prop_map(|(client, wait)| Step::Acquire { client, wait }),
        3 => any::<Index>().prop_map(Step::Poll),
        1 => any::<Index>().prop_map(Step::Extend),
        1 => any::<Index>().prop_map(Step::Probe),
        4 => (any::<Index>(), any::<bool>(), any::<bool>())
            .prop_map(|(tenure, next, gap)| Step::Release { tenure, next, gap }),
        1 => Just(Step::Take),
        1 => Just(Step::Pass),
        1 => Just(Step::Delete),
    ]
}

/// What a step did, as the asker sees it; tenures by their place in the list of all. Both sides answer with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Acquired { waiting: usize },
    Busy(usize),
    Waiting(usize),
    Gone,
    Extended { waiting: usize },
    Ours,
    NotOurs(Option<usize>),
    Released { waiting: usize },
    Passed { waiting: usize },
    Queued(usize),
    Deleted(bool),
    Taken(bool),
}

/// A message, and to which tenure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Heard {
    Granted { tenure: usize, waiting: usize },
    Contended { tenure: usize },
}

/// The rules, with the clients of all tenures so far.
#[derive(Default)]
struct Model {
    clients: Vec<usize>,
    holder: Option<usize>,
    queue: VecDeque<usize>,
    /// How many gaps' lengths it takes until the next one is due; two right after the last one was made.
    gapped: u8,
    /// What the last step tells, and whom.
    heard: Option<(usize, Heard)>,
}

impl Model {
    fn acquire(&mut self, me: usize, wait: bool) -> Seen {
        if let Some(busy) = self.closed() {
            if wait {
                self.queue.push_back(me);
            }
            return Seen::Busy(busy);
        }
        let was_held = self.holder.is_some();
        if !was_held && !self.hand_over(None) {
            self.holder = Some(me);
            return Seen::Acquired { waiting: 0 };
        }
        if wait {
            self.queue.push_back(me);
        }
        if !was_held {
            self.tell_granted();
        } else if wait && self.queue.len() == 1 {
            self.tell_contended();
        }
        Seen::Busy(self.holder.unwrap())
    }

    fn poll(&mut self, me: usize) -> Seen {
        if self.holder == Some(me) {
            return Seen::Acquired { waiting: self.queue.len() };
        }
        if !self.queue.contains(&me) {
            return Seen::Gone;
        }
        if let Some(busy) = self.closed() {
            return Seen::Waiting(busy);
        }
        if self.holder.is_some() {
            if self.queue[0] == me {
                self.tell_contended();
            }
        } else {
            self.hand_over(Some(me));
            if self.holder == Some(me) {
                return Seen::Acquired { waiting: self.queue.len() };
            }
            self.tell_granted();
        }
        Seen::Waiting(self.holder.unwrap())
    }

    fn release(&mut self, me: usize, next: Option<usize>, gap: bool) -> Seen {
        if self.holder != Some(me) {
            self.queue.retain(|&waiter| waiter != me);
            return Seen::NotOurs(self.holder);
        }
        self.holder = None;
        if gap && self.gapped == 0 {
            self.gapped = 2;
            let waiting = self.queue.len();
            self.queue.extend(next);
            return if next.is_some() { Seen::Queued(POLLERS) } else { Seen::Released { waiting } };
        }
        if self.hand_over(None) {
            self.queue.extend(next);
            self.tell_granted();
            return match next {
                Some(_) => Seen::Queued(self.holder.unwrap()),
                None => Seen::Released { waiting: self.queue.len() },
            };
        }
        self.holder = next;
        if next.is_some() { Seen::Passed { waiting: 0 } } else { Seen::Released { waiting: 0 } }
    }

    /// Who is said to hold a key that is free for pollers.
    fn closed(&self) -> Option<usize> {
        (self.holder.is_none() && self.gapped == 2).then_some(POLLERS)
    }

    fn hand_over(&mut self, asker: Option<usize>) -> bool {
        while let Some(waiter) = self.queue.pop_front() {
            if asker == Some(waiter) || self.clients[waiter] < LISTENERS {
                self.holder = Some(waiter);
                return true;
            }
        }
        false
    }

    fn tell_granted(&mut self) {
        let tenure = self.holder.unwrap();
        self.heard = Some((self.clients[tenure], Heard::Granted { tenure, waiting: self.queue.len() }));
    }

    fn tell_contended(&mut self) {
        let tenure = self.holder.unwrap();
        if tenure != JVM {
            self.heard = Some((self.clients[tenure], Heard::Contended { tenure }));
        }
    }
}

/// The store under test, spoken to in the same terms.
struct Real<'s> {
    suite: &'s Suite,
    key: String,
    clients: Vec<Client<'s>>,
    ears: Vec<Ear>,
    tenures: Vec<Tenure>,
    last_number: u64,
}

impl Real<'_> {
    /// A new tenure in both worlds; answers its place.
    fn tenure(&mut self, model: &mut Model, client: usize) -> usize {
        self.tenures.push(self.clients[client].tenure_with(&self.key, LEASE));
        model.clients.push(client);
        self.tenures.len() - 1
    }

    fn place(&self, locker: &str) -> usize {
        if locker == "jvm-1" {
            return JVM;
        }
        self.tenures.iter().position(|tenure| tenure.locker == locker).unwrap()
    }

    fn busy(&self, busy: &Busy) -> usize {
        busy.holder.as_deref().map_or(POLLERS, |locker| self.place(locker))
    }

    fn not_ours(&self, not_ours: &NotOurs) -> Seen {
        Seen::NotOurs(not_ours.holder.as_deref().map(|locker| self.place(locker)))
    }

    /// Checks that the number rises; answers how many wait.
    fn granted(&mut self, grant: Grant) -> usize {
        assert!(grant.number > self.last_number, "{grant:?} after {}", self.last_number);
        self.last_number = grant.number;
        count(grant.waiting)
    }

    fn acquire(&mut self, me: usize, wait: bool) -> Seen {
        match self.tenures[me].ask(wait) {
            AcquireOutcome::Acquired(grant) => Seen::Acquired { waiting: self.granted(grant) },
            AcquireOutcome::Busy(busy) => Seen::Busy(self.busy(&busy)),
            other => panic!("there was time enough: {other:?}"),
        }
    }

    fn poll(&mut self, me: usize) -> Seen {
        match self.tenures[me].poll() {
            PollOutcome::Acquired(grant) => Seen::Acquired { waiting: self.granted(grant) },
            PollOutcome::Waiting(busy) => Seen::Waiting(self.busy(&busy)),
            PollOutcome::Gone => Seen::Gone,
            other => panic!("{other:?}"),
        }
    }

    fn extend(&self, me: usize) -> Seen {
        match self.tenures[me].extend() {
            ExtendOutcome::Extended(extension) => Seen::Extended { waiting: count(extension.waiting) },
            ExtendOutcome::NotOurs(not_ours) => self.not_ours(&not_ours),
            other => panic!("{other:?}"),
        }
    }

    fn probe(&self, me: usize) -> Seen {
        match self.tenures[me].probe() {
            ProbeOutcome::Ours => Seen::Ours,
            ProbeOutcome::NotOurs(not_ours) => self.not_ours(&not_ours),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, me: usize, next: Option<usize>, gap: bool) -> Seen {
        let outcome = match next.map(|next| &self.tenures[next]) {
            next if gap => self.tenures[me].release_with(next, GAP),
            Some(next) => self.tenures[me].release_to(next),
            None => self.tenures[me].release(),
        };
        match outcome {
            ReleaseOutcome::Released { waiting } => Seen::Released { waiting: count(waiting) },
            ReleaseOutcome::Passed(grant) => Seen::Passed { waiting: self.granted(grant) },
            ReleaseOutcome::Queued(busy) => Seen::Queued(self.busy(&busy)),
            ReleaseOutcome::NotOurs(not_ours) => self.not_ours(&not_ours),
            other => panic!("{other:?}"),
        }
    }

    fn hear(&mut self, client: usize) -> Heard {
        match self.ears[client].hear() {
            Message::Granted { locker, grant, .. } => {
                Heard::Granted { tenure: self.place(&locker), waiting: self.granted(grant) }
            }
            Message::Contended { locker, .. } => Heard::Contended { tenure: self.place(&locker) },
            other => panic!("{other:?}"),
        }
    }
}

fn count(waiting: u64) -> usize {
    usize::try_from(waiting).unwrap()
}

pub(crate) fn random_requests_agree_with_the_model(store: impl Store + 'static) {
    let suite = &Suite::on(store);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let keys = AtomicU64::new(0);
    let result = TestRunner::new(config).run(&prop::collection::vec(step(), 1..60), |steps| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| suite.client()).collect();
        let ears = clients[..LISTENERS].iter().map(Client::listen).collect();
        let key = format!("k{}", keys.fetch_add(1, Ordering::Relaxed));
        play(Real { suite, key, clients, ears, tenures: Vec::new(), last_number: 0 }, &steps)?;
        suite.assert_nothing_is_left();
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}

fn play(mut real: Real<'_>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    for step in steps {
        let of = |index: &Index, real: &Real<'_>| (!real.tenures.is_empty()).then(|| index.index(real.tenures.len()));
        let (seen, expected) = match step {
            Step::Acquire { client, wait } => {
                let me = real.tenure(&mut model, *client);
                (real.acquire(me, *wait), model.acquire(me, *wait))
            }
            Step::Poll(index) => {
                let Some(me) = of(index, &real) else { continue };
                (real.poll(me), model.poll(me))
            }
            Step::Extend(index) => {
                let Some(me) = of(index, &real) else { continue };
                let ours = Seen::Extended { waiting: model.queue.len() };
                let expected = if model.holder == Some(me) { ours } else { Seen::NotOurs(model.holder) };
                (real.extend(me), expected)
            }
            Step::Probe(index) => {
                let Some(me) = of(index, &real) else { continue };
                let expected = if model.holder == Some(me) { Seen::Ours } else { Seen::NotOurs(model.holder) };
                (real.probe(me), expected)
            }
            Step::Release { tenure, next, gap } => {
                // Half of the releases are the holder's, or random ones would hardly ever be.
                let holder = model.holder.filter(|&holder| holder != JVM && tenure.index(2) == 0);
                let Some(me) = holder.or_else(|| of(tenure, &real)) else { continue };
                let client = model.clients[me];
                let next = next.then(|| real.tenure(&mut model, client));
                (real.release(me, next, *gap), model.release(me, next, *gap))
            }
            Step::Take => {
                let is_free = model.holder.is_none();
                model.holder = model.holder.or(Some(JVM));
                (Seen::Taken(real.suite.store().take(&real.key, "jvm-1", LEASE)), Seen::Taken(is_free))
            }
            Step::Pass => {
                real.suite.store().pass_time_of_gaps(&real.key, GAP.length);
                model.gapped = model.gapped.saturating_sub(1);
                continue;
            }
            Step::Delete => {
                (Seen::Deleted(real.suite.store().delete(&real.key)), Seen::Deleted(model.holder.take().is_some()))
            }
        };
        prop_assert_eq!(seen, expected, "at {:?}", step);
        let looked = real.suite.inspect(&real.key);
        let holder = looked.holder.map(|locker| real.place(&locker));
        prop_assert_eq!((holder, count(looked.waiting)), (model.holder, model.queue.len()), "after {:?}", step);
        if let Some((client, heard)) = model.heard.take().filter(|(client, _)| *client < LISTENERS) {
            let told = real.hear(client);
            match (step, heard) {
                // A store may give the key away before it looks at the asker, who then tells of itself if it is the first to.
                (Step::Acquire { wait: true, .. }, Heard::Granted { tenure, waiting })
                    if told == Heard::Granted { tenure, waiting: waiting - 1 } =>
                {
                    if waiting == 1 {
                        prop_assert_eq!(real.hear(client), Heard::Contended { tenure }, "at {:?}", step);
                    }
                }
                _ => prop_assert_eq!(told, heard, "at {:?}", step),
            }
        }
    }
    for ear in &mut real.ears {
        prop_assert_eq!(ear.hear_within(Duration::from_millis(1)), None);
    }
    // What a gap and a JVM leave ends with time, which this spares; a last asker finds the key without a gap.
    real.suite.store().pass_time_of_gaps(&real.key, GAP.every);
    if model.holder == Some(JVM) {
        real.suite.store().delete(&real.key);
    }
    real.clients[0].tenure(&real.key).ask(false);
    Ok(())
}
