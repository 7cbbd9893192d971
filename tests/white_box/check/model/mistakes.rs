//! Mistakes that can be built into the crate, and the one that is.

use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(dlock_mutants), allow(dead_code, reason = "only the copy with mutants names all of them"))]
pub(crate) enum Mutant {
    /// A grant that arrives between reading a reply and entering `Waiting` is ignored.
    SettlesWithoutLook,
    /// A thread whose time ends as it gets its turn keeps the turn and leaves.
    GivesUpWithTurn,
    /// A thread whose time ends as it is granted the hold leaves without it.
    GivesUpWithHold,
    /// A thread is woken without taking the mutex.
    NudgesWithoutMutex,
    /// The lease counts from when the client heard of the grant.
    CountsFromHearing,
    /// The lease counts from the reply.
    CountsFromReply,
    /// An extension is credited to whatever tenure there is.
    ExtendsAnyTenure,
    /// A locker that is given up is forgotten, with its place in the store's queue or its unanswered acquire.
    ForgetsGivenUp,
    /// An unanswered acquire that is given up is released only once.
    CleansUpOnce,
    /// A lost tenure is passed on, or lingers.
    KeepsWhatIsLost,
    /// A tenure lingers, and nothing checks when that ends.
    LingersUnwatched,
    /// `unlock` returns a loss of which the loss channels were not told.
    UnlocksUntold,
    /// A lingering tenure is taken up although others want it.
    TakesUpRecalled,
    /// A lingering tenure is kept although others want it.
    IgnoresRecall,
    /// A turn that leads to nothing is not passed on to the next thread.
    DropsTurn,
    /// The lock is passed on within the process without limit, although others wait.
    PassesWithoutEnd,
    /// Any grant is taken as meant for the locker that waits.
    TakesAnyGrant,
    /// A grant that arrives during a request is ignored.
    DeafWhileAsking,
    /// After a late grant message a release is repeated at once, before its reply has come.
    RepeatsAtOnce,
    /// A tenure that arrives after all threads have given up is not released.
    KeepsUnwanted,
    /// The next locker of an unanswered release is forgotten.
    ForgetsNextLocker,
    /// The last waiter cancels the key's retry when another waiter may already have scheduled its own.
    ForgetsRetryLate,
    /// A worker misses a ring that comes during its round.
    MissesBell,
    /// A thread leaves a closing client without taking the gate's mutex.
    LeavesWithoutGate,
    /// A thread enters without checking a second time whether the client is closed.
    EntersWithoutSecondLook,
    /// The last hold ends the client, even if another hold has begun since.
    EndsByOldCount,
    /// A thread that has no place in the store's queue waits for a message.
    WaitsUnqueued,
    /// A waiting thread is not registered with its cancel token.
    ParksUnregistered,
    /// A sleeper is not registered with the clock that is moved by hand.
    SleepsUnregistered,
    /// Moving the clock rings for a worker without taking the mutex.
    RingsWithoutMutex,
    /// A hold begins by a message alone, although the store asks replicas.
    BelievesMessages,
    /// A pause counts from the reply, although the clock was moved after the request.
    PausesFromAnswer,
    /// A `Hold` is owned by the thread that takes it.
    HoldsForItsThread,
    /// A task leaves its waker after it has looked whether it has the lock.
    KeepsWakerLate,
    /// A future that is dropped stays in the queue.
    StaysWhenDropped,
    /// A future that is dropped keeps the hold that it was just given.
    KeepsGivenHold,
    /// A single attempt does not wait for what the client gives back for a dropped future.
    IgnoresGivingBack,
    /// A thread that closes the client while it wakes a task waits until all have left.
    WaitsInWakes,
    /// The last thread that leaves a closed client for which nobody waits does not have it shut down.
    LeavesUnordered,
    /// A worker that drops the last handle orders the shutdown while it keeps shutdowns out.
    EndsUnderMutex,
    /// A worker that drops the last handle leaves two orders that two rounds may take.
    EndsInTwoOrders,
    /// A task that was given the lock by a message waits for an extension that nobody sends.
    ConfirmsNothing,
    /// A thread that closes the client is not counted while it gives back what lingers.
    GivesBackUncounted,
    /// Tasks that wait are not sent away when their client is closed.
    KeepsTasksAtClosing,
    /// The retry thread forgets the releases that it takes while a round is under way.
    ForgetsTakenReleases,
    /// Several locks are taken in the order of the caller's list.
    TakesInListOrder,
    /// A release of several locks that has failed is not tried again.
    ForgetsReleaseOfSeveral,
    /// A hold whose release is to be delayed is passed on within the process.
    PassesOnWhatIsKept,
    /// An unanswered delayed release is repeated as an ordinary one.
    ReleasesWhatIsKept,
    // Mistakes of the transport: see store/redis/transport/model.
    /// A thread that stops reading promotes no reader.
    ReaderLeavesAlone,
    /// A thread that stops writing promotes no writer.
    WriterLeavesAlone,
    /// A caller that leaves stays promoted to writer.
    DepartsWithDuty,
    /// Calls that were written to a connection that broke are not failed.
    FailsNobody,
    /// Bytes that a full connection did not take are forgotten.
    ForgetsBacklog,
    /// A caller that leaves removes its place from the order of replies.
    LeavesTheOrder,
    /// As soon as a caller has left, later calls of its key may use another connection.
    GivesPassageBackEarly,
    /// Posted calls that were not sent are not failed when the connection is closed.
    ForgetsPostedAtClose,
    /// Posted calls that a writer left behind wait for the next caller.
    LeavesPostedBehind,
    /// A poster leaves the calls that it wrote for others without a reader.
    PostsUnread,
    /// A thread that wrote calls of others, and waits for none of its own on that connection, leaves them without a reader.
    WritesUnread,
    /// A reader does not check whether it has to write.
    ReadsOnInDuty,
    /// A thread that waits on one connection is promoted on another.
    WaitsTwice,
    /// A thread that has to write when its time is over promotes itself.
    AppointsItself,
    /// A thread that takes the role of writer over from one that yields does not write.
    TakesOverAndLeaves,
    /// A thread that spins in vain for its reply does not give the role of reader back.
    KeepsTheRole,
    /// What was tried in vain by the thread for silent servers is repeated only when something else is due.
    RepeatsApartUnheard,
    /// A limit of zero breaks the connection.
    BreaksWithoutTime,
    /// A poster leaves its call to the current writer without making sure that it is sent.
    PostsAndLeaves,
    /// A batch leaves what is kept on other connections.
    LeavesKeptBehind,
    /// The poster of a call that is kept counts as waiting.
    AttendsToKept,
    /// A posted call in an unknown short form is queued again only after the callers of later replies were woken.
    RepeatsLate,
    /// When a connection panics, the role of writer is kept.
    KeepsRoleInPanic,
    /// A caller connects within its own time, and throws an unfinished connect away.
    ThrowsConnectsAway,
    /// A caller that leaves takes along the connect for which it waited.
    TakesConnectAlong,
    /// Callers that wait for a connect are not woken when it ends.
    ConnectsUnheard,
    /// A reader that delivers a confirmation promotes nobody to write the calls that have waited for it.
    ConfirmsUnheard,
    /// A caller whose call waits for a confirmation does not read, although the callers that are confirmed may have left.
    HoldsBackUnread,
    /// Calls that are to be confirmed are written while another confirmation is under way.
    ConfirmsTwice,
    /// A call is answered before its write is confirmed.
    AnswersUnconfirmed,
    /// No thread waits for the callbacks that run on a thread whose connect has ended.
    LeavesTellersBehind,
    // Mistakes for the tests with real servers: see tests/faults/mutants.rs.
    DeletesWithoutCompare,
    ExtendsWithoutCompare,
    AsksAnewWithoutAnswer,
    TokensStand,
    KeepsNothing,
    TakesDenialForLoss,
    GivesUpWhenDenied,
    CountsUnacknowledged,
    IgnoresNewServers,
    BelievesOldAnswers,
    DropsTheUnheard,
    ExtendsWithAllKeys,
    KeepsOldSubscriptions,
    WatchesNothing,
}

std::thread_local! {
    static BUILT_IN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mistake is built in.
pub(crate) fn is(mutant: Mutant) -> bool {
    BUILT_IN.get() == Some(mutant)
}

/// Builds a mistake into the executions of the calling thread, or none.
pub(super) fn build_in(mutant: Option<Mutant>) {
    BUILT_IN.set(mutant);
}
