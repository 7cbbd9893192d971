//! Which public types go to other threads. The compiler checks it; the test at the end checks that no type is missing.

use dlock_conformance::{Client, InboxReader, Store, Suite, Tenure};
use redis_dlock::event::{Acquired, Dropped, HoldEnd, How, NewServer, Released, RenewedLate, StoreBack, StoreFailing};
#[cfg(feature = "tls")]
use redis_dlock::processor::TlsSettings;
use redis_dlock::processor::{
    AcquireOutcome, Break, BreakOutcome, Broken, Busy, Claim, DeadWaiters, DelayReleaseOutcome, Directory,
    ExtendOutcome, Extension, Gap, Grant, Inbox, InboxBreaker, Inspection, KeyFilter, Limit, ListPage, Message,
    NotOurs, Note, Operations, Outcome, Parties, PollOutcome, Posting, ProbeOutcome, ReleaseDelay, ReleaseDone,
    ReleaseOutcome, Request, StoreLimits, WaitQueue,
};
use redis_dlock::{
    BackendFailure, CancelToken, Cause, ClientRecord, Clock, DLockConfig, DLockGenerator, DLockGuard, DLockGuards,
    DelayedRelease, Description, DistributedReentrantLock, Error, Event, GeneratorBuilder, Hold, HoldFuture, Holder,
    Holds, Leader, LeaseLoss, ListedLock, ListedLocks, LockProcessor, LockState, LossCause, LossFuture, ManualClock,
    MemoryLockProcessor, Moment, OwnedDLockGuard, Party, Polling, Receiver, RedisBuilder, RedisLockProcessor,
    ReleaseFuture, Server, SlowWait, SystemClock, Term, Told, TryHoldFuture, UnguardedLock, WaitingThread,
};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;

const fn goes_anywhere<T: Send + Sync + ?Sized>() {}
const fn is_looked_at_from_anywhere<T: Sync>() {}
const fn moves<T: Send + ?Sized>() {}
const fn survives_a_panic<T: UnwindSafe + RefUnwindSafe>() {}

const _: () = {
    // What a program holds.
    goes_anywhere::<DLockGenerator>();
    goes_anywhere::<GeneratorBuilder>();
    goes_anywhere::<DLockConfig>();
    goes_anywhere::<DistributedReentrantLock>();
    goes_anywhere::<UnguardedLock>();
    goes_anywhere::<Hold>();
    goes_anywhere::<Holds>();
    goes_anywhere::<HoldFuture>();
    goes_anywhere::<TryHoldFuture>();
    goes_anywhere::<ReleaseFuture>();
    goes_anywhere::<LossFuture>();
    goes_anywhere::<Leader>();
    goes_anywhere::<Term>();
    goes_anywhere::<CancelToken>();
    goes_anywhere::<Receiver<()>>();
    // The thread that locked must unlock.
    is_looked_at_from_anywhere::<DLockGuard<'_>>();
    is_looked_at_from_anywhere::<OwnedDLockGuard>();
    is_looked_at_from_anywhere::<DLockGuards>();

    // They may be used inside `catch_unwind`, as what the standard library has for threads.
    survives_a_panic::<DLockGenerator>();
    survives_a_panic::<DLockConfig>();
    survives_a_panic::<DistributedReentrantLock>();
    survives_a_panic::<UnguardedLock>();
    survives_a_panic::<CancelToken>();
    survives_a_panic::<DLockGuard<'_>>();
    survives_a_panic::<OwnedDLockGuard>();
    survives_a_panic::<DLockGuards>();
    survives_a_panic::<Hold>();
    survives_a_panic::<Holds>();
    survives_a_panic::<Leader>();
    survives_a_panic::<Term>();
    survives_a_panic::<Error>();

    // What it is told.
    goes_anywhere::<Holder>();
    goes_anywhere::<LockState>();
    goes_anywhere::<Event>();
    goes_anywhere::<Acquired>();
    goes_anywhere::<How>();
    goes_anywhere::<Released>();
    goes_anywhere::<HoldEnd>();
    goes_anywhere::<RenewedLate>();
    goes_anywhere::<SlowWait>();
    goes_anywhere::<StoreFailing>();
    goes_anywhere::<StoreBack>();
    goes_anywhere::<NewServer>();
    goes_anywhere::<Dropped>();
    goes_anywhere::<Description>();
    goes_anywhere::<DelayedRelease>();
    goes_anywhere::<Party>();
    goes_anywhere::<ClientRecord>();
    goes_anywhere::<Told>();
    goes_anywhere::<WaitingThread>();
    goes_anywhere::<ListedLock>();
    goes_anywhere::<ListedLocks>();
    goes_anywhere::<LeaseLoss>();
    goes_anywhere::<LossCause>();
    goes_anywhere::<Error>();
    goes_anywhere::<BackendFailure>();
    goes_anywhere::<Cause>();

    // Stores and clocks.
    goes_anywhere::<MemoryLockProcessor>();
    goes_anywhere::<RedisLockProcessor>();
    goes_anywhere::<Polling>();
    goes_anywhere::<RedisBuilder>();
    goes_anywhere::<Server>();
    goes_anywhere::<dyn LockProcessor>();
    goes_anywhere::<Moment>();
    goes_anywhere::<SystemClock>();
    goes_anywhere::<ManualClock>();
    goes_anywhere::<dyn Clock>();

    // The port.
    goes_anywhere::<Claim<'_>>();
    goes_anywhere::<Note<'_>>();
    goes_anywhere::<Gap>();
    goes_anywhere::<Grant>();
    goes_anywhere::<Busy>();
    goes_anywhere::<AcquireOutcome>();
    goes_anywhere::<PollOutcome>();
    goes_anywhere::<ExtendOutcome>();
    goes_anywhere::<Extension>();
    goes_anywhere::<ReleaseOutcome>();
    goes_anywhere::<DelayReleaseOutcome>();
    goes_anywhere::<ReleaseDelay<'_>>();
    goes_anywhere::<ProbeOutcome>();
    goes_anywhere::<NotOurs>();
    goes_anywhere::<Inspection>();
    goes_anywhere::<Break<'_>>();
    goes_anywhere::<BreakOutcome>();
    goes_anywhere::<Broken>();
    goes_anywhere::<Request<'_>>();
    goes_anywhere::<Limit>();
    goes_anywhere::<dyn Operations>();
    goes_anywhere::<Outcome>();
    goes_anywhere::<Message>();
    goes_anywhere::<StoreLimits>();
    goes_anywhere::<DeadWaiters>();
    goes_anywhere::<Parties>();
    goes_anywhere::<ListPage>();
    goes_anywhere::<dyn Directory>();
    goes_anywhere::<dyn WaitQueue>();
    goes_anywhere::<dyn Posting>();
    goes_anywhere::<dyn InboxBreaker>();
    goes_anywhere::<KeyFilter>();
    #[cfg(feature = "tls")]
    goes_anywhere::<TlsSettings>();
    // One thread at a time uses them.
    moves::<dyn Inbox>();
    moves::<ReleaseDone>();

    // The conformance suite.
    goes_anywhere::<Suite>();
    goes_anywhere::<Client<'_>>();
    goes_anywhere::<Tenure>();
    goes_anywhere::<dyn Store>();
    moves::<InboxReader>();
};

fn public_types(directory: &Path, types: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        // The specification, which only tests reach.
        if entry.ends_with("memory/spec") {
            continue;
        }
        if entry.is_dir() {
            public_types(&entry, types);
            continue;
        }
        for line in std::fs::read_to_string(&entry).unwrap().lines() {
            let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            if let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) {
                types.extend(rest.split(|c: char| !c.is_alphanumeric()).next().map(str::to_owned));
            }
        }
    }
}

#[test]
fn no_public_type_is_missing() {
    let mut types = Vec::new();
    public_types(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut types);
    assert!(types.len() > 50, "{types:?}");
    let asserted = |name: &String| {
        include_str!("send_sync.rs").lines().any(|line| {
            let asserted = line.split_once("::<").map(|(_, of)| of.trim_start_matches("dyn "));
            asserted.is_some_and(|of| of.split(|c: char| !c.is_alphanumeric()).next() == Some(name.as_str()))
        })
    };
    types.retain(|name| !asserted(name));
    assert!(types.is_empty(), "neither Send nor Sync is asserted for {types:?}");
}
