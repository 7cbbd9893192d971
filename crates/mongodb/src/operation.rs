//! The operations on a key: each is one `findAndModify` of the key's document by an update pipeline, and so one atomic step.
//!
//! The document of a lock, in the database of the store, collection `locks`:
//!
//! | field | contains |
//! |---|---|
//! | `_id` | the key |
//! | `state` | 2 held, 0 free. The 1 of the original, "being taken", is never seen: taking is one step |
//! | `who`, `process`, `when`, `why` | the locker that holds the key, its client, since when, and its reason. In state 0: of the last hold |
//! | `ts` | the number of the tenure, which tells tenures apart, as the original's `ts` does |
//! | `until` | the end of the lease; absent if it never ends |
//! | `queue` | who waits, the longest first: `who`, `process`, `why`, `lease` in ms, `since`, and `seen`, when it last asked |
//! | `at`, `behind` | the server's clock at the last operation, and by how many ms that was before the operation before it |
//! | `granted`, `contended`, `broken` | what the last operation tells clients, for their change streams; absent if nothing |
//! | `calls` | how often a holder was told that others wait, so that no two of these messages are the same |
//! | `was` | whether the last operation found what it needs: an acquire a free key, a poll its locker in the queue, a release, a delay or a break its locker as the holder |
//! | `breaks` | whose holds were broken lately, by whom, why, and until when this is told |
//! | `forget` | when the document may go, by a TTL index: a day after everything in it has ended |
//!
//! *Time.* `$$NOW`, the clock of the primary that executes the command, is the only clock. So no clock of a client matters. A lease that has
//! ended is ended by the first stage of whichever operation comes next. The index sweeps documents that nobody uses; it ends no lease.
//!
//! *Numbers.* A number is one more than the last one of the document, or the clock in microseconds if that is more. So numbers rise in a
//! document whatever the clock does. A document that the index has removed had its last number a day ago, and the next number is from the
//! clock.
//!
//! *Which document.* A filter takes only documents whose `ts` is a number of ours. If another program has written a document with this `_id`,
//! the insertion of ours fails as a duplicate, and nothing is changed.
//!
//! | what may happen | why it does no harm |
//! |---|---|
//! | the command arrives late | it names its locker. A late extension or poll shortens no lease. A late extension, release, delay or break of a locker that does not hold the key changes nothing. A late acquire takes the key for a locker that its client has given up. The client repeats the release of such a locker for a lease, and the lease ends what is left |
//! | the command waits in the server, or runs again after a write conflict | `$$NOW` is the time of its beginning. So the lease of somebody else counts as ending later. An own one begins after the command was sent, from when the client counts it. One that a waiter is granted begins after its last poll |
//! | the reply is lost | the outcome is unknown. Nothing is sent again by the store or by the driver, so nothing is executed twice. The client polls, and the poll tells what became of the locker |
//! | a primary is deposed while it executes | the write is acknowledged by a majority, or the command fails. What a majority has acknowledged is on every later primary: holder, queue and number. What is rolled back was never acknowledged |
//! | a deposed primary still answers | a majority does not acknowledge its writes, and every outcome that decides something is that of a write, a probe and a failed acquire, too |
//! | a majority does not acknowledge in time (`writeConcernError`) | the write may stay or be rolled back: unknown |
//! | the new primary's clock is behind | leases end late, by the difference; numbers rise all the same. `behind` shows it, and the log warns |
//! | the new primary's clock is ahead | leases end early, by the difference, and two clients may believe to hold the key. Tokens rise, so a resource that checks them is safe |
//! | a deposed primary has not the document of the key | it writes nothing, and so no majority is asked. The holder is told of a loss that has not happened, or a waiter that it no longer waits. Nobody gets the key by that. Only a client with `directConnection=true` asks such a server |
//! | two first acquires of a key race to insert its document | one of them fails as a duplicate without a change, and is sent again |

use crate::expression::{
    ABSENT, after, all, any, chain, cond, date, eq, field, filter, greatest, gt, latest, literal, long, map, millis,
    ne, not, now, or, set, size, sum, text, words,
};
use crate::timing::{FORGET, TOLD};
use mongodb::bson::{Bson, Document, doc};
use redis_dlock::port::{Break, Claim, ReleaseDelay};
use std::time::Duration;

/// How many numbers an extension fetches: the clock's numbers of a millisecond. So even a document that is deleted by hand right after has
/// greater numbers in the next millisecond.
pub(crate) const RANGE: i64 = 1000;

/// How many broken holds a document tells of.
const MOST_BROKEN: i64 = 100;

const FREE: i32 = 0;
const HELD: i32 = 2;

/// A command that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) key: String,
    /// Empty if the document is only read.
    pub(crate) pipeline: Vec<Document>,
    /// Whether it makes the document if there is none.
    pub(crate) inserts: bool,
}

impl Command {
    /// Takes the key if it is free and nobody alive waits; otherwise gives a free key to the first live waiter.
    ///
    /// A key that has this very locker already is busy: a copy of the process has made the same locker. A client acquires once with each.
    pub(crate) fn acquire(claim: &Claim<'_>) -> Self {
        Self { inserts: true, ..Stages::acquire(claim).end(claim.key) }
    }

    /// Acquires. Whoever does not get the key joins the end of the queue, and the holder is told if nobody waited before.
    pub(crate) fn join(claim: &Claim<'_>) -> Self {
        let is_new = all([not(holds(claim.locker)), not(queues(claim.locker))]);
        Self { inserts: true, ..Stages::acquire(claim).enqueue(is_new, claim).end(claim.key) }
    }

    /// Tells what became of a locker. One that holds the key has its lease begun again. One that waits is seen to live; a free key
    /// goes to the first live waiter, and the asker counts as live. If the first waiter asks, the holder is told that it waits. For any
    /// other locker nothing is changed.
    pub(crate) fn poll(claim: &Claim<'_>) -> Self {
        let me = literal(claim.locker);
        let seen = cond(
            eq("$$this.who", me.clone()),
            doc! { "$mergeObjects": ["$$this", { "seen": latest("$$this.seen", now()), "lease": long(claim.lease) }] },
            "$$this",
        );
        let head = doc! { "$arrayElemAt": [map("$queue", "$$this.who"), 0] };
        let stages = Stages::begin()
            .set(doc! { "was": queues(claim.locker), "queue": map("$queue", seen) })
            .give(field("was"), Some(claim.locker))
            .set(extended(claim));
        stages.call(all([field("was"), not("$won"), eq(head, me)])).end(claim.key)
    }

    /// Begins the lease again if the locker holds the key.
    pub(crate) fn extend(claim: &Claim<'_>) -> Self {
        Stages::extend(claim).end(claim.key)
    }

    /// Extends, and issues a range of numbers.
    pub(crate) fn extend_with_numbers(claim: &Claim<'_>) -> Self {
        let last = sum([next_number(), (RANGE - 1).into()]);
        Stages::extend(claim).set(doc! { "ts": cond(holds(claim.locker), last, "$ts") }).end(claim.key)
    }

    /// Ends a tenure if the locker holds the key: gives the key to the first live waiter, or to `next` if nobody waits, or frees it. A
    /// `next` that does not get the key joins the end of the queue. A locker that does not hold the key leaves the queue.
    pub(crate) fn release(claim: &Claim<'_>, next: Option<&Claim<'_>>) -> Self {
        let mut stages = Stages::begin().set(doc! { "was": holds(claim.locker) });
        stages = stages.set(doc! {
            "state": cond("$was", FREE, "$state"),
            "queue": filter("$queue", ne("$$this.who", literal(claim.locker))),
        });
        stages = stages.give(field("was"), None);
        if let Some(next) = next {
            stages = stages.take(all([field("was"), is_free()]), next);
            stages = stages.enqueue(all([field("was"), not(holds(next.locker))]), next);
        }
        stages.end(claim.key)
    }

    /// Ends a tenure if the locker, or its mark already, holds the key: the mark holds the key from now on, for its time. The queue stays.
    pub(crate) fn delay(claim: &Claim<'_>, delay: &ReleaseDelay<'_>) -> Self {
        let mark = || literal(delay.mark);
        let stages = Stages::begin().set(doc! { "was": any([holds(claim.locker), holds(delay.mark)]) });
        let stages = stages.set(doc! {
            "who": cond("$was", mark(), "$who"),
            "process": cond("$was", ABSENT, "$process"),
            // Both times are cut to milliseconds.
            "until": cond("$was", after(delay.time + Duration::from_millis(2)), "$until"),
        });
        stages.end(claim.key)
    }

    /// Reads who holds the key and who waits, for people: the answer may be out of date.
    pub(crate) fn look(key: &str) -> Self {
        Self { key: key.to_owned(), pipeline: Vec::new(), inserts: false }
    }

    /// Tells who holds the key, by a write of the clock. A read would not do: a deposed primary answers reads, and a majority acknowledges none
    /// of its writes.
    pub(crate) fn probe(key: &str) -> Self {
        Stages::begin().end(key)
    }

    /// Takes the key from the locker if it holds it, and gives it to the first live waiter, or frees it. The holder is told, and the order is
    /// kept for as long as the lease would have lasted, and for a minute at least.
    pub(crate) fn break_hold(order: &Break<'_>) -> Self {
        let told = greatest([sum([now(), long(TOLD).into()]), millis("$until")]);
        let entry =
            doc! { "who": "$who", "by": literal(order.by), "reason": literal(order.reason), "until": date(told) };
        let breaks = doc! { "$slice": [chain([field("breaks"), vec![entry].into()]), -MOST_BROKEN] };
        let stages = Stages::begin().set(doc! { "was": holds(order.locker) });
        let stages = stages.set(doc! {
            "state": cond("$was", FREE, "$state"),
            "breaks": cond("$was", breaks, "$breaks"),
            "broken": cond(all([field("was"), has_process()]), "$who", ABSENT),
        });
        stages.give(field("was"), None).end(order.key)
    }
}

/// The stages of one operation.
struct Stages(Vec<Document>);

impl Stages {
    /// The first stage of all: what has ended by the clock of now is over, and what the last operation told is told.
    fn begin() -> Self {
        let until = or("$until", Bson::Null);
        let is_live = all([eq("$state", HELD), any([eq(until, Bson::Null), gt(millis("$until"), now())])]);
        Self(Vec::new()).set(doc! {
            "state": cond(is_live, HELD, FREE),
            "ts": or("$ts", 0_i64),
            "queue": filter(or("$queue", Bson::Array(Vec::new())), gt(seen_for(1), now())),
            "breaks": filter(or("$breaks", Bson::Array(Vec::new())), gt(millis("$$this.until"), now())),
            "calls": or("$calls", 0_i64),
            "behind": greatest([0_i64.into(), doc! { "$subtract": [millis(or("$at", "$$NOW")), now()] }.into()]),
            "at": "$$NOW",
            "granted": ABSENT,
            "contended": ABSENT,
            "broken": ABSENT,
            "was": ABSENT,
        })
    }

    fn acquire(claim: &Claim<'_>) -> Self {
        Self::begin().give(true.into(), None).set(doc! { "was": is_free() }).take(field("was"), claim)
    }

    fn extend(claim: &Claim<'_>) -> Self {
        Self::begin().set(extended(claim))
    }

    fn set(mut self, fields: Document) -> Self {
        self.0.push(set(fields));
        self
    }

    /// Gives a free key to the first live waiter, if it `may` be given away. A waiter is live if it was seen within half its lease, which is
    /// three of its polls. One that was not keeps its place for another half, and gets the key when it asks. The asker is live.
    fn give(self, may: Bson, asker: Option<&str>) -> Self {
        let is_asker = asker.map_or(Bson::Boolean(false), |asker| eq("$$this.who", literal(asker)));
        let live = filter("$queue", any([is_asker, gt(seen_for(2), now())]));
        let winner = doc! { "$arrayElemAt": [live, 0] };
        let won = |theirs: Bson, others: &str| cond("$won", theirs, others);
        let is_told = match asker {
            Some(asker) => all([field("won"), ne("$won.who", literal(asker))]),
            None => all([field("won")]),
        };
        self.set(doc! { "won": cond(all([may, is_free()]), winner, Bson::Null) }).set(doc! {
            "state": won(HELD.into(), "$state"),
            "who": won(field("won.who"), "$who"),
            "process": won(field("won.process"), "$process"),
            "why": won(field("won.why"), "$why"),
            "when": won("$$NOW".into(), "$when"),
            // Not from before its last poll, from when its client may count: this command may have waited in the server since before that.
            "until": won(date(sum([millis(latest("$won.seen", now())), field("won.lease")])), "$until"),
            "ts": won(next_number(), "$ts"),
            "queue": won(filter("$queue", ne("$$this.who", "$won.who")), "$queue"),
            // Written in full by the last stage, which knows the length of the queue.
            "granted": cond(is_told, "$won.who", ABSENT),
        })
    }

    /// Makes a locker the holder, if the condition holds.
    fn take(self, condition: Bson, claim: &Claim<'_>) -> Self {
        let taken = |ours: Bson, others: &str| cond(condition.clone(), ours, others);
        let fields = doc! {
            "state": taken(HELD.into(), "$state"),
            "who": taken(literal(claim.locker), "$who"),
            "process": taken(literal(claim.client), "$process"),
            "why": taken(why(claim), "$why"),
            "when": taken("$$NOW".into(), "$when"),
            "until": taken(after(claim.lease), "$until"),
            "ts": taken(next_number(), "$ts"),
        };
        self.set(fields)
    }

    /// Puts a locker at the end of the queue, if the condition holds. The holder is told if it is the first, unless its grant will tell it.
    fn enqueue(self, condition: Bson, claim: &Claim<'_>) -> Self {
        let entry = doc! {
            "who": literal(claim.locker),
            "process": literal(claim.client),
            "why": why(claim),
            "lease": long(claim.lease),
            "since": "$$NOW",
            "seen": "$$NOW",
        };
        let is_first = all([condition.clone(), eq(size("$queue"), 0), not("$won")]);
        self.call(is_first)
            .set(doc! { "queue": cond(condition, chain([field("queue"), vec![entry].into()]), "$queue") })
    }

    /// Tells the holder that others wait, if the condition holds. A holder that is not ours has no client to be told.
    fn call(self, condition: Bson) -> Self {
        let is_told = all([condition, eq("$state", HELD), has_process()]);
        let calls = sum([field("calls"), 1.into()]);
        self.set(doc! {
            "contended": cond(is_told.clone(), words([field("who"), text(calls.clone())]), ABSENT),
            "calls": cond(is_told, calls, "$calls"),
        })
    }

    /// The last stage. Everything of the document has ended a day before it may go. A hold without an end keeps it.
    fn end(self, key: &str) -> Command {
        let granted = words([field("granted"), text("$ts"), text(size("$queue"))]);
        let is_endless = all([eq("$state", HELD), eq(or("$until", Bson::Null), Bson::Null)]);
        let ends = chain([
            vec![now(), cond(eq("$state", HELD), millis("$until"), Bson::Null)].into(),
            map("$queue", seen_for(1)),
            map("$breaks", millis("$$this.until")),
        ]);
        let last: Bson = doc! { "$max": ends }.into();
        let forget = date(sum([last, long(FORGET).into()]));
        let Self(pipeline) = self.set(doc! {
            "granted": cond(ne(or("$granted", ""), ""), granted, ABSENT),
            "forget": cond(is_endless, ABSENT, forget),
            "won": ABSENT,
        });
        Command { key: key.to_owned(), pipeline, inserts: false }
    }
}

/// The lease begins again, if the locker holds the key. It never ends earlier than before: this command may have waited in the server while a
/// later one was executed.
fn extended(claim: &Claim<'_>) -> Document {
    doc! { "until": cond(holds(claim.locker), latest("$until", sum([now(), long(claim.lease).into()])), "$until") }
}

fn is_free() -> Bson {
    eq("$state", FREE)
}

fn holds(locker: &str) -> Bson {
    all([eq("$state", HELD), eq("$who", literal(locker))])
}

fn queues(locker: &str) -> Bson {
    doc! { "$in": [literal(locker), map("$queue", "$$this.who")] }.into()
}

fn has_process() -> Bson {
    ne(or("$process", ""), "")
}

/// When the time has passed, since this waiter was last seen, that is a part of its lease.
fn seen_for(part: i64) -> Bson {
    let lease = if part == 1 { field("$this.lease") } else { doc! { "$divide": ["$$this.lease", part] }.into() };
    sum([millis("$$this.seen"), lease])
}

fn next_number() -> Bson {
    greatest([sum([field("ts"), 1.into()]), doc! { "$multiply": [now(), 1000] }.into()])
}

fn why(claim: &Claim<'_>) -> Bson {
    claim.note.why.map_or(ABSENT.into(), literal)
}
