//! What a model is made of: its bounds, and the mistake that is built in, if any; and the five from which all others are made.

/// A mistake that the protocol must not make. The checker has to find what it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutant {
    /// None: the protocol as designed.
    Faithful,
    /// A poll takes a free key, or queues, for a locker that is unknown, instead of answering `gone`.
    PollQueuesAnew,
    /// An acquire without an answer is sent again with the same locker.
    AcquireResent,
    /// A release names the locker that it ends as the next one.
    SameLockerNext,
    /// A granted tenure counts its lease from the moment its grant is heard.
    CountsFromHearing,
    /// A lease is counted from the answer instead of the sending of the question.
    CountsFromReply,
    /// `extend` does not compare the locker.
    ExtendsAnything,
    /// `release` does not compare the locker.
    ReleasesAnything,
    /// A hand-over sends its message and frees the key instead of setting it.
    GrantsWithoutKey,
    /// A fresh connection accepts a fence that is behind the clock.
    SlackWhenFresh,
    /// A locker whose acquire has no answer is released once when it is given up, and never again.
    NoCleanUp,
    /// The clean-up list is content with one answered release.
    CleansUpOnce,
    /// A hand-over does not look whether anybody hears the inbox.
    GrantsToTheDead,
    /// `granted` for a locker that the client does not know any more is ignored.
    StrangerIgnored,
    /// `granted` for an ended locker is left to a clean-up release that is already under way.
    StrangerLeftToCleanUp,
    /// A hand-over drops a waiter that nobody hears when it comes to it.
    DropsUnheardAtOnce,
    /// The time for which such waiters keep their places does not end.
    KeepsForEver,
    /// The time is not forgotten when nobody is unheard any more, and when the unheard are dropped.
    LeavesMark,
    /// A hand-over does not notice that the time ends later than it can, because the clock was stepped back.
    MissesStepBack,
    /// When the time is over, a hand-over drops all that nobody hears, and not only those for whom it began.
    MarkCountsAll,
    /// The time is not forgotten when the first waiter is heard again and asks.
    PollLeavesMark,
    /// A hand-over publishes before it sets the key, and a denied PUBLISH ends the script.
    PublishesFirst,
    /// A gap does not end.
    GapForEver,
    /// A release with a gap does not free the key.
    GapKeepsKey,
    /// A release with a gap forgets the queue.
    GapClearsQueue,
    /// A counted number is believed though it is not above the last one.
    FallenNumberBelieved,
    /// A fresh connection believes counted numbers because the one before it had a proved one.
    ProofOutlivesConnection,
    /// A plain attempt keeps the key though others wait.
    PlainPassesQueue,
    /// A plain attempt does not look whether the key was its locker's until the number was counted.
    PlainWithoutGet,
    /// A locker is polled whose plain attempt was released without an answer.
    PlainTakenBackAndPolled,
    /// A plain attempt without an answer is sent again with the same locker.
    PlainResent,
    /// A hand-over sets the key before it takes the winner out of the queue, and gives it to the locker that is being released,
    /// as in version 0.1.0.
    SetsBeforePop,
    /// The same, and a client ignores the grant of a locker that it is releasing.
    ReleasedGrantIgnored,
    /// A hand-over that is refused the key does not put the winner back into the queue.
    PopsAndForgets,
    /// A release answers a refusal though it has handed the key over.
    RefusedAfterHandOver,
    /// A client takes an error that a script raised for a refusal.
    RaisedTakenForRefused,
    /// A client takes an error that the script of its release raised for a success.
    RaisedReleaseBelieved,
    /// An acquire that does not wait leaves the locker in the queue all the same.
    TryJoins,
    /// The second acquire of a locker is sent though the first one had no answer.
    SecondAfterNoAnswer,
    /// A waiter in the queue asks only when the lease of the holder has ended: it relies on the message.
    ReliesOnMessage,
    /// A hand-over gives the winner its lease without its lock-delay.
    HandOverForgetsDelay,
    /// A client counts on the lock-delay as if it belonged to its lease.
    CountsOnDelay,
    /// A forced break does not compare the locker.
    BreaksAnything,
    /// A forced break forgets who waits.
    BreakForgetsQueue,
    /// A delayed release without an answer is followed by an ordinary one.
    DelayThenReleased,
    /// A grant that is heard while a delayed release is under way has the locker released.
    DelayThenGivenUp,
    /// A delayed release keeps the key for no longer than a lease.
    DelayOfALease,
    /// A delayed release forgets who waits.
    DelayForgetsQueue,
}

/// The server's fine clock, for models in which the fence can be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// How far the clock moves in a tick.
    pub(crate) tick: u16,
    /// The lag that is accepted on a connection that has had a number.
    pub(crate) slack: u16,
    /// The clock goes no further than this.
    pub(crate) end: u16,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How many lockers each client may send for the first time; its length is the number of clients.
    pub(crate) lockers: &'static [u8],
    /// The lease, in ticks.
    pub(crate) lease: u8,
    /// The lock-delay, in ticks: for how much longer than that the server keeps a key.
    pub(crate) delay: u8,
    /// For how many ticks a waiter that nobody hears keeps its place.
    pub(crate) keep: u8,
    /// How many faults may happen: a dropped connection, a crash, a lost message, a deaf inbox, a lost fence, a clock that steps back.
    pub(crate) faults: u8,
    /// How many commands of one client may be under way on one connection.
    pub(crate) under_way: usize,
    /// Whether crashes are among the faults.
    pub(crate) crashes: bool,
    /// Whether dropped connections are among the faults.
    pub(crate) drops: bool,
    /// Whether lost messages and deaf inboxes are among the faults.
    pub(crate) deafness: bool,
    /// Whether the faults have one that ends all inboxes at once.
    pub(crate) all_deaf: bool,
    /// Whether steps of the server's clock back are among the faults. Only the time for which places are kept is modelled by that clock.
    pub(crate) steps_back: bool,
    /// Whether acquires that do not wait are sent.
    pub(crate) tries: bool,
    /// Whether releases carry a next locker.
    pub(crate) next: bool,
    /// Whether leases are extended (a hold that comes with less than half of its lease is extended in any case).
    pub(crate) extends: bool,
    /// Whether held keys are probed.
    pub(crate) probes: bool,
    /// How many releases may leave the key free for pollers.
    pub(crate) gaps: u8,
    /// How many times an operator may see who holds the key, and order a forced break.
    pub(crate) breaks: u8,
    /// For how many ticks a hold that ends may keep everybody from the key; none if releases are not delayed.
    pub(crate) delayed: u8,
    /// Whether the first question about a locker may be plain commands. Without the fine clock every connection may.
    pub(crate) plain: bool,
    /// Whether deleted keys are among the faults. Then two can hold, and only the order of numbers is looked at.
    pub(crate) deletes: bool,
    /// Whether refused commands are among the faults: one call of a script, or all from one on.
    pub(crate) refusals: bool,
    /// Whether scripts that raise an error are among the faults: at one of their calls, the message among them. What was done before stands.
    pub(crate) raises: bool,
    /// Whether a client that hears nothing yet asks without waiting, and once more, with the same locker, when it hears. Then a client hears
    /// nothing at first.
    pub(crate) hears_late: bool,
    /// Whether the server lets clients publish.
    pub(crate) publish: bool,
    /// The fine clock, with which a lost fence is among the faults. Without it, numbers are counted.
    pub(crate) clock: Option<Clock>,
    /// Whether clients that send equally many lockers are taken for interchangeable; those that send more come first. Traces are hard to
    /// read then.
    pub(crate) alike: bool,
    /// The mistake.
    pub(crate) mutant: Mutant,
}

impl Rules {
    #[inline]
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// How long the server keeps a key without an extension.
    #[inline]
    pub(crate) fn kept(&self) -> u8 {
        self.lease + self.delay
    }

    /// How long a client counts on, from when it sends.
    #[inline]
    pub(crate) fn counted(&self) -> u8 {
        if self.is(Mutant::CountsOnDelay) { self.kept() } else { self.lease }
    }

    /// Whether a hand-over is that of version 0.1.0.
    #[inline]
    pub(crate) fn sets_before_pop(&self) -> bool {
        self.is(Mutant::SetsBeforePop) || self.is(Mutant::ReleasedGrantIgnored)
    }
}

/// Two clients that lock twice each.
pub(crate) const PAIR: Rules = Rules {
    lockers: &[2, 2],
    lease: 2,
    delay: 0,
    keep: 1,
    faults: 1,
    under_way: 1,
    crashes: true,
    drops: true,
    deafness: true,
    all_deaf: false,
    steps_back: false,
    tries: false,
    next: true,
    extends: true,
    probes: false,
    gaps: 0,
    breaks: 0,
    delayed: 0,
    plain: false,
    deletes: false,
    refusals: false,
    raises: false,
    hears_late: false,
    publish: true,
    clock: None,
    alike: true,
    mutant: Mutant::Faithful,
};

/// Two clients that lock once each.
pub(crate) const ONCE: Rules = Rules { lockers: &[1, 1], ..PAIR };

/// Three clients that lock once each.
pub(crate) const TRIO: Rules = Rules { lockers: &[1, 1, 1], extends: false, ..PAIR };

/// Two clients whose server loses the fence.
pub(crate) const FENCE: Rules = Rules {
    faults: 2,
    crashes: false,
    drops: false,
    deafness: false,
    next: false,
    extends: false,
    clock: Some(Clock { tick: 4, slack: 6, end: 18 }),
    lockers: &[2, 1],
    alike: false,
    ..PAIR
};

/// Two clients that try plain commands, and whose key is deleted.
pub(crate) const DELETED: Rules = Rules {
    plain: true,
    deletes: true,
    crashes: false,
    drops: false,
    deafness: false,
    extends: false,
    alike: false,
    ..ONCE
};
