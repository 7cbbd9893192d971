//! Extensions and probes of many tenures by few requests. A process that only holds sends nothing else.
//!
//! | step | one tenure | a thousand tenures |
//! |---|---|---|
//! | renew the sessions | 1 request | etcd: 1, which is a stream of renewals; Consul: 1,000, or 1 where the holds [share](super::shared) a session |
//! | look at the keys | 1 request | 8, each a transaction of 128 reads |
//!
//! Each tenure has an outcome of its own, that of [`Extend`]. On etcd the outcome tells of at most one waiter:
//!
//! | its renewal | the look at its key | outcome |
//! |---|---|---|
//! | answered: it lives | its session and its locker hold the key | extended |
//! | answered: it lives | another one holds the key, or nobody | not ours |
//! | none, because it is probed | as in the two rows above | ours; not ours |
//! | answered: there is no such session | is left out | it is extended alone |
//! | answered: there is no such session, and others share it | its locker holds the key with it | it is extended together with the others once more, and then alone |
//! | answered: there is no such session, and others share it | another one holds the key, or nobody | not ours |
//! | not answered, or its time was over before it was sent | is left out | the error: the client tries again |
//! | answered: it lives | failed, or was refused | it is asked about alone |
//! | any, and another term has begun | any | all is done again, with the time that is left |
//!
//! The extension of a tenure is complete with the look. A tenure whose session was renewed, and whose look failed, keeps its earlier deadline.
//!
//! 1. The sessions of extensions are renewed before the look at their keys, so a tenure that is answered "extended" held the key after its renewal.
//! 2. A renewal counts only if no term has begun between it and the look that follows: see [`renew`](ConsensusStore::renew). If one has begun, all
//!    is done again.
//! 3. A renewal that finds no session decides nothing. The tenure is extended alone, and that looks twice. A tenure that this processor does not
//!    know is extended alone, too.
//! 4. The renewals take at most two thirds of the time that is left, because without the look all of them are in vain.
//! 5. Where a look at many keys fails, each tenure asks alone, as if the store had no such look: a right may be missing for one key. No further
//!    tenure asks once the servers have failed three times in a row. A refusal does not count: it says nothing of other keys.
//! 6. The most urgent tenures come first in each step, in the order in which the client names them. Consul takes all steps for 128 tenures before it
//!    goes on with the next ones, and those that ask alone come last.
//!
//! *Why the looks may be at different indices.* An outcome depends on the entries of one key, and each key is looked at once.
//!
//! *Why a tenure may end meanwhile.* Another thread may release it. Its session is then idle, or serves the next tenure. Renewing it harms nobody:
//! the renewal is only noted for the locker of the request, which is not known any more. The client takes no outcome for a tenure that has ended.
//!
//! *Why nothing is left behind.* No extension or probe writes an entry, so none leaves anything in the store, however late it is executed. A late
//! renewal makes one session live longer by its own life: the same as an extension whose answer is lost.

use super::deadline::Deadline;
use super::extend::Extend;
use super::kv::LOOKS;
use super::sessions::{KnownTenure, Sessions};
use super::snapshot::Snapshot;
use super::store::{ConsensusStore, until_settled};
use redis_dlock::port::{Claim, ExtendOutcome, Outcome, Request};
use redis_dlock::{Clock, Error, Moment, SystemClock};
use std::collections::{HashMap, HashSet};

/// After how many failures of the servers in a row no further tenure is asked about alone.
const FAILURES: usize = 3;

/// How long the names of all keys in one look may be together, in bytes. Consul takes 512 KiB, etcd 1.5 MiB, and a name may have 16 KiB.
const LONGEST_LOOK: usize = 128 * 1024;

/// A tenure that is extended or probed.
#[derive(Debug)]
pub(super) struct KeptTenure<'a> {
    claim: &'a Claim<'a>,
    /// The known tenure. `None` if this processor does not know it, or knows it no longer.
    tenure: Option<KnownTenure>,
    is_extended: bool,
}

impl<'a> KeptTenure<'a> {
    /// Returns the tenures of these requests, if all are extensions and probes, each of another key.
    pub(super) fn all(sessions: &Sessions, requests: &'a [Request<'a>]) -> Option<Vec<Self>> {
        let mut keys = HashSet::new();
        let kept = |request: &'a Request<'a>| {
            let (claim, is_extended) = match request {
                Request::Extend(claim) => (claim, true),
                Request::Probe(claim) => (claim, false),
                _ => return None,
            };
            keys.insert(claim.key).then(|| Self::of(sessions, claim, is_extended))
        };
        if requests.len() > 1 { requests.iter().map(kept).collect() } else { None }
    }

    fn of(sessions: &Sessions, claim: &'a Claim<'a>, is_extended: bool) -> Self {
        Self { claim, tenure: sessions.of(claim.locker), is_extended }
    }

    /// The sessions that are renewed.
    fn sessions(&self) -> impl Iterator<Item = &str> {
        self.tenure.iter().filter(|_| self.is_extended).flat_map(KnownTenure::sessions)
    }

    /// Whether it is extended, and a [shared](super::shared) session holds its key or may hold it.
    fn is_moved(&self) -> bool {
        self.is_extended && self.tenure.as_ref().is_some_and(KnownTenure::is_moved)
    }
}

/// Extensions and probes that are made together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Together<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) kept: &'a [KeptTenure<'a>],
    pub(super) deadline: Deadline,
}

/// Renewals that were sent one after another.
struct Round<'a> {
    term: u64,
    /// When the first renewals of all rounds were sent, and the first ones of this round.
    begun: Moment,
    sent_at: Moment,
    renewed: &'a HashMap<&'a str, Result<bool, Error>>,
    /// The shared sessions that were renewed in any round.
    shared: &'a HashSet<String>,
}

impl Round<'_> {
    fn is_renewed(&self, session: &str) -> bool {
        self.shared.contains(session) || matches!(self.renewed.get(session), Some(Ok(true)))
    }

    /// The moment from which the sessions of a tenure live. A shared session lives at least from the first renewals on.
    fn lives_from(&self, kept: &KeptTenure<'_>) -> Moment {
        if kept.sessions().any(|session| self.shared.contains(session)) { self.begun } else { self.sent_at }
    }
}

/// The outcome of a tenure. `None` if it must be asked about alone.
type Kind = Option<Result<Outcome, Error>>;

impl Together<'_> {
    /// Returns an outcome for each tenure.
    pub(super) fn run(self) -> Vec<Result<Outcome, Error>> {
        let (begun, mut shared) = (SystemClock.now(), HashSet::new());
        let mut together = self.in_order(&mut shared, begun);
        // A new leader may know a session by now, and another thread may have moved a hold.
        let again = |n: &usize| together[*n].is_none() && self.kept[*n].is_moved();
        let places: Vec<_> = (0..together.len()).filter(again).collect();
        let anew = |n: &usize| KeptTenure::of(&self.store.sessions, self.kept[*n].claim, true);
        let kept: Vec<_> = places.iter().map(anew).collect();
        let outcomes = Together { kept: &kept, ..self }.in_order(&mut shared, begun);
        places.into_iter().zip(outcomes).for_each(|(n, outcome)| together[n] = outcome);

        let mut failed: Vec<Error> = Vec::new();
        let mut alone = |kept| match failed.get(FAILURES - 1) {
            Some(error) => Err(error.clone()),
            None => {
                let outcome = self.alone(kept);
                match &outcome {
                    Err(error @ Error::Backend { .. }) => failed.push(error.clone()),
                    Ok(_) | Err(_) => failed.clear(),
                }
                outcome
            }
        };
        self.kept.iter().zip(together).map(|(kept, outcome)| outcome.unwrap_or_else(|| alone(kept))).collect()
    }

    /// Renews and looks for one group of tenures after another. `shared` has the shared sessions that were renewed: each is renewed once, before the
    /// first look.
    fn in_order(self, shared: &mut HashSet<String>, begun: Moment) -> Vec<Kind> {
        let of_some = |kept| {
            let some = Together { kept, ..self };
            let failed = |error: Error| kept.iter().map(|_| Some(Err(error.clone()))).collect();
            some.settled(shared, begun).unwrap_or_else(failed)
        };
        self.kept.chunks(self.store.kv.renewed_together()).flat_map(of_some).collect()
    }

    /// Renews and looks until no term has begun in between.
    fn settled(&self, shared: &mut HashSet<String>, begun: Moment) -> Result<Vec<Kind>, Error> {
        let kv = &self.store.kv;
        until_settled(self.kept[0].claim.key, || {
            let (sent_at, term) = (SystemClock.now(), kv.term());
            let renewed = self.renewed(shared)?;
            let outcomes = self.looked(&Round { term, begun, sent_at, renewed: &renewed, shared });
            let is_in_vain = kv.term() != term && self.kept.iter().any(|kept| kept.is_extended);
            Ok((!is_in_vain).then_some(outcomes))
        })
    }

    /// Renews the sessions of the tenures that are extended. Returns the result for each session, and adds the shared ones to `shared`.
    fn renewed(&self, shared: &mut HashSet<String>) -> Result<HashMap<&str, Result<bool, Error>>, Error> {
        let mut seen = HashSet::new();
        let due = self.kept.iter().flat_map(KeptTenure::sessions);
        let due: Vec<_> = due.filter(|session| !shared.contains(*session) && seen.insert(*session)).collect();
        if due.is_empty() {
            return Ok(HashMap::new());
        }
        let time = self.deadline.left()?.mul_f64(2.0 / 3.0);
        let renewed = self.store.kv.renew_all(&due, self.deadline.at_most(time));
        let renewed: HashMap<_, _> = due.into_iter().zip(renewed).collect();
        let of_many = self.kept.iter().filter(|kept| kept.is_moved()).flat_map(KeptTenure::sessions);
        shared.extend(of_many.filter(|id| matches!(renewed.get(id), Some(Ok(true)))).map(str::to_owned));
        Ok(renewed)
    }

    /// Looks at the keys of tenures whose session was renewed, or need not be, and of those with a shared session.
    fn looked(&self, round: &Round<'_>) -> Vec<Kind> {
        let mut outcomes: Vec<Kind> = Vec::with_capacity(self.kept.len());
        let mut looks = Vec::new();
        for (place, kept) in self.kept.iter().enumerate() {
            let error = kept.sessions().find_map(|session| round.renewed.get(session)?.clone().err());
            let is_renewed = || kept.is_moved() || kept.sessions().all(|session| round.is_renewed(session));
            if error.is_none() && kept.tenure.is_some() && is_renewed() {
                looks.push(place);
            }
            outcomes.push(error.map(Err));
        }
        let mut rest = looks.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |place: &&usize| {
                bytes += self.store.names.of(self.kept[**place].claim.key).len();
                bytes <= LONGEST_LOOK
            };
            let (places, others) = rest.split_at(rest.iter().take(LOOKS).take_while(fits).count().max(1));
            rest = others;
            let some: Vec<_> = places.iter().map(|place| &self.kept[*place]).collect();
            for (place, outcome) in places.iter().zip(self.look_at(&some, round)) {
                outcomes[*place] = outcome;
            }
        }
        outcomes
    }

    /// Looks at the keys of tenures whose sessions were renewed, if they are extended.
    fn look_at(&self, some: &[&KeptTenure<'_>], round: &Round<'_>) -> Vec<Kind> {
        let names = &self.store.names;
        let prefix = |kept: &&KeptTenure<'_>| match kept.is_extended {
            true => names.of(kept.claim.key),
            false => names.lock(kept.claim.key),
        };
        let prefixes: Vec<_> = some.iter().map(prefix).collect();
        match self.store.kv.look_all(&prefixes, self.deadline) {
            Ok(looks) => {
                let outcome = |(kept, entries): (&&KeptTenure<'_>, _)| {
                    let read = self.store.read(kept.claim.key, entries);
                    read.map(|snapshot| self.outcome(kept, &snapshot, round)).transpose()
                };
                some.iter().zip(looks).map(outcome).collect()
            }
            Err(_) => some.iter().map(|_| None).collect(),
        }
    }

    /// The outcome of a tenure. `None` if the renewal of a shared session found none, or if another thread has moved the hold meanwhile.
    fn outcome(&self, kept: &KeptTenure<'_>, snapshot: &Snapshot, round: &Round<'_>) -> Option<Outcome> {
        let (extend, sessions) = (self.extend(kept), &self.store.sessions);
        let (claim, tenure) = (kept.claim, kept.tenure.as_ref()?);
        let session = Some(tenure.seen(snapshot, claim.locker).id.as_str());
        if !kept.is_extended {
            return sessions.is_as(claim.locker, tenure).then(|| extend.probed(session, snapshot).into());
        }
        if self.store.kv.term() != round.term {
            return None;
        }
        let is_renewed = |session: &str| round.is_renewed(session);
        let counts = sessions.note_renewed(claim, tenure, is_renewed, snapshot, round.lives_from(kept))?;
        let outcome = extend.extended(session, snapshot);
        (counts || matches!(outcome, ExtendOutcome::NotOurs(_))).then(|| outcome.into())
    }

    fn extend<'b>(&'b self, kept: &'b KeptTenure<'b>) -> Extend<'b> {
        Extend { store: self.store, claim: kept.claim, deadline: self.deadline }
    }

    /// Extends or probes one tenure by requests of its own.
    fn alone(&self, kept: &KeptTenure<'_>) -> Result<Outcome, Error> {
        let extend = self.extend(kept);
        if kept.is_extended { extend.extend().map(Into::into) } else { extend.probe().map(Into::into) }
    }
}
