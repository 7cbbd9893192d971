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
    DelayedRelease, Description, DistributedReentrantLock, Error, Event, GeneratorBuilder, Hold, HoldAllFuture,
    HoldFuture, Holder, Holds, Leader, LeaseLoss, ListedLock, ListedLocks, LockProcessor, LockState, LossCause,
    LossFuture, ManualClock, MemoryLockProcessor, Moment, OwnedDLockGuard, Party, Polling, Receiver, RedisBuilder,
    RedisLockProcessor, ReleaseFuture, Server, SlowWait, SystemClock, Term, Told, TryHoldFuture, UnguardedLock,
    WaitingThread,
};
use std::collections::HashSet;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;

const fn goes_anywhere<T: Send + Sync + ?Sized>() {}
const fn is_looked_at_from_anywhere<T: Sync>() {}
const fn moves<T: Send + ?Sized>() {}
const fn survives_a_panic<T: UnwindSafe + RefUnwindSafe>() {}

/// Asserts the same of several types.
macro_rules! each {
    ($assertion:ident: $($type:ty),+) => {
        $($assertion::<$type>();)+
    };
}

const _: () = {
    // What a program holds.
    each!(goes_anywhere:
        DLockGenerator, GeneratorBuilder, DLockConfig, DistributedReentrantLock, UnguardedLock, Hold, Holds,
        HoldAllFuture, HoldFuture, TryHoldFuture, ReleaseFuture, LossFuture, Leader, Term, CancelToken, Receiver<()>
    );
    // The thread that locked must unlock.
    each!(is_looked_at_from_anywhere: DLockGuard<'_>, OwnedDLockGuard, DLockGuards);

    // They may be used inside `catch_unwind`, as what the standard library has for threads.
    each!(survives_a_panic:
        DLockGenerator, DLockConfig, DistributedReentrantLock, UnguardedLock, CancelToken, DLockGuard<'_>,
        OwnedDLockGuard, DLockGuards, Hold, Holds, Leader, Term, Error
    );

    // What it is told.
    each!(goes_anywhere:
        Holder, LockState, Event, Acquired, How, Released, HoldEnd, RenewedLate, SlowWait, StoreFailing, StoreBack,
        NewServer, Dropped, Description, DelayedRelease, Party, ClientRecord, Told, WaitingThread, ListedLock,
        ListedLocks, LeaseLoss, LossCause, Error, BackendFailure, Cause
    );

    // Stores and clocks.
    each!(goes_anywhere:
        MemoryLockProcessor, RedisLockProcessor, Polling, RedisBuilder, Server, dyn LockProcessor, Moment,
        SystemClock, ManualClock, dyn Clock
    );

    // The port.
    each!(goes_anywhere:
        Claim<'_>, Note<'_>, Gap, Grant, Busy, AcquireOutcome, PollOutcome, ExtendOutcome, Extension, ReleaseOutcome,
        DelayReleaseOutcome, ReleaseDelay<'_>, ProbeOutcome, NotOurs, Inspection, Break<'_>, BreakOutcome, Broken,
        Request<'_>, Limit, dyn Operations, Outcome, Message, StoreLimits, DeadWaiters, Parties, ListPage,
        dyn Directory, dyn WaitQueue, dyn Posting, dyn InboxBreaker, KeyFilter
    );
    #[cfg(feature = "tls")]
    each!(goes_anywhere: TlsSettings);
    // One thread at a time uses them.
    each!(moves: dyn Inbox, ReleaseDone);

    // The conformance suite.
    each!(goes_anywhere: Suite, Client<'_>, Tenure, dyn Store);
    each!(moves: InboxReader);
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
    let (_, assertions) = include_str!("send_sync.rs").split_once("const _: () = {").unwrap();
    let (assertions, _) = assertions.split_once("\n};").unwrap();
    let lines = assertions.lines().filter(|line| !line.trim_start().starts_with("//"));
    let asserted: HashSet<_> = lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric())).collect();
    types.retain(|name| !asserted.contains(name.as_str()));
    assert!(types.is_empty(), "neither Send nor Sync is asserted for {types:?}");
}
