//! Extensions and probes of many tenures by few requests: all that a process sends while it only holds.
//!
//! | step | one tenure | a thousand tenures |
//! |---|---|---|
//! | renew the sessions | 1 request | etcd: 1, which is a stream of renewals; Consul: 1,000 |
//! | look at the keys | 1 request | 8, each a transaction of 128 reads |
//!
//! Each tenure keeps its own session, and each has an outcome of its own, that of [`Extend`]. On etcd it is told of one who waits, at most:
//!
//! | its renewal | the look at its key | outcome |
//! |---|---|---|
//! | answered: it lives | its session and its locker hold the key | extended |
//! | the same | another one holds the key, or nobody | not ours |
//! | none, because it is probed | as the two above | ours; not ours |
//! | answered: there is no such session | is left out | it is extended alone |
//! | not answered, or its time was over before it was sent | is left out | the error: the client tries again |
//! | answered: it lives | failed, or was refused | it is asked about alone |
//! | any, and another term has begun | any | all is done again, with the time that is left |
//!
//! The extension of a tenure is complete with the look. A tenure whose session was renewed, and whose look failed, has the deadline that it had.
//!
//! 1. The sessions of extensions are renewed before the look at their keys, so a tenure that is answered "extended" held the key after its renewal.
//! 2. A renewal counts only if no term has begun between it and the look that follows: see [`renew`](ConsensusStore::renew). If one has begun, all
//!    is done again.
//! 3. A renewal that finds no session decides nothing. The tenure is extended alone, and that looks twice. A tenure that this processor does not
//!    know is extended alone, too.
//! 4. The renewals take two thirds of the time that is left, at most, because without the look all of them are in vain.
//! 5. Where a look at many keys fails, each tenure asks alone, as if the store had no such look: a right may be missing for one key. Nobody asks
//!    any more once the servers have failed three in a row. A refusal does not count: it says nothing of other keys.
//! 6. The most urgent tenures come first in each step, in the order in which the client names them. Consul takes all steps for 128 tenures before it
//!    goes on with the next ones, and those that ask alone come last.
//!
//! *Why the looks may be at different indices.* An outcome depends on the entries of one key, and each key is looked at once.
//!
//! *Why a tenure may end meanwhile.* Another thread may release it. Its session is then idle, or of the next tenure, and renewing a session harms
//! nobody: it is noted for the locker of the request alone, which is not known any more. The client takes no outcome for a tenure that has ended.
//!
//! *Why nothing is left behind.* No request of these writes an entry, so none leaves anything in the store, however late it is executed. A late
//! renewal makes one session live longer by its own life: the same as an extension whose answer is lost.

use super::deadline::Deadline;
use super::extend::Extend;
use super::kv::LOOKS;
use super::sessions::Sessions;
use super::snapshot::Snapshot;
use super::store::{ConsensusStore, until_settled};
use redis_dlock::port::{Claim, Outcome, Request};
use redis_dlock::{Clock, Error, SystemClock};
use std::collections::HashSet;

/// After how many failures of the servers in a row no further tenure is asked about alone.
const FAILURES: usize = 3;

/// How many bytes the names of all keys may have at which one request looks. Consul takes 512 KiB, etcd 1.5 MiB, and a name may have 16 KiB.
const LONGEST_LOOK: usize = 128 * 1024;

/// A tenure that is extended or probed.
#[derive(Debug)]
pub(super) struct KeptTenure<'a> {
    claim: &'a Claim<'a>,
    /// `None` if this processor does not know the tenure, or not any more.
    session: Option<String>,
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
            let session = sessions.of(claim.locker).map(|tenure| tenure.session.id);
            keys.insert(claim.key).then_some(Self { claim, session, is_extended })
        };
        if requests.len() > 1 { requests.iter().map(kept).collect() } else { None }
    }
}

/// Extensions and probes that are made together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Together<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) kept: &'a [KeptTenure<'a>],
    pub(super) deadline: Deadline,
}

/// What came of a tenure. `None` if it must be asked about alone.
type Kind = Option<Result<Outcome, Error>>;

impl Together<'_> {
    /// Returns an outcome for each tenure.
    pub(super) fn run(self) -> Vec<Result<Outcome, Error>> {
        let of_some = |kept| {
            let some = Self { kept, ..self };
            some.settled().unwrap_or_else(|error| some.kept.iter().map(|_| Some(Err(error.clone()))).collect())
        };
        let together: Vec<_> = self.kept.chunks(self.store.kv.renewed_together()).flat_map(of_some).collect();
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

    /// Renews and looks until no term has begun in between.
    fn settled(&self) -> Result<Vec<Kind>, Error> {
        let kv = &self.store.kv;
        until_settled(self.kept[0].claim.key, || {
            let (sent_at, term) = (SystemClock.now(), kv.term());
            let outcomes = self.renewed()?;
            if kv.term() != term && self.kept.iter().any(|kept| kept.is_extended) {
                return Ok(None);
            }
            for (kept, _) in self.kept.iter().zip(&outcomes).filter(|(_, outcome)| matches!(outcome, Some(Ok(_)))) {
                if kept.is_extended {
                    self.store.sessions.note_renewed(kept.claim.locker, sent_at);
                }
            }
            Ok(Some(outcomes))
        })
    }

    /// Renews the sessions of those that are extended, and looks at the keys of all.
    fn renewed(&self) -> Result<Vec<Kind>, Error> {
        let kv = &self.store.kv;
        let sessions: Vec<_> =
            self.kept.iter().filter(|kept| kept.is_extended).filter_map(|kept| kept.session.as_deref()).collect();
        let mut renewed = Vec::new();
        if !sessions.is_empty() {
            let time = self.deadline.left()?.mul_f64(2.0 / 3.0);
            renewed = kv.renew_all(&sessions, self.deadline.at_most(time));
        }
        let mut renewed = renewed.into_iter();
        // The keys of those that were renewed, or need not be.
        let mut outcomes: Vec<Kind> = Vec::with_capacity(self.kept.len());
        let mut looks = Vec::new();
        for (place, kept) in self.kept.iter().enumerate() {
            let renewed = match (&kept.session, kept.is_extended) {
                (None, _) => Ok(false),
                (Some(_), true) => renewed.next().unwrap_or(Ok(false)),
                (Some(_), false) => Ok(true),
            };
            if let Ok(true) = renewed {
                looks.push(place);
            }
            outcomes.push(renewed.err().map(Err));
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
            for (place, outcome) in places.iter().zip(self.looked(&some)) {
                outcomes[*place] = outcome;
            }
        }
        Ok(outcomes)
    }

    /// Looks at the keys of tenures whose sessions were renewed, if they are extended.
    fn looked(&self, some: &[&KeptTenure<'_>]) -> Vec<Kind> {
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
                    Some(read.map(|snapshot| self.outcome(kept, &snapshot)))
                };
                some.iter().zip(looks).map(outcome).collect()
            }
            Err(_) => some.iter().map(|_| None).collect(),
        }
    }

    fn outcome(&self, kept: &KeptTenure<'_>, snapshot: &Snapshot) -> Outcome {
        let (extend, session) = (self.extend(kept), kept.session.as_deref());
        if kept.is_extended {
            extend.extended(session, snapshot).into()
        } else {
            extend.probed(session, snapshot).into()
        }
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
