//! The scenarios that are explored.

use super::execution::Scenario;
use super::explorer::{explore, explore_both, explored};
use super::network::Faults;
use super::visitor::Act::{
    Await, AwaitAllDropped, AwaitApart, AwaitDropped, AwaitFor, AwaitFree, AwaitTry, Break, Cancel, Cancellable, Carry,
    CarryFor, Close, CloseToo, CloseWhenWoken, For, Host, Keep, Lock, LockAll, LockAllFor, Nap, Try,
};
use super::world::LEASE;
use shuttle::scheduler::{RandomScheduler, UncontrolledNondeterminismCheckScheduler};
use std::time::Duration;

const NO_FAULTS: Faults = Faults { commands: 0, messages: 0, breaks: 0, late_grants: false };

const SOME: Faults = Faults { commands: 2, messages: 1, breaks: 1, ..NO_FAULTS };

impl Scenario {
    /// The same, where commands fail, messages are lost and time leaps.
    pub(crate) const fn faulty(self) -> Self {
        Self { faults: SOME, leaps: true, ..self }
    }

    /// The same, where holders probe.
    pub(crate) const fn probing(self) -> Self {
        Self { probe: true, ..self }
    }

    /// The same without messages: clients find out by themselves.
    pub(crate) const fn asking(self) -> Self {
        Self { listener: false, ..self }
    }

    /// The same with a lock that lingers for a while.
    pub(crate) const fn lingering(self) -> Self {
        Self { linger: Duration::from_millis(60), ..self }
    }
}

/// Shorter than some stays.
const SHORT: Duration = Duration::from_millis(10);

/// As long as some stays.
const STAY: Duration = Duration::from_millis(15);

/// Threads of one client that polls.
pub(crate) const THREADS: Scenario = Scenario {
    clients: &[&[&[Lock, Lock], &[Lock], &[Lock]]],
    listener: false,
    probe: false,
    faults: NO_FAULTS,
    leaps: false,
    local_passes: 1,
    linger: Duration::ZERO,
    counts_passes: false,
};

/// Leases are extended and probed while tenures end and begin.
pub(crate) const PROBING: Scenario = Scenario { clients: &[&[&[Lock, Lock, Lock], &[Lock]]], probe: true, ..THREADS };

/// The threads pass the lock on.
pub(crate) const PASSING: Scenario = Scenario { listener: true, probe: true, ..THREADS };

/// Two clients with two threads each.
pub(crate) const TWO: Scenario =
    Scenario { clients: &[&[&[Lock], &[Lock]], &[&[Lock], &[Lock]]], listener: true, ..THREADS };

/// A client learns by asking that it has the lock, and hears of the grant as it releases that hold.
pub(crate) const HEARING_LATE: Scenario =
    Scenario { clients: &[&[&[Lock]], &[&[Lock]]], faults: Faults { late_grants: true, ..NO_FAULTS }, ..TWO };

/// A client passes the lock on among its threads while another client waits.
pub(crate) const CONTENDED: Scenario = Scenario {
    clients: &[&[&[Lock, Lock, Lock], &[Lock, Lock, Lock], &[Lock, Lock]], &[&[Lock]]],
    counts_passes: true,
    ..TWO
};

/// Threads give up while another thread holds the lock until they have.
pub(crate) const GUESTS: Scenario =
    Scenario { clients: &[&[&[Host], &[Cancellable], &[For(SHORT)], &[Cancel]]], ..THREADS };

/// A thread is cancelled while another thread holds the lock until the first has left.
pub(crate) const CANCELLING: Scenario = Scenario { clients: &[&[&[Host], &[Cancellable], &[Cancel]]], ..THREADS };

/// Threads of two clients give up.
pub(crate) const GIVE_UPS: Scenario =
    Scenario { clients: &[&[&[Lock], &[For(SHORT), Try], &[Cancellable]], &[&[Lock], &[Cancel, For(LEASE)]]], ..TWO };

/// The only thread of a client gives up while another client has the lock, or gives it to the first one.
pub(crate) const GIVE_UP: Scenario = Scenario { clients: &[&[&[For(SHORT)]], &[&[Lock]]], ..TWO };

/// The only threads of two clients ask, and give up.
pub(crate) const GIVE_UPS_ALONE: Scenario =
    Scenario { clients: &[&[&[For(SHORT)]], &[&[For(SHORT)]]], listener: false, ..GIVE_UPS.faulty() };

/// The only waiter of a client gives up as the holder releases, and comes again.
pub(crate) const RETURNING: Scenario = Scenario { clients: &[&[&[For(STAY), Lock]], &[&[Lock, Lock], &[Lock]]], ..TWO };

/// The only waiter of a client gives up as another comes.
pub(crate) const CROSSING: Scenario =
    Scenario { clients: &[&[&[For(SHORT)], &[Nap(SHORT), Lock]], &[&[Host]]], ..THREADS };

pub(crate) const CROSSING_HEARING: Scenario = Scenario { listener: true, ..CROSSING };

/// The lock lingers for the next thread, for ever.
pub(crate) const LINGERING: Scenario = Scenario {
    clients: &[&[&[Lock, Lock, Lock], &[Lock]], &[&[Lock], &[Lock]]],
    linger: Duration::from_secs(3600),
    counts_passes: true,
    ..TWO
};

/// The lock lingers for a while.
pub(crate) const LINGERING_FAULTY: Scenario = Scenario {
    clients: &[&[&[Lock, Lock], &[For(SHORT), Lock]], &[&[Try, Lock]]],
    linger: Duration::from_millis(60),
    faults: SOME,
    leaps: true,
    ..TWO
};

/// A client is closed while its threads use the lock.
pub(crate) const CLOSING: Scenario =
    Scenario { clients: &[&[&[Lock, Lock], &[Lock], &[Close]], &[&[Lock]]], linger: LEASE, ..TWO };

/// A client is closed as a thread enters.
pub(crate) const ENTERING: Scenario = Scenario { clients: &[&[&[Lock, Lock], &[Close]]], ..THREADS };

/// Threads close a client whose lock may linger, and so does one in a wake.
pub(crate) const CLOSERS: Scenario =
    Scenario { clients: &[&[&[Lock, CloseToo], &[CloseWhenWoken], &[CloseToo]]], ..CLOSING };

/// Two threads close a client whose lock lingers: one may go on while the other gives the lock back.
pub(crate) const CLOSED_TWICE: Scenario = Scenario { clients: &[&[&[Lock, CloseToo], &[CloseToo]]], ..CLOSING };

/// A client that polls is closed.
pub(crate) const CLOSING_ASKING: Scenario = Scenario { listener: false, linger: Duration::ZERO, ..CLOSING };

/// A client is closed while its threads follow one another in the lock.
pub(crate) const CLOSING_AMID_HOLDS: Scenario =
    Scenario { clients: &[&[&[Lock], &[Lock], &[Lock], &[Close]]], ..CLOSING_ASKING };

/// Holds are broken while their client extends, probes, releases or passes the lock on, and while others wait.
pub(crate) const BREAKING: Scenario =
    Scenario { clients: &[&[&[Lock, Lock], &[Lock, Lock]], &[&[Lock], &[Break, Break]]], probe: true, ..TWO };

/// Holds that belong to no thread, beside those of threads.
pub(crate) const CARRYING: Scenario =
    Scenario { clients: &[&[&[Carry, Lock], &[Carry], &[CarryFor(SHORT), Lock]], &[&[Carry]]], ..TWO };

/// A client is closed while such holds begin and end.
pub(crate) const CARRYING_CLOSING: Scenario =
    Scenario { clients: &[&[&[Carry, Carry], &[Carry], &[Close]], &[&[Carry]]], ..CLOSING };

/// Tasks that await the lock, beside threads.
pub(crate) const AWAITING: Scenario =
    Scenario { clients: &[&[&[Await, Lock], &[Await], &[AwaitFor(SHORT), AwaitTry]], &[&[Await]]], ..TWO };

/// Futures are dropped while they wait, or have just been given the lock.
pub(crate) const DROPPING: Scenario =
    Scenario { clients: &[&[&[AwaitDropped, Await], &[AwaitDropped], &[Lock]], &[&[Await], &[AwaitDropped]]], ..TWO };

/// Futures are dropped, and a single attempt after each of them finds the lock free.
pub(crate) const DROPPED: Scenario =
    Scenario { clients: &[&[&[AwaitDropped, AwaitFree, AwaitDropped, AwaitFree]]], ..TWO };

/// A client is closed by a runtime that is told to wake a task.
pub(crate) const WOKEN: Scenario =
    Scenario { clients: &[&[&[Await, Await], &[CloseWhenWoken], &[Lock]], &[&[Await]]], ..CLOSING };

/// Tasks await two locks, so that the client asks for one while it is to give back the other.
pub(crate) const APART: Scenario = Scenario { clients: &[&[&[AwaitApart, AwaitApart], &[Await, Await]]], ..TWO };

/// The client is closed by a runtime that is told to wake a task.
pub(crate) const APART_WOKEN: Scenario =
    Scenario { clients: &[&[&[AwaitApart, AwaitApart], &[CloseWhenWoken], &[AwaitApart]]], ..TWO };

/// A client is closed while its tasks wait, hold and release.
pub(crate) const AWAITING_CLOSING: Scenario =
    Scenario { clients: &[&[&[Await, Await], &[Await, AwaitDropped], &[Close]], &[&[Await]]], ..CLOSING };

/// Threads that take two locks at once, beside those that take one of them.
pub(crate) const SEVERAL: Scenario =
    Scenario { clients: &[&[&[LockAll, Lock], &[LockAll], &[LockAllFor(SHORT)]], &[&[LockAll]]], ..TWO };

/// A client is closed while such threads use it.
pub(crate) const SEVERAL_CLOSING: Scenario =
    Scenario { clients: &[&[&[LockAll, LockAll], &[LockAll], &[Close]], &[&[LockAll]]], ..CLOSING };

/// Tasks that await two locks at once are dropped while they wait for the first one, have it and wait for the second one, or have both.
pub(crate) const SEVERAL_DROPPED: Scenario =
    Scenario { clients: &[&[&[AwaitAllDropped, LockAll], &[AwaitAllDropped], &[Lock]], &[&[LockAll]]], ..TWO };

/// Some holds end, and keep everybody from the lock for a while.
pub(crate) const KEEPING: Scenario = Scenario { clients: &[&[&[Keep, Lock], &[Lock]], &[&[Lock], &[Keep]]], ..TWO };

/// One client keeps the lock, another one asks for it, and so much fails that no try of the delayed release may be answered.
pub(crate) const KEEPING_UNANSWERED: Scenario = Scenario {
    clients: &[&[&[Keep]], &[&[Lock]]],
    faults: Faults { commands: 8, ..SOME },
    probe: true,
    ..TWO.asking()
};

/// Without this property a seed would be worthless.
#[test]
fn replays() {
    for scenario in [TWO.faulty().probing(), LINGERING_FAULTY, CLOSING.faulty()] {
        let scheduler = UncontrolledNondeterminismCheckScheduler::new(RandomScheduler::new(100));
        explore(scheduler, move || scenario.play());
    }
}

explored! {
    threads_of_one_client: THREADS;
    // Shows: G11, S12.
    threads_of_one_client_with_faults: THREADS.faulty().probing();
    // Shows: G2.
    tenures_that_follow_closely: PROBING;
    threads_that_pass_the_lock_on: PASSING;
    // Shows: G6.
    threads_that_pass_the_lock_on_with_faults: PASSING.faulty();
    two_clients: TWO;
    two_clients_that_hear_late: HEARING_LATE;
    // Shows: G5, G11.
    two_clients_with_faults: TWO.faulty().probing();
    two_clients_that_ask: TWO.asking();
    two_clients_that_ask_with_faults: TWO.asking().faulty().probing();
    // Shows: L4.
    one_client_that_would_go_on_by_itself: CONTENDED;
    guests_that_leave_before_their_host: GUESTS;
    a_thread_that_is_cancelled: CANCELLING;
    // Shows: L2, L3.
    threads_that_give_up: GIVE_UPS;
    threads_that_give_up_with_faults: GIVE_UPS.faulty();
    // Shows: L2, L3.
    threads_that_ask_and_give_up: GIVE_UPS.asking();
    // Shows: G11, S12.
    threads_that_ask_and_give_up_with_faults: GIVE_UPS.asking().faulty();
    threads_that_are_alone_ask_and_give_up_with_faults: GIVE_UPS_ALONE;
    // Shows: L2, L3.
    a_client_whose_only_thread_gives_up: GIVE_UP;
    a_client_that_gives_up_and_comes_again: RETURNING;
    // Shows: S10, L3.
    a_waiter_that_comes_as_another_gives_up: CROSSING;
    a_waiter_that_comes_as_another_gives_up_its_place: CROSSING_HEARING;
    // Shows: L4.
    a_lock_that_lingers: LINGERING;
    // Shows: S10.
    a_lock_that_lingers_with_faults: LINGERING_FAULTY;
    // Shows: L6.
    a_client_that_is_closed: CLOSING;
    a_client_that_is_closed_with_faults: CLOSING.faulty();
    // Shows: L6.
    a_client_that_is_closed_as_a_thread_comes: ENTERING;
    // Shows: L2, L6, S26.
    a_client_that_several_close: CLOSERS;
    a_client_that_two_close: CLOSED_TWICE;
    // Shows: L6.
    a_client_that_asks_and_is_closed: CLOSING_ASKING;
    a_client_that_is_closed_amid_holds: CLOSING_AMID_HOLDS;
    // Shows: G1, G6, L2.
    holds_that_are_broken: BREAKING;
    // Shows: G1, G6, L2.
    holds_that_are_broken_amid_faults: BREAKING.faulty();
    // Shows: G1, G6, L2.
    holds_that_are_broken_unheard: BREAKING.asking();
    // Shows: L2.
    a_lock_that_lingers_and_is_broken: BREAKING.lingering();
    // Shows: G1, L3.
    holds_that_belong_to_no_thread: CARRYING;
    // Shows: G6, G11.
    holds_that_belong_to_no_thread_with_faults: CARRYING.faulty().probing().lingering();
    // Shows: L6.
    a_client_that_is_closed_while_others_release: CARRYING_CLOSING;
    // Shows: G1, L3.
    tasks_that_await: AWAITING;
    // Shows: G6, G11.
    tasks_that_await_with_faults: AWAITING.faulty().probing().lingering();
    tasks_that_await_unheard: AWAITING.asking();
    // Shows: L2, L3.
    tasks_that_are_dropped: DROPPING;
    // Shows: G11, L2.
    tasks_that_are_dropped_with_faults: DROPPING.faulty();
    // Shows: L2, L3.
    tasks_that_are_dropped_unheard: DROPPING.asking();
    tasks_that_come_after_dropped_ones: DROPPED;
    // Shows: G1, L3.
    tasks_that_await_two_locks: APART;
    tasks_that_await_two_locks_with_faults: APART.faulty();
    // Shows: L3, L6.
    a_client_with_two_locks_that_is_closed_by_whom_it_wakes: APART_WOKEN;
    // Shows: L6.
    a_client_that_is_closed_while_tasks_wait: AWAITING_CLOSING;
    // Shows: L3, L6.
    a_client_that_is_closed_by_whom_it_wakes: WOKEN;
    // Shows: G1, L3.
    several_locks_at_once: SEVERAL;
    // Shows: G6, L2.
    several_locks_at_once_with_faults: SEVERAL.faulty().probing();
    // Shows: L2, L3.
    several_locks_whose_tasks_are_dropped: SEVERAL_DROPPED;
    // Shows: G11, L2.
    several_locks_whose_tasks_are_dropped_with_faults: SEVERAL_DROPPED.faulty();
    // Shows: L6.
    a_client_that_is_closed_while_threads_take_several_locks: SEVERAL_CLOSING;
    // Shows: G13.
    locks_that_are_kept_from_everybody: KEEPING;
    // Shows: G11, G13.
    locks_that_are_kept_from_everybody_amid_faults: KEEPING.faulty().probing();
    locks_that_are_kept_from_everybody_without_messages: KEEPING.asking().faulty().probing();
    locks_that_are_kept_from_everybody_without_an_answer: KEEPING_UNANSWERED;
}
