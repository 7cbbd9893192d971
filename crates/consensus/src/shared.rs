//! How long holds of a client come to share a session, if the program wants it, on a store that renews each session by a request of its own: Consul.
//!
//! A hold begins with a session of its own, because an acquire without an answer is settled by the end of its session. Once it has been extended a
//! few times it is *moved*: one transaction passes the lock's entry to a session that all long holds of the client with the same lease and
//! lock-delay share. One request then renews them all. The hold's own session stays until its life ends. Holds of one client on one store are counted
//! together, and share a session. The pause after a failure is the store's.
//!
//! | state of a hold | its key is held by | an extension counts if | leaves it by |
//! |---|---|---|---|
//! | own | its own session | that session was renewed | the request that moves it: undecided |
//! | undecided | one of two sessions | both were renewed, or the shared one that a look shows | "done", or a look that shows the shared session: moved; "no session", of the shared one: own |
//! | moved | the shared session | that session was renewed | its end; the request that moves it onto another one, because this one is retired: undecided |
//!
//! After any other answer to a move, or none, the hold is undecided: a proxy may have repeated the move, and this answer may be that of the
//! repetition. The same move is then repeated, onto the same session, with the index that the entry has by then.
//!
//! Invariants:
//!
//! 1. A move checks the index of the entry, and an index never comes back. So of all moves of a hold onto one session one is executed at most, and
//!    none after a release, a break, a new number, or the end of either session.
//! 2. Each request that takes a key from a shared session, or writes its entry again, checks the index of the entry. So a request without an answer
//!    is settled by repeating it, until the entry has another index or has gone. No session is ended for it.
//! 3. No request that gives a key, or a place in the queue, to a locker names a shared session. So the next locker of a hand-over has a session of
//!    its own, and so has a tenure that is doomed, or in doubt of its gains.
//! 4. No request ends a shared session, and none deletes an entry because of what this process remembers of extensions: a copy of the process
//!    remembers others. A session with a hold that nobody has extended for a lease is *retired*: the other holds are moved off it, so
//!    nobody renews it, and Consul ends it.
//! 5. A look counts for a hold only if no thread has begun to move the hold since its sessions were read. Otherwise all is done again.
//! 6. The moves onto a session check and write its [mark](super::sessions), so only one of two copies of the process goes on to move holds onto it.
//!    Repetitions do not, nor do the halves of a refused group: the session takes no other holds from then on. The copy that is the first to move a
//!    hold keeps it, and the other one learns that it has lost the hold.
//! 7. An extension sends no write. Moves begin once the client has been told of all extensions of the round.
//!
//! | a request that is executed late | does nothing, because |
//! |---|---|
//! | move | the entry has another index after a release, a hand-over, a break, a new number, another move, or the end of the session that it moves off; and a shared session that has ended locks nothing. Otherwise the hold expects it: it is undecided |
//! | release, gift, hand-over, delayed release of a moved hold | the entry has another index once a repetition was answered. A next locker has a session of its own, which its settling ends |
//! | new number | the same. Executed, it changes nothing but the number, and refuses a move that is under way |
//! | release, new number with the own session, sent before the move | that session does not hold the entry, and never will again |
//! | end of the own session | it holds nothing after a move, and a hold that is not moved yet is to end with it |
//! | renewal | all holds of the session live longer, as after an extension whose answer is lost. A hold that is not extended ends by rule 4 |
//!
//! *Why the own session of an undecided hold serves no other tenure.* A request that takes the key from it would check only that session, and the
//! move may still be executed.
//!
//! | event | effect on the holds of a shared session |
//! |---|---|
//! | it ends | all are lost, and each is told; the lock-delay of each begins, as it must |
//! | an operator breaks one | its entry has another index. The others are moved, if its guard lives on for a lease |
//! | one is not extended any more, because its thread has ended | the others are moved, 200 a round or so. It is kept until the last one has left, for two leases and a half more, and its lock-delay |
//! | the servers restart, or another one begins to lead | its life begins again. A renewal that finds no session decides nothing: see [`renew`](ConsensusStore::renew) |
//! | the client closes | each is released with a look. The session ends by itself |
//!
//! *The token* is the index at which the key was acquired. A move changes the index of the entry, so the moved entry contains the number. Every later
//! hold of the key has a greater one: its index comes after that of the move.
//!
//! *What others see.* The entry is held all the time, and has `LockFlagValue`: `consul lock` and `api.Lock` look once more and wait on. Both sessions
//! have the same lock-delay. It begins when the session that holds the key ends. An `unlock` begins none.
//!
//! *What it costs.* A move costs a look and a write for twenty holds. Each hold then costs one more look before its release, and a new session for
//! the next tenure. If a group is refused, its halves are moved. A pause follows each round with a failure, and doubles. Holds leave a retired
//! session even in a pause.

use super::deadline::Deadline;
use super::gift::take_up;
use super::kv::{Committed, Transaction, Write};
use super::names;
use super::sessions::{LongTenure, Mark, Session};
use super::store::ConsensusStore;
use super::timing::MOVING;
use redis_dlock::Error;

/// How many holds one request moves: each has three operations, and the mark has two. Older versions of Consul take 64.
const MOST: usize = 20;

/// The longest entry that is moved, with its path. A request contains each entry twice, and Consul takes 512 KiB.
const LONGEST: usize = 4096;

/// Moves the holds of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing<'a> {
    pub(super) store: &'a ConsensusStore,
    pub(super) deadline: Deadline,
    /// The moment until which moves begin. A later request is likely to have no answer.
    pub(super) begins: Deadline,
}

impl Sharing<'_> {
    /// Moves the holds that are to be moved. A hold whose move fails, or for which no time is left, is moved later.
    pub(super) fn share(self) {
        let (kv, sessions) = (&self.store.kv, &self.store.sessions);
        let most_own = kv.most_own_sessions();
        if most_own == usize::MAX {
            return;
        }
        let holds = sessions.to_move(if kv.has_no_node() { usize::MAX } else { most_own });
        let mut are_moved = true;
        for group in holds.chunk_by(LongTenure::goes_with) {
            match self.move_group(group) {
                Ok(is_moved) => are_moved &= is_moved,
                // A server that hangs would delay the lease thread once for each group.
                Err(_) => return sessions.note_moves(true),
            }
        }
        sessions.note_moves(!are_moved);
    }

    /// Moves holds with the same life onto one session. Returns whether all of them are moved, or need not be.
    fn move_group(self, group: &[LongTenure]) -> Result<bool, Error> {
        let mut to = match &group[0].to {
            Some(to) => Session { mark: Mark::Ours(None), ..to.clone() },
            // Nothing is sent, so no pause follows.
            None if self.store.kv.has_no_node() => return Ok(true),
            None => self.shared(&group[0].from)?,
        };
        // The new session may be the first on the node of an agent, and would end with that agent.
        if group[0].to.is_none() && self.store.kv.has_no_node() {
            return Ok(false);
        }
        let mut are_moved = true;
        for some in group.chunks(MOST).take_while(|_| self.begins.left().is_ok()) {
            are_moved &= self.move_some(some, &mut to)?;
            if group[0].to.is_none() && to.mark == Mark::Ours(None) {
                // No other hold is moved onto it.
                return Ok(false);
            }
        }
        if let Mark::Left(_) = to.mark {
            self.store.sessions.keep_shared(to);
        }
        Ok(are_moved)
    }

    /// Returns a living session to share.
    fn shared(self, like: &Session) -> Result<Session, Error> {
        let (kv, deadline) = (&*self.store.kv, self.deadline.at_most(MOVING));
        while let Some(mut session) = self.store.sessions.take_shared(like) {
            if session.renew(kv, deadline)? {
                return Ok(session);
            }
        }
        let session = Session::open(kv, like.life, &like.client, deadline)?;
        Ok(Session { mark: Mark::Left(None), is_shared: true, ..session })
    }

    /// Moves some holds, all or none, and then the halves of them. Returns whether all of them are moved, or need not be.
    fn move_some(self, some: &[LongTenure], to: &mut Session) -> Result<bool, Error> {
        let (store, sessions) = (self.store, &self.store.sessions);
        let paths: Vec<_> = some.iter().map(|hold| store.names.lock(&hold.key)).collect();
        let looks = store.kv.look_all(&paths, self.deadline.at_most(MOVING))?;
        let (mut transaction, mut moved) = (Transaction::default(), Vec::new());
        for ((hold, path), entries) in some.iter().zip(paths).zip(looks) {
            let Ok(snapshot) = store.read(&hold.key, entries) else { continue };
            if snapshot.is_held_by(&to.id, &hold.locker).is_some() {
                sessions.end_move(&hold.locker, to, true);
                continue;
            }
            let Some(holder) = snapshot.is_held_by(&hold.from.id, &hold.locker) else { continue };
            let Some(value) = names::moved(&holder.value, Some(holder.number())) else { continue };
            if path.len() + value.len() > LONGEST || !sessions.begin_move(hold, to) {
                continue;
            }
            transaction.checks.push(holder.is_unchanged(path.clone()));
            transaction.writes.push(Write::Pass { path, from: hold.from.id.clone(), to: to.id.clone(), value });
            moved.push(hold);
        }
        let Some(first) = moved.first() else { return Ok(true) };
        take_up(&store.names, &mut transaction, to, &first.locker);
        let committed = store.kv.commit(&transaction, self.deadline.at_most(MOVING));
        let end = |is_moved| moved.iter().for_each(|hold| sessions.end_move(&hold.locker, to, is_moved));
        match committed {
            Ok(Committed::Done { index, .. }) => {
                end(true);
                if let Mark::Left(_) = to.mark {
                    to.mark = Mark::Left(Some(index));
                }
                return Ok(true);
            }
            Ok(Committed::NoSession) => end(false),
            Err(error @ Error::Backend { .. }) => return Err(error),
            // One of them has the others refused, or a copy of this process has the session.
            Ok(_) | Err(_) if some.len() > 1 => {
                to.mark = Mark::Ours(None);
                let (one, other) = some.split_at(some.len() / 2);
                return Ok(self.move_some(one, to)? & self.move_some(other, to)?);
            }
            Ok(_) | Err(_) => {}
        }
        to.mark = Mark::Ours(None);
        Ok(false)
    }
}
