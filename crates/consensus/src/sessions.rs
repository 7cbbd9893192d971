//! The sessions of a process. Each tenure that holds or waits has one of its own. A session that is left over after an orderly release serves
//! the next tenure: creating one and destroying it are two more writes that the servers must agree on.
//!
//! | state | of | leaves it by |
//! |---|---|---|
//! | in use | a tenure that holds or waits | an answered release: idle; a request without an answer: in doubt |
//! | in doubt | a tenure of which a request may still be executed | its end in the store, after which no such request takes effect |
//! | doomed | an unanswered request may still take the key away | the next poll ends the session even if the tenure holds the key |
//! | idle | nobody | the next tenure of the client with such a lease: in use; its life: forgotten, because nobody renews it |
//!
//! Invariants:
//!
//! 1. At most one tenure uses a session, not counting a doomed one.
//! 2. A session that was ever in doubt is never idle.
//! 3. A session is given to a tenure only while it certainly lives for the tenure's lease. It lives a quarter longer than the lease, by the clock
//!    that counts suspend, so that it serves tenures for that quarter before it must be renewed.
//! 4. A tenure that is doomed is never answered that it holds the key.
//! 5. A session is of one client: the idle ones serve no other. So a client that has no session has neither a hold nor a place in a queue, and
//!    [a sweep](crate::consul) may delete its inbox.
//!
//! *Why a session has a mark.* A copy of this process, as when a snapshot of a machine is restored twice, has the same idle sessions. If both
//! used one, each could end the other's hold. So whoever takes an idle session up writes its mark, in the transaction that needs the session, and
//! checks there that the mark is as this process has left it. The second to come is refused, and learns that it has a [twin](super::acquire). A
//! session that has served one tenure only has no mark yet; it was created by this process, and nobody else knows it unless it was copied since.
//!
//! *Why a request without an answer does no harm.* It may be executed at any later time. It names its session, and a store executes nothing for a
//! session that has ended. So the end of the session is the end of the request: the client settles a locker by one request, and waits for no
//! lease.
//!
//! *Why some tenures are doomed.* The end of a session is certain only once it is answered. Until then such a request may still pass the lock to
//! a waiter, or move our own next locker onto the same session; ending the session then ends both. A tenure that holds the key meanwhile
//! would lose it without notice. So its poll ends the session and answers `Gone`, whatever the key says. Both cases were
//! shown on real servers.

use super::deadline::Deadline;
use super::kv::{Kv, Life};
use super::snapshot::WaitingEntry;
use super::timing::between_looks;
use crate::sync::Mutex;
use redis_dlock::Error;
use redis_dlock::port::{Claim, ReleaseDelay};
use redis_dlock::{Clock, Moment, SystemClock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A session and how long it certainly lives.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// The client that it was created for. Its inbox is kept while it has a session.
    pub(super) client: String,
    pub(super) life: Life,
    /// The moment until which it certainly lives.
    pub(super) until: Moment,
    pub(super) mark: Mark,
}

/// What is known of the mark of a session: the index of its last change, `None` if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The tenure has created the session, or has taken it up in the store.
    Ours(Option<u64>),
    /// The session was idle. The tenure may use it only if the mark is still so.
    Left(Option<u64>),
}

/// What is known of a tenure.
#[derive(Clone, Debug)]
pub(super) struct KnownTenure {
    pub(super) session: Session,
    pub(super) doubt: Doubt,
    /// Whether somebody waited when the key was looked at last.
    pub(super) is_wanted: bool,
    /// The first waiter, if it is known. It stays the first until it leaves. It is shared, because a reason makes an entry long, and each question
    /// copies what is known of its tenure under the mutex.
    first: Option<Arc<WaitingEntry>>,
    /// The index of the [offer](super::confirm) that a question of its own has confirmed.
    pub(super) confirmed: Option<u64>,
    /// The last offer to another locker that it has seen while it waits.
    seen: Option<SeenOffer>,
}

/// An offer that a tenure has seen again and again.
#[derive(Clone, Copy, Debug)]
struct SeenOffer {
    index: u64,
    first: Moment,
    last: Moment,
}

/// What a request of a tenure may still do that had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    /// There is no such request.
    None,
    /// It may give the key, or a place in the queue, to the tenure.
    Gains,
    /// It may take the key from the tenure. The tenure is doomed: it never begins to hold.
    Loses,
}

/// The mutex is never held over a request: a server that hangs would keep the tenures of all other keys from theirs.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    tenures: HashMap<String, KnownTenure>,
    idle: Vec<Session>,
}

/// Whose sessions those are that hold keys whose release is delayed: no client's, because no client lives for them.
const OF_DELAY: &str = "(delayed release)";

/// How many sessions are kept for later tenures, at most.
const MOST_IDLE: usize = 256;

impl Sessions {
    /// Gives a session to a tenure: an idle one, renewed if need be, or a new one.
    pub(super) fn begin<K: Kv + ?Sized>(
        &self,
        kv: &K,
        claim: &Claim<'_>,
        deadline: Deadline,
    ) -> Result<Session, Error> {
        let life = kv.life(claim);
        while let Some(mut session) = self.take_idle(claim.client, life) {
            if SystemClock.now() + life.needed <= session.until || session.renew(kv, deadline)? {
                self.enter(claim.locker, session.clone());
                return Ok(session);
            }
        }
        let session = Session::open(kv, life, claim.client, deadline)?;
        self.enter(claim.locker, session.clone());
        Ok(session)
    }

    /// Returns a session that lives for a whole delay from now, and then ends by itself: a new one, or, if there was a try before, the same
    /// one, renewed. It is known by the mark until it is [forgotten](Self::forget).
    pub(super) fn of_delay<K: Kv + ?Sized>(
        &self,
        kv: &K,
        delay: &ReleaseDelay<'_>,
        deadline: Deadline,
    ) -> Result<String, Error> {
        if let Some(KnownTenure { mut session, .. }) = self.of(delay.mark)
            && session.renew(kv, deadline)?
        {
            return Ok(session.id);
        }
        let session = Session::open(kv, kv.delay(delay.time), OF_DELAY, deadline)?;
        self.enter(delay.mark, session.clone());
        Ok(session.id)
    }

    /// Takes the idle session that was left last: it lives longest. Those whose life is over are forgotten: their end costs no request.
    fn take_idle(&self, client: &str, life: Life) -> Option<Session> {
        let idle = &mut self.known.lock().idle;
        let now = SystemClock.now();
        idle.retain(|session| now < session.until);
        let place = idle.iter().rposition(|session| session.life == life && session.client == client)?;
        Some(idle.swap_remove(place))
    }

    /// Begins a tenure.
    fn enter(&self, locker: &str, session: Session) {
        let tenure =
            KnownTenure { session, doubt: Doubt::None, is_wanted: false, first: None, confirmed: None, seen: None };
        self.known.lock().tenures.insert(locker.to_owned(), tenure);
    }

    /// Returns what is known of a tenure of this process.
    pub(super) fn of(&self, locker: &str) -> Option<KnownTenure> {
        self.known.lock().tenures.get(locker).cloned()
    }

    /// Notes that a session was renewed by a request sent at this moment.
    pub(super) fn note_renewed(&self, locker: &str, sent_at: Moment) {
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker) {
            let session = &mut tenure.session;
            session.until = session.until.max(sent_at + session.life.time);
        }
    }

    /// Notes that a tenure has taken up its session in the store, at this index.
    pub(super) fn note_taken_up(&self, locker: &str, index: u64) {
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker)
            && let Mark::Left(_) = tenure.session.mark
        {
            tenure.session.mark = Mark::Ours(Some(index));
        }
    }

    /// Notes whether somebody waits for the key that a tenure holds.
    pub(super) fn note_wanted(&self, locker: &str, is_wanted: bool) {
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker) {
            tenure.is_wanted = is_wanted;
            tenure.first.take_if(|_| !is_wanted);
        }
    }

    /// Notes who waits the longest for the key that a tenure holds, if anybody does. It is another one.
    pub(super) fn note_first(&self, locker: &str, first: Option<&WaitingEntry>) {
        let first = first.cloned().map(Arc::new);
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker) {
            (tenure.is_wanted, tenure.first) = (first.is_some(), first);
        }
    }

    /// Returns who waits the longest, if a tenure knows that. It knows it once: what is refused is looked at.
    pub(super) fn take_first(&self, locker: &str) -> Option<WaitingEntry> {
        let first = self.known.lock().tenures.get_mut(locker)?.first.take();
        first.map(Arc::unwrap_or_clone)
    }

    /// Notes that a tenure has confirmed the offer with this index.
    pub(super) fn note_confirmed(&self, locker: &str, index: u64) {
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker) {
            tenure.confirmed = Some(index);
        }
    }

    /// Returns whether a request without an answer may take the key from a tenure.
    pub(super) fn is_doomed(&self, locker: &str) -> bool {
        self.of(locker).is_some_and(|tenure| tenure.doubt == Doubt::Loses)
    }

    /// Notes that a tenure sees the offer with this index to another one. Returns how much of its patience is left.
    ///
    /// It begins anew after a time in which the tenure has not looked: perhaps nobody could ask then, and so the other one not confirm.
    pub(super) fn patience(&self, locker: &str, index: u64, patience: Duration, now: Moment) -> Duration {
        let mut known = self.known.lock();
        let Some(tenure) = known.tenures.get_mut(locker) else { return patience };
        let goes_on = |seen: &SeenOffer| seen.index == index && now.since(seen.last) <= between_looks(patience);
        let first = tenure.seen.filter(goes_on).map_or(now, |seen| seen.first);
        tenure.seen = Some(SeenOffer { index, first, last: now });
        patience.saturating_sub(now.since(first))
    }

    /// Notes that a request of a tenure had no answer.
    pub(super) fn doubt(&self, locker: &str, doubt: Doubt) {
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker) {
            tenure.doubt = tenure.doubt.max(doubt);
        }
    }

    /// Notes that the session of a tenure is about to be ended. Returns `false` if it must not be: the tenure has ended, and the session may be of
    /// another one.
    pub(super) fn begin_end(&self, locker: &str, session: &str) -> bool {
        let tenures = &mut self.known.lock().tenures;
        let Some(tenure) = tenures.get_mut(locker).filter(|tenure| tenure.session.id == session) else { return false };
        tenure.doubt = tenure.doubt.max(Doubt::Gains);
        true
    }

    /// Notes that a request had no answer that lets the next locker of a client go on with the session of this one. The end of either tenure
    /// ends the session, so the next one never begins to hold.
    pub(super) fn doubt_pass(&self, locker: &str, next: &str) {
        let tenures = &mut self.known.lock().tenures;
        if let Some(tenure) = tenures.get(locker).cloned() {
            tenures.insert(next.to_owned(), KnownTenure { doubt: Doubt::Loses, ..tenure });
        }
    }

    /// Has the next locker of a client go on with the session of this one, which holds nothing in its own name any more.
    pub(super) fn pass(&self, locker: &str, next: &str) {
        let tenures = &mut self.known.lock().tenures;
        if let Some(tenure) = tenures.remove(locker) {
            tenures.insert(next.to_owned(), tenure);
        }
    }

    /// Forgets a tenure that has ended with an answer. Its session is free for another one.
    pub(super) fn end(&self, locker: &str) {
        let Known { tenures, idle } = &mut *self.known.lock();
        let Some(KnownTenure { mut session, doubt, .. }) = tenures.remove(locker) else { return };
        if let Mark::Ours(index) = session.mark {
            session.mark = Mark::Left(index);
        }
        if doubt == Doubt::None && idle.len() < MOST_IDLE {
            idle.push(session);
        }
    }

    /// Forgets a tenure whose session has ended.
    pub(super) fn forget(&self, locker: &str) {
        self.known.lock().tenures.remove(locker);
    }

    /// The same, for a session that has ended before its time. Somebody may have ended the idle ones, too.
    pub(super) fn forget_with_idle(&self, locker: &str) {
        self.forget(locker);
        drop(self.take_all_idle());
    }

    /// Returns the sessions that nobody uses, to end them.
    pub(super) fn take_all_idle(&self) -> Vec<Session> {
        std::mem::take(&mut self.known.lock().idle)
    }
}

impl KnownTenure {
    /// A tenure that another processor began.
    pub(super) fn of_another(session: &str, client: &str, life: Life) -> Self {
        let (id, client, until) = (session.to_owned(), client.to_owned(), SystemClock.now());
        let session = Session { id, client, life, until, mark: Mark::Ours(None) };
        Self { session, doubt: Doubt::None, is_wanted: true, first: None, confirmed: None, seen: None }
    }
}

impl Session {
    /// Begins one. Its life counts from before the request.
    pub(super) fn open<K: Kv + ?Sized>(kv: &K, life: Life, client: &str, deadline: Deadline) -> Result<Self, Error> {
        let begun = SystemClock.now();
        let id = kv.open_session(life, client, deadline)?;
        Ok(Self { id, client: client.to_owned(), life, until: begun + life.time, mark: Mark::Ours(None) })
    }

    /// Renews it. Returns `false` if it has ended.
    pub(super) fn renew<K: Kv + ?Sized>(&mut self, kv: &K, deadline: Deadline) -> Result<bool, Error> {
        let sent_at = SystemClock.now();
        let lives = kv.renew(&self.id, deadline)?;
        self.until = sent_at + self.life.time;
        Ok(lives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outage, and a time for which the machine stood still, are no time for which the other one has not confirmed.
    #[test]
    fn patience_ends_for_whoever_looks_all_the_time() {
        let look = || {
            let (sessions, begun) = (Sessions::default(), SystemClock.now());
            let [time, needed] = [Duration::from_secs(12); 2];
            let (life, mark) = (Life { time, needed, delay: Duration::ZERO }, Mark::Ours(None));
            sessions.enter("b-1", Session { id: "s".into(), client: "b".into(), life, until: begun + time, mark });
            let left = |index, at| {
                let now = begun + Duration::from_secs(at);
                sessions.patience("b-1", index, Duration::from_secs(3), now).as_secs()
            };
            assert_eq!([0, 2, 3, 4].map(|at| left(7, at)), [3, 1, 0, 0]);
            assert_eq!([8, 10, 11].map(|at| left(7, at)), [3, 1, 0], "after an outage");
            assert_eq!([12, 14, 15].map(|at| left(8, at)), [3, 1, 0], "with another offer");
        };
        shuttle::check_random(look, 1);
    }
}
