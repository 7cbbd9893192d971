//! The sessions of a process. Each tenure that holds or waits has one of its own, until its hold is moved onto one that many [share](super::shared).
//! A session that is left over after an orderly release serves the next tenure: creating one and destroying it are two more writes that the servers
//! must agree on.
//!
//! | state | of | leaves it by |
//! |---|---|---|
//! | in use | a tenure that holds or waits | an answered release: idle; a request without an answer: in doubt |
//! | in doubt | a tenure that has sent a request which may still be executed | its end in the store, after which no such request takes effect |
//! | doomed | a tenure from which an unanswered request may still take the key | the next poll ends the session even if the tenure holds the key |
//! | shared | tenures whose holds were [moved](super::shared) onto it | its life: nobody renews it once its tenures have ended, or have left it |
//! | idle | nobody | the next tenure of the client with such a lease: in use; its life: forgotten, because nobody renews it |
//!
//! Invariants:
//!
//! 1. At most one tenure uses a session that is not shared, not counting a doomed one.
//! 2. A session that was ever in doubt is never idle.
//! 3. A session is given to a tenure only if it certainly lives for the tenure's lease. It lives a quarter longer than the lease, so that it serves
//!    tenures for that quarter before it must be renewed. The clock counts the time of a suspend.
//! 4. A doomed tenure never gets the answer that it holds the key.
//! 5. A session belongs to one client: an idle session serves no other client. So a client without a session has neither a hold nor a place in a
//!    queue, and [a sweep](crate::consul) may delete its inbox.
//!
//! *Why a session has a mark.* A copy of this process, as when a snapshot of a machine is restored twice, has the same idle sessions. If both
//! used one, each could end the other's hold. So the transaction that takes up an idle session writes its mark, and checks that the mark is as this
//! process has left it. The second copy is refused, and learns that it has a [twin](super::acquire). A session that has served only one tenure has no
//! mark yet. This process has created it, and only a later copy of the process can know it, too.
//!
//! *Why a request without an answer does no harm.* It may be executed at any later time. It names its session, and a store executes nothing for a
//! session that has ended. So the end of the session is the end of the request: the client settles a locker by one request, and waits for no
//! lease.
//!
//! *Why some tenures are doomed.* The end of a session is certain only once it is answered. Until then such a request may still pass the lock to a
//! waiter, or move our own next locker onto the same session. Ending the session then ends both holds, and a tenure that holds the key meanwhile
//! would lose it without notice. So its poll ends the session and answers `Gone`, whatever the key's entry says. Both cases were shown on real
//! servers.

use super::deadline::Deadline;
use super::kv::{Kv, Life};
use super::snapshot::{Snapshot, WaitingEntry};
use super::timing::between_looks;
use crate::sync::Mutex;
use redis_dlock::Error;
use redis_dlock::port::{Claim, ReleaseDelay};
use redis_dlock::{Clock, Moment, SystemClock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

/// A session and how long it certainly lives.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// The client that it was created for. The client's inbox is kept while it has a session.
    pub(super) client: String,
    pub(super) life: Life,
    /// The moment until which it certainly lives.
    pub(super) until: Moment,
    pub(super) mark: Mark,
    /// Whether it holds the keys of several tenures. If so, `until` belongs to one of them.
    pub(super) is_shared: bool,
}

/// The known state of a session's mark: the index of its last change, or `None` without a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The tenure has created the session, or has taken it up in the store.
    Ours(Option<u64>),
    /// The session was idle. The tenure may use it only if the mark is unchanged.
    Left(Option<u64>),
}

/// What is known of a tenure.
#[derive(Clone, Debug)]
pub(super) struct KnownTenure {
    pub(super) session: Session,
    /// The [shared](super::shared) session that may hold the key, while the move is undecided.
    pub(super) moving: Option<Session>,
    /// How often the hold was extended. `key` is set once the hold may be moved.
    extensions: u32,
    key: Option<Arc<str>>,
    pub(super) doubt: Doubt,
    /// Whether somebody waited when the key was looked at last.
    pub(super) is_wanted: bool,
    /// The first waiter, if it is known. It stays the first until it leaves. It is in an `Arc`, because a reason makes an entry long, and each
    /// request copies its tenure under the mutex.
    first: Option<Arc<WaitingEntry>>,
    /// The index of the [offer](super::confirm) that a question of its own has confirmed.
    pub(super) confirmed: Option<u64>,
    /// The last offer to another locker that it has seen while waiting.
    seen: Option<SeenOffer>,
}

/// An offer to another locker that a tenure keeps seeing.
#[derive(Clone, Copy, Debug)]
struct SeenOffer {
    index: u64,
    first: Moment,
    last: Moment,
}

/// The possible late effect of a tenure's request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    /// There is no such request.
    None,
    /// It may give the key, or a place in the queue, to the tenure.
    Gains,
    /// It may take the key from the tenure. The tenure is doomed: it never begins to hold.
    Loses,
}

/// The sessions of a process. The mutex is never held over a request: a server that hangs would block the tenures of all other keys.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Mutex<Known>,
    /// Whether holds are moved at all.
    is_sharing: bool,
}

#[derive(Debug, Default)]
struct Known {
    tenures: HashMap<String, KnownTenure>,
    idle: Vec<Session>,
    /// The shared sessions, onto which holds are moved.
    shared: Vec<Session>,
    pause: MovePause,
}

/// A pause after a failed round of moves, in rounds. Holds are only moved off retired sessions meanwhile.
#[derive(Debug, Default)]
struct MovePause {
    left: u32,
    /// How long the last pause was. Zero if the last round outside a pause has not failed.
    length: u32,
}

/// A hold that is to be moved.
#[derive(Clone, Debug)]
pub(super) struct LongTenure {
    pub(super) key: Arc<str>,
    pub(super) locker: String,
    /// The session that it is moved off.
    pub(super) from: Session,
    /// The session onto which it may have been moved already.
    pub(super) to: Option<Session>,
}

/// The client's name in the sessions of delayed releases. No client has this name, because no client lives for them.
const OF_DELAY: &str = "(delayed release)";

/// How many sessions are kept for later tenures, at most.
const MOST_IDLE: usize = 256;

/// After how many extensions a hold is moved. By then it is likely that further extensions save more requests than the move costs.
const EXTENSIONS: u32 = 4;

/// The longest pause, in rounds.
const LONGEST_PAUSE: u32 = 64;

impl Sessions {
    /// The sessions of a new process, which has none yet.
    pub(super) fn on(kv: &dyn Kv) -> Self {
        Self { is_sharing: kv.most_own_sessions() < usize::MAX, ..Self::default() }
    }

    /// Gives a session to a tenure: an idle one, renewed if need be, or a new one.
    pub(super) fn begin(&self, kv: &dyn Kv, claim: &Claim<'_>, deadline: Deadline) -> Result<Session, Error> {
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
    pub(super) fn of_delay(&self, kv: &dyn Kv, delay: &ReleaseDelay<'_>, deadline: Deadline) -> Result<String, Error> {
        if let Some(KnownTenure { mut session, .. }) = self.of(delay.mark)
            && session.renew(kv, deadline)?
        {
            return Ok(session.id);
        }
        let session = Session::open(kv, kv.delay(delay.time), OF_DELAY, deadline)?;
        self.enter(delay.mark, session.clone());
        Ok(session.id)
    }

    /// Takes the idle session that became idle last, because it lives longest. Forgets those whose life is over: they end without a request.
    fn take_idle(&self, client: &str, life: Life) -> Option<Session> {
        let idle = &mut self.known.lock().idle;
        let now = SystemClock.now();
        idle.retain(|session| now < session.until);
        let place = idle.iter().rposition(|session| session.life == life && session.client == client)?;
        Some(idle.swap_remove(place))
    }

    /// Begins a tenure.
    fn enter(&self, locker: &str, session: Session) {
        self.known.lock().tenures.insert(locker.to_owned(), KnownTenure::of(session));
    }

    /// Returns what is known of a tenure of this process.
    pub(super) fn of(&self, locker: &str) -> Option<KnownTenure> {
        self.known.lock().tenures.get(locker).cloned()
    }

    /// Notes that sessions which a tenure had before were renewed from this moment on, and what the look at its key has shown. Returns whether the
    /// renewal counts for the tenure. `None` if another thread has begun to move the hold since.
    pub(super) fn note_renewed(
        &self,
        claim: &Claim<'_>,
        before: &KnownTenure,
        is_renewed: impl Fn(&str) -> bool,
        seen: &Snapshot,
        from: Moment,
    ) -> Option<bool> {
        let Known { tenures, pause, .. } = &mut *self.known.lock();
        let Some(tenure) = tenures.get_mut(claim.locker) else { return Some(before.sessions().all(&is_renewed)) };
        if !before.has_all_of(tenure) {
            return None;
        }
        let holder = before.sessions().find(|session| seen.is_held_by(session, claim.locker).is_some());
        if let Some(to) = tenure.moving.take_if(|to| holder == Some(to.id.as_str())) {
            tenure.go_on_with(to);
        }
        // No key is moved back.
        let is_decided = tenure.moving.is_none() && holder == Some(tenure.session.id.as_str());
        let is_enough = is_decided && is_renewed(&tenure.session.id) || before.sessions().all(is_renewed);
        if !is_enough {
            if before.moving.is_some() {
                // An extension waits for the outcome of the move.
                *pause = MovePause::default();
            }
            return Some(false);
        }
        tenure.session.until = tenure.session.until.max(from + tenure.session.life.time);
        if holder.is_some() {
            tenure.extensions += 1;
            if self.is_sharing && tenure.extensions == EXTENSIONS {
                tenure.key = Some(claim.key.into());
            }
        }
        Some(true)
    }

    /// Returns whether no other thread has begun to move the hold of a tenure since `before` was read.
    pub(super) fn is_as(&self, locker: &str, before: &KnownTenure) -> bool {
        self.known.lock().tenures.get(locker).is_none_or(|tenure| before.has_all_of(tenure))
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

    /// Returns the first waiter, if a tenure knows it, and forgets it: after a refusal the tenure looks at the queue.
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

    /// Notes that a tenure sees the offer with this index to another tenure. Returns how much of its patience is left.
    ///
    /// The patience begins anew after a time in which the tenure has not looked: perhaps no one could reach the store then, so the other tenure could
    /// not confirm.
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

    /// Notes that the session of a tenure is about to be ended. Returns `false` if it must not be ended: the tenure has ended, and the session may
    /// belong to another one.
    pub(super) fn begin_end(&self, locker: &str, session: &str) -> bool {
        let tenures = &mut self.known.lock().tenures;
        let is_alone = |tenure: &&mut KnownTenure| tenure.session.id == session && !tenure.is_moved();
        let Some(tenure) = tenures.get_mut(locker).filter(is_alone) else { return false };
        tenure.doubt = tenure.doubt.max(Doubt::Gains);
        true
    }

    /// Notes that a request without an answer may let the client's next locker go on with the session of this one. The end of either tenure ends the
    /// session, so the next one never begins to hold.
    pub(super) fn doubt_pass(&self, locker: &str, next: &str) {
        let tenures = &mut self.known.lock().tenures;
        if let Some(tenure) = tenures.get(locker).cloned() {
            let doubt = Doubt::Loses;
            tenures.insert(next.to_owned(), KnownTenure { doubt, moving: None, extensions: 0, key: None, ..tenure });
        }
    }

    /// Has the client's next locker go on with the session of this one, which holds nothing in its own name any more. The store refuses a move of the
    /// earlier hold that is under way: the entry has another index.
    pub(super) fn pass(&self, locker: &str, next: &str) {
        let tenures = &mut self.known.lock().tenures;
        if let Some(tenure) = tenures.remove(locker) {
            tenures.insert(next.to_owned(), KnownTenure { moving: None, extensions: 0, key: None, ..tenure });
        }
    }

    /// Forgets a tenure that has ended with an answer. Its session is free for another one.
    pub(super) fn end(&self, locker: &str) {
        let Known { tenures, idle, .. } = &mut *self.known.lock();
        let Some(tenure) = tenures.remove(locker) else { return };
        let is_moved = tenure.is_moved();
        let KnownTenure { mut session, doubt, .. } = tenure;
        if let Mark::Ours(index) = session.mark {
            session.mark = Mark::Left(index);
        }
        if doubt == Doubt::None && !is_moved && idle.len() < MOST_IDLE {
            idle.push(session);
        }
    }

    /// Forgets a tenure whose session has ended.
    pub(super) fn forget(&self, locker: &str) {
        self.known.lock().tenures.remove(locker);
    }

    /// Forgets a tenure whose session has ended early, and all idle sessions: somebody may have ended those, too.
    pub(super) fn forget_with_idle(&self, locker: &str) {
        self.forget(locker);
        drop(self.take_all_idle());
    }

    /// Returns the sessions that nobody uses, to end them.
    pub(super) fn take_all_idle(&self) -> Vec<Session> {
        std::mem::take(&mut self.known.lock().idle)
    }

    /// Returns the holds that are to be moved: undecided ones, those that share a retired session, and long ones if more than `most_own` of them have
    /// the same life. In a pause it returns only those of a retired session, because each of these keeps a hold of another thread alive.
    pub(super) fn to_move(&self, most_own: usize) -> Vec<LongTenure> {
        let (now, known) = (SystemClock.now(), self.known.lock());
        let is_paused = known.pause.left > 0;
        let retired = known.retired(now);
        let is_long = |tenure: &KnownTenure| tenure.key.is_some() && tenure.is_movable() && !tenure.is_over(now);
        let long: Vec<_> = known.tenures.iter().filter(|(_, tenure)| is_long(tenure)).collect();
        let mut kinds = BTreeMap::<_, usize>::new();
        long.iter().for_each(|(_, tenure)| *kinds.entry(tenure.session.kind()).or_default() += 1);
        let is_many = |own: &Session| kinds.get(&own.kind()).is_some_and(|count| most_own < *count);
        let is_retired = |tenure: &KnownTenure| tenure.sessions().any(|session| retired.contains(session));
        let is_to_move = |tenure: &KnownTenure| match &tenure.moving {
            _ if is_paused || tenure.session.is_shared && tenure.moving.is_none() => is_retired(tenure),
            Some(_) => true,
            None => is_many(&tenure.session),
        };
        let to_move = long.iter().filter(|(_, tenure)| is_to_move(tenure));
        let hold = |(locker, tenure): &(&String, &KnownTenure)| LongTenure {
            key: tenure.key.clone().unwrap_or_default(),
            locker: (*locker).clone(),
            from: tenure.session.clone(),
            to: tenure.moving.clone(),
        };
        let mut holds: Vec<_> = to_move.map(hold).collect();
        // Holds with the same sessions follow one another, and undecided ones come first.
        holds.sort_by(|one, other| other.order().cmp(&one.order()));
        holds
    }

    /// Takes out a session that holds with such a life share, so that one thread at a time moves holds onto it.
    pub(super) fn take_shared(&self, like: &Session) -> Option<Session> {
        let (now, known) = (SystemClock.now(), &mut *self.known.lock());
        let retired = known.retired(now);
        known.shared.retain(|session| !retired.contains(&session.id));
        let place = known.shared.iter().position(|session| session.kind() == like.kind())?;
        Some(known.shared.swap_remove(place))
    }

    /// Puts such a session back. A session that is not put back keeps the holds that it has.
    pub(super) fn keep_shared(&self, session: Session) {
        self.known.lock().shared.push(session);
    }

    /// Notes how a round of moves has ended. One in a pause makes the pause neither longer nor shorter.
    pub(super) fn note_moves(&self, has_failed: bool) {
        let pause = &mut self.known.lock().pause;
        if pause.left > 0 {
            pause.left -= 1;
        } else {
            pause.length = if has_failed { (2 * pause.length).clamp(1, LONGEST_PAUSE) } else { 0 };
            pause.left = pause.length;
        }
    }

    /// Notes that a hold is about to be moved. Returns `false` if it must not be moved: it has another session by now, or a request of it had no
    /// answer.
    pub(super) fn begin_move(&self, hold: &LongTenure, to: &Session) -> bool {
        let is_so = |tenure: &&mut KnownTenure| {
            let is_free = tenure.moving.as_ref().is_none_or(|moving| moving.id == to.id);
            is_free && tenure.session.id == hold.from.id && tenure.is_movable()
        };
        let tenures = &mut self.known.lock().tenures;
        let Some(tenure) = tenures.get_mut(&hold.locker).filter(is_so) else { return false };
        tenure.moving = Some(to.clone());
        true
    }

    /// Notes that a hold was certainly moved onto this session, or certainly is not and never will be.
    pub(super) fn end_move(&self, locker: &str, to: &Session, is_moved: bool) {
        if let Some(tenure) = self.known.lock().tenures.get_mut(locker)
            && let Some(to) = tenure.moving.take_if(|moving| moving.id == to.id)
            && is_moved
        {
            tenure.go_on_with(to);
        }
    }
}

#[cfg(test)]
impl Sessions {
    /// Pretends that a hold was extended long ago.
    pub(super) fn age(&self, locker: &str) {
        let mut known = self.known.lock();
        let session = known.tenures.get_mut(locker).map(|tenure| &mut tenure.session);
        session.into_iter().for_each(|session| session.until = SystemClock.now().before(session.life.time));
    }
}

impl Known {
    /// The shared sessions of holds that nobody extends any more.
    fn retired(&self, now: Moment) -> HashSet<String> {
        let over = self.tenures.values().filter(|tenure| tenure.is_moved() && tenure.is_over(now));
        over.flat_map(|tenure| tenure.sessions().map(str::to_owned)).collect()
    }
}

impl LongTenure {
    fn order(&self) -> impl Ord {
        (self.destination(), self.from.is_shared, self.from.kind())
    }

    fn destination(&self) -> Option<&str> {
        self.to.as_ref().map(|to| to.id.as_str())
    }

    /// Returns whether one request may move both.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        self.destination() == other.destination() && self.from.kind() == other.from.kind()
    }
}

impl KnownTenure {
    /// The state of a tenure that begins.
    fn of(session: Session) -> Self {
        Self {
            session,
            moving: None,
            extensions: 0,
            key: None,
            doubt: Doubt::None,
            is_wanted: false,
            first: None,
            confirmed: None,
            seen: None,
        }
    }

    /// Whether a shared session holds its key, or may hold it.
    pub(super) fn is_moved(&self) -> bool {
        self.session.is_shared || self.moving.is_some()
    }

    /// Whether no request without an answer depends on its own session. If the hold may have been moved, each such request checks that it was not,
    /// and the repeated move checks that none of them was executed.
    fn is_movable(&self) -> bool {
        let is_moved = self.session.is_shared || self.moving.is_some() && self.doubt != Doubt::Loses;
        self.doubt == Doubt::None || is_moved
    }

    /// The sessions one of which holds its key.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &str> {
        iter::once(&self.session).chain(&self.moving).map(|session| session.id.as_str())
    }

    /// The one of these sessions that the snapshot shows.
    pub(super) fn seen(&self, snapshot: &Snapshot, locker: &str) -> &Session {
        self.moving.as_ref().filter(|to| snapshot.session_of(locker) == Some(&to.id)).unwrap_or(&self.session)
    }

    fn has_all_of(&self, other: &Self) -> bool {
        other.sessions().all(|id| self.sessions().any(|own| own == id))
    }

    /// Goes on with a shared session. `until` stays: it counts from the last extension.
    fn go_on_with(&mut self, shared: Session) {
        self.session = Session { mark: Mark::Ours(None), until: self.session.until, ..shared };
    }

    /// Whether nobody has extended it for a lease.
    fn is_over(&self, now: Moment) -> bool {
        let Session { until, life, .. } = &self.session;
        *until + life.needed < now + life.time
    }

    /// A tenure that another processor began.
    pub(super) fn of_another(session: &str, is_shared: bool, client: &str, life: Life) -> Self {
        let (id, client, until) = (session.to_owned(), client.to_owned(), SystemClock.now());
        let session = Session { id, client, life, until, mark: Mark::Ours(None), is_shared };
        Self { is_wanted: true, ..Self::of(session) }
    }
}

impl Session {
    /// Opens a session. Its life counts from before the request.
    pub(super) fn open(kv: &dyn Kv, life: Life, client: &str, deadline: Deadline) -> Result<Self, Error> {
        let begun = SystemClock.now();
        let id = kv.open_session(life, client, deadline)?;
        let (client, until) = (client.to_owned(), begun + life.time);
        Ok(Self { id, client, life, until, mark: Mark::Ours(None), is_shared: false })
    }

    /// Returns what sessions have in common of which one may stand in for another.
    fn kind(&self) -> (Life, &str) {
        (self.life, &self.client)
    }

    /// Renews it. Returns `false` if it has ended.
    pub(super) fn renew(&mut self, kv: &dyn Kv, deadline: Deadline) -> Result<bool, Error> {
        let sent_at = SystemClock.now();
        let lives = kv.renew(&self.id, deadline)?;
        self.until = sent_at + self.life.time;
        Ok(lives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of an outage or of a suspend does not count as time in which the other tenure has not confirmed.
    #[test]
    fn patience_ends_for_whoever_looks_all_the_time() {
        let look = || {
            let (sessions, begun) = (Sessions::default(), SystemClock.now());
            let [time, needed] = [Duration::from_secs(12); 2];
            let (life, mark) = (Life { time, needed, delay: Duration::ZERO }, Mark::Ours(None));
            let (id, client, until) = ("s".into(), "b".into(), begun + time);
            sessions.enter("b-1", Session { id, client, life, until, mark, is_shared: false });
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
