//! `dlock run`: a command under a lock.
//!
//! `dlock run` forks its two helpers before it does anything else. Each page that a process writes after a fork is copied, so early helpers stay
//! small. (`fork.rs` has the only `unsafe`, and refuses to work beside other threads.)
//!
//! | process | is | ends |
//! |---|---|---|
//! | `dlock` | the client, and the parent of the two others (`mod.rs`) | when nothing of the command's process group is left, and the lock is released |
//! | the launcher, then the command | (`launch.rs`) begins a process group, waits at a pipe for its orders, asks the kernel for the stop signal at its parent's death, and becomes the command | as the command does; at the pipe's end if there are no orders |
//! | the guard | (`guard.rs`) in a session of its own, with all signals blocked, at the end of a pipe | when `dlock` kills it, because the group is gone. If the pipe ends before that, `dlock` was killed, and the guard ends the group |
//!
//! * *`dlock` connects on a thread* `dlock-dial`. The command begins one write to a pipe after the lock was acquired. The command of `--on-lost` has a
//!   launcher of its own, which waits in the same way.
//! * *All signals are blocked after the launchers were split off, and before any thread begins*; a thread `dlock-signals` waits for them. Each signal
//!   is an event for the main thread, as are the connection and a loss. A signal that was ignored at the start stays ignored, except SIGPIPE. While there is
//!   no command, a signal ends `dlock` a second later, even if the main thread still waits for the store. After a signal that the command has got,
//!   `dlock` ends at most two seconds after the command. Without a signal, `dlock` waits for a store that does not answer for the time limit of one
//!   command, and for at least two seconds.
//! * *No thread waits for a reader of standard error* from the moment at which the lock may be acquired until it is released: a thread `dlock-log` writes
//!   the messages (`message/queue.rs`). So neither a renewal nor the end of the command is late because of a terminal that was stopped by Ctrl-S.
//! * *The launcher is started by the main thread*, because the kernel treats the end of the thread that started a process as the death of its parent.
//! * *`dlock` adopts orphans* (`PR_SET_CHILD_SUBREAPER`), so that it sees the last process of the group end, and every daemon: as long as one lives,
//!   it has a child (`daemons.rs`). It releases the lock only after that.
//! * *The guard gives the group a fifth of the lease at most*, and less if the grace is shorter: a holder that was killed has a quarter of its lease
//!   left. So the group is gone before anybody else is inside.
//! * *A command is told to stop before its lease is over*: the grace before, and a sixth of the lease at most (`supervise.rs`). A lease that could
//!   not be renewed until then is given up. So it is renewed after 55 %, earlier than elsewhere, to survive as long an outage. If the store may be
//!   away for longer, it is renewed even earlier.
//! * *In a terminal the command's group is the foreground* while the command runs, if standard input and output are the terminal; else it becomes so when
//!   it reads from the terminal. So `dlock run … | less` leaves the terminal to `less`. When the command stops, `dlock` takes the terminal back, and
//!   stops its own group, for which the shell waits; SIGCONT goes on to the command, unless the lock is lost. If no shell could continue it, `dlock`
//!   does not stop.
//! * *The other subcommands only ask*, but for `break`: `list.rs` and `show.rs` print what `list` and `describe` return, `watch.rs` does so again
//!   and again, `exporter/` when it is scraped, `wait.rs` looks until a lock is free, `doctor/` examines the servers that
//!   `RedisLockProcessor::servers` gives it. `output.rs` is the only file that prints for people. `args.rs` is the only definition of the arguments;
//!   `pages.rs` makes completions and manual pages of it.

mod daemons;
mod fork;
mod group;
mod guard;
mod kept;
mod launch;
mod library;
mod narrator;
mod refusal;
mod signals;
mod supervise;
mod terminal;

use crate::args::{OnLost, Run};
use crate::message::{self, queue, say};
use crate::settings::{Reach, Settings};
use crate::status::{self, Failure};
use crate::store::Builder;
use crate::threads;
use crate::timing;
use guard::Guard;
use launch::{Launcher, Orders};
use narrator::Narrator;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use redis_dlock::port::StoreLimits;
use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DLockGuard, DistributedReentrantLock, Error, LeaseLoss};
use signals::{FORWARDED, SignalTarget, Signals};
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use supervise::{RunEnd, Supervisor};

/// The name of the subcommand.
pub(crate) const NAME: &str = "run";

/// An event that the main thread waits for.
#[derive(Debug)]
pub(crate) enum RunEvent {
    Signal(Signal),
    /// The end of the connect. A success has the limits of the store.
    Connected(Result<(DLockGenerator, StoreLimits), Error>),
    Lost(LeaseLoss),
}

/// The part of the lease that the guard gives a command whose `dlock` was killed. A lease has a quarter left at least, if its renewals
/// succeeded; so the command is gone before anybody else is inside.
const GUARDED_PART: u32 = 5;

/// The part of the lease after which it is renewed. The command is told to stop before the end of a lease that cannot be renewed. So the attempts
/// begin earlier than elsewhere, and an outage may last as long.
const RENEW_AT: f64 = 0.55;

/// The earliest such part, for a store that may be away for long.
const EARLIEST: f64 = 1.0 / 3.0;

/// The processes beside `dlock`. They are killed when this is dropped before the command has begun.
#[derive(Debug)]
pub(crate) struct Helpers {
    launcher: Launcher,
    guard: Guard,
}

impl Helpers {
    /// Splits the helpers off if this may be `dlock run`. Call it before anything else: see [`fork`]. The helpers get their orders later.
    pub(crate) fn start() -> Option<Result<Self, Failure>> {
        let may_run = env::args_os().any(|word| word == NAME);
        may_run.then(|| {
            let guard = Guard::start()?;
            Ok(Self { launcher: Launcher::start()?, guard })
        })
    }
}

/// Runs the command. Returns the status of `dlock`.
pub(crate) fn run(reach: &Reach, wanted: &Run, others: Option<Result<Helpers, Failure>>) -> u8 {
    let others = others.unwrap_or_else(|| Err(Failure::new(status::SYSTEM, "`run` is not among the arguments")));
    let ended = others.map_err(NoCommand::Failure).and_then(|others| try_run(reach, wanted, others));
    queue::finish();
    match ended {
        Ok(RunEnd { status, interrupted }) => {
            interrupted.into_iter().for_each(signals::die_of);
            status
        }
        Err(NoCommand::Signal(signal)) => signals::end_by(signal),
        Err(NoCommand::Failure(failure)) => {
            let status = failure.tell();
            if status == status::NOT_ACQUIRED { wanted.not_acquired_status } else { status }
        }
    }
}

/// The reason why the command was not begun.
enum NoCommand {
    Failure(Failure),
    Signal(Signal),
}

impl<F: Into<Failure>> From<F> for NoCommand {
    fn from(failure: F) -> Self {
        Self::Failure(failure.into())
    }
}

fn try_run(reach: &Reach, wanted: &Run, others: Helpers) -> Result<RunEnd, NoCommand> {
    let started = Instant::now();
    let Helpers { launcher, mut guard } = others;
    let settings = Settings::of(reach, wanted.rules)?;
    warn_of_long_grace(wanted, settings.rules.max_hold);
    let builder = settings.builder()?;
    let reason = wanted.reason.clone().unwrap_or_else(|| in_words(&wanted.command));
    let config =
        DLockConfig::new(&*wanted.lock.lock_type, &wanted.lock.target).with_lease(wanted.lease).with_reason(reason);
    let config = kept::noted(wanted, settings.rules.apply(config));
    let limit = RunLimit::of(wanted, started);
    let on_lost = match &wanted.on_lost {
        OnLost::Run(text) => Some(Launcher::start_shell(text, launcher.group())?),
        OnLost::Stop | OnLost::Warn => None,
    };
    let launchers = Launchers { command: launcher, on_lost };
    let signals = Signals::block()?;
    // Processes of the command that have lost their parent become children of this one, which sees them end.
    prctl::set_child_subreaper(true).map_err(|error| Failure::system("cannot adopt orphans", error))?;

    let (events, inbox) = channel();
    let cancel = CancelToken::new();
    signals.listen(events.clone(), cancel.clone())?;
    queue::begin();
    library::hear(wanted.verbose);
    connect(builder, events, limit)?;

    let (generator, limits) = connected(&inbox, limit)?;
    kept::check(wanted, &limits)?;
    let lock = generator.generate_with(config.with_renew_at(renew_at(wanted.lease, limits.outage)))?;
    let narrator = Narrator::new(wanted, started);
    let looks = (kept::ends_wait(wanted, &lock, &cancel), narrator.waits(&generator));
    let held = match acquire(&lock, limit, &cancel) {
        Ok(held) => held,
        Err(error) => {
            let why = if error.is_transient() && limit.is_over() {
                refusal::unanswered(&lock, &error.to_string()).into()
            } else {
                error.into()
            };
            close(generator);
            return Err(why);
        }
    };
    drop(looks);
    let signalled = pending(&inbox);
    let (Some(held), None) = (held, signalled) else {
        drop(launchers);
        let why = signalled.map_or_else(|| refusal::of(&generator, wanted, &lock).into(), NoCommand::Signal);
        // This gives up the place in the queue.
        close(generator);
        return Err(why);
    };
    narrator.acquired(&held);
    let outcome = supervise(wanted, launchers, &mut guard, &inbox, &lock, &held, settings.rules.max_hold)?;
    let release = give_back(wanted, held, outcome, &limits, narrator);
    Ok(conclude(release, outcome, wanted, generator, started))
}

/// Gives the lock back after the command.
fn give_back(
    wanted: &Run,
    held: DLockGuard<'_>,
    outcome: RunEnd,
    limits: &StoreLimits,
    narrator: Narrator<'_>,
) -> Release {
    let kept = kept::time_of(wanted, outcome.status, &held);
    let unconfirmed = UnconfirmedRelease::of(&held, kept);
    signals::command_has_ended(outcome.status, limits.command.max(timing::RELEASES_WITHIN), move || {
        if outcome.status != status::LOST {
            unconfirmed.say("the store does not answer");
        }
        outcome.interrupted.into_iter().for_each(signals::die_of);
        outcome.status
    });
    narrator.ended(outcome.status, &held);
    let release = release(held, kept, unconfirmed);
    if matches!(release, Release::Done) {
        narrator.released(kept);
    }
    release
}

/// Ends the client, and returns what `dlock` ends with.
fn conclude(release: Release, outcome: RunEnd, wanted: &Run, generator: DLockGenerator, started: Instant) -> RunEnd {
    match release {
        // Nothing is left to do, and the threads end with the process.
        Release::Done if started.elapsed() < timing::RECORDED => std::mem::forget(generator),
        // The close removes the client record.
        Release::Done => close(generator),
        Release::TooLate(error) if outcome.status != status::LOST => {
            message::complain(&error.to_string());
            if wanted.on_lost == OnLost::Stop {
                return RunEnd { status: status::LOST, interrupted: None };
            }
        }
        Release::TooLate(_) => {}
        // The close repeats the release.
        Release::Unanswered => close(generator),
    }
    outcome
}

/// Ends the client. Gives up a store that does not answer, because the caller of `dlock` waits for its end.
fn close(generator: DLockGenerator) {
    let (done, is_done) = channel::<()>();
    let close = move || {
        generator.close();
        drop(done);
    };
    if thread::Builder::new().name("dlock-close".to_owned()).spawn(close).is_ok() {
        let _ = is_done.recv_timeout(timing::CLOSES_WITHIN);
    }
}

/// Warns if the command may outlive the lease.
fn warn_of_long_grace(wanted: &Run, max_hold: Option<Duration>) {
    let grace = wanted.grace_after_loss(max_hold);
    if wanted.on_lost == OnLost::Stop && grace > wanted.reserve(max_hold) {
        let limit = match max_hold.filter(|limit| *limit < wanted.lease) {
            Some(limit) => format!("--max-hold {limit:?}"),
            None => format!("--lease {:?}", wanted.lease),
        };
        say(&format!(
            "--grace {grace:?} is longer than a sixth of {limit}: after a loss the command may run beside the next holder"
        ));
    }
}

/// Returns the part of the lease after which it is renewed. The rest, without the command's time to end, outlives an outage.
fn renew_at(lease: Duration, outage: Duration) -> f64 {
    (RENEW_AT - outage.as_secs_f64() / lease.as_secs_f64().max(f64::MIN_POSITIVE)).clamp(EARLIEST, RENEW_AT)
}

/// A command with its arguments, for people.
fn in_words(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug)]
enum RunLimit {
    OneAttempt,
    Until(Instant),
    Forever,
}

impl RunLimit {
    fn of(wanted: &Run, started: Instant) -> Self {
        match wanted.wait {
            _ if wanted.no_wait => Self::OneAttempt,
            Some(wait) if wait.is_zero() => Self::OneAttempt,
            // A limit that the clock cannot represent counts as no limit.
            Some(wait) => started.checked_add(wait).map_or(Self::Forever, Self::Until),
            None => Self::Forever,
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Until(end) if Instant::now() >= end)
    }
}

/// Connects on a thread, so that a signal takes effect meanwhile. Waits for a server that is away, unless there is to be only one attempt.
fn connect(builder: Builder, events: Sender<RunEvent>, limit: RunLimit) -> Result<(), Failure> {
    let losses = events.clone();
    let waits = !matches!(limit, RunLimit::OneAttempt);
    let connect = move || {
        let store = if waits { builder.wait(None) } else { builder.connect() };
        let generator = store.and_then(|store| {
            let tell = move |loss: &LeaseLoss| {
                let _ = losses.send(RunEvent::Lost(loss.clone()));
            };
            let limits = store.limits();
            let builder = DLockGenerator::builder().on_lost(tell);
            let builder = if waits { builder.on_event(tell_of_outage) } else { builder };
            Ok((store.generator(builder)?, limits))
        });
        let _ = events.send(RunEvent::Connected(generator));
    };
    threads::start("dlock-dial", connect)
}

/// Says once why a wait may take long: the store fails, and perhaps nobody holds the lock.
fn tell_of_outage(event: &redis_dlock::Event) {
    static SAID: OnceLock<()> = OnceLock::new();
    if let redis_dlock::Event::StoreFailing(failing) = event
        && signals::target() == SignalTarget::Waits
        && SAID.set(()).is_ok()
    {
        say(&format!("{}: waiting for the server", failing.error));
    }
}

/// Waits for the connection, for a signal, or for the end of the limit.
fn connected(inbox: &Receiver<RunEvent>, limit: RunLimit) -> Result<(DLockGenerator, StoreLimits), NoCommand> {
    loop {
        let event = match limit {
            RunLimit::Until(end) => inbox.recv_timeout(end.saturating_duration_since(Instant::now())),
            RunLimit::OneAttempt | RunLimit::Forever => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(RunEvent::Connected(connected)) => return Ok(connected?),
            Ok(RunEvent::Signal(signal)) if FORWARDED.contains(&signal) => return Err(NoCommand::Signal(signal)),
            Ok(RunEvent::Signal(_) | RunEvent::Lost(_)) => {}
            Err(_) => {
                let message = "the server did not answer within the time of --wait";
                return Err(Failure::new(status::UNREACHABLE, message).into());
            }
        }
    }
}

fn acquire<'a>(
    lock: &'a DistributedReentrantLock,
    limit: RunLimit,
    cancel: &CancelToken,
) -> Result<Option<DLockGuard<'a>>, Error> {
    match limit {
        RunLimit::OneAttempt => lock.try_lock(),
        RunLimit::Until(end) => lock.try_lock_cancellable_until(end, cancel),
        RunLimit::Forever => lock.lock_cancellable(cancel),
    }
}

/// Returns the signal that has ended the wait, if there is one.
fn pending(inbox: &Receiver<RunEvent>) -> Option<Signal> {
    inbox.try_iter().find_map(|event| match event {
        RunEvent::Signal(signal) if FORWARDED.contains(&signal) => Some(signal),
        _ => None,
    })
}

/// The launchers of the command, and of the command of `--on-lost`.
#[derive(Debug)]
struct Launchers {
    command: Launcher,
    on_lost: Option<Launcher>,
}

/// Lets the command run, and returns when nothing of it is left.
fn supervise(
    wanted: &Run,
    launchers: Launchers,
    guard: &mut Guard,
    inbox: &Receiver<RunEvent>,
    lock: &DistributedReentrantLock,
    held: &DLockGuard<'_>,
    max_hold: Option<Duration>,
) -> Result<RunEnd, Failure> {
    let Launchers { command: mut launcher, on_lost } = launchers;
    let group = launcher.group();
    guard.protect(group, wanted.stop_signal, wanted.grace().min(wanted.lease / GUARDED_PART))?;
    let orders = Orders {
        key: lock.key(),
        token: held.fencing_token(),
        stop_signal: wanted.stop_signal,
        words: wanted.command.len(),
    };
    let mut supervisor = Supervisor::new(wanted, orders, group, on_lost, held, max_hold);
    signals::command_begins();
    supervisor.begin();
    launcher.open_gate(orders);
    let outcome = supervisor.until_the_end(inbox);
    guard.dismiss();
    Ok(outcome)
}

/// How the lock was released.
enum Release {
    Done,
    /// The lock was lost before.
    TooLate(Error),
    /// The store has not confirmed the release.
    Unanswered,
}

/// Set when the result of the release is known, or when nobody waits for it any more. The thread that waits for the store and the one that gives it
/// up may get here at the same time, and only one of them reports.
static SETTLED: OnceLock<()> = OnceLock::new();

/// A release that the store has not confirmed, and its consequences.
#[derive(Clone, Copy, Debug)]
struct UnconfirmedRelease {
    /// How much of the lease was left when the command had ended.
    left: Duration,
    is_kept: bool,
}

impl UnconfirmedRelease {
    fn of(held: &DLockGuard<'_>, kept: Option<Duration>) -> Self {
        Self { left: held.remaining(), is_kept: kept.is_some() }
    }

    /// Reports it with the reason, unless the result is known already.
    fn say(self, why: impl Display) {
        if SETTLED.set(()).is_err() {
            return;
        }
        let what = if self.is_kept {
            "the store has not confirmed that it keeps the lock: others may get it, and do the job again, when the lease ends, in"
        } else {
            "the lock could not be released: it ends by itself in"
        };
        let left = Duration::from_secs(self.left.as_secs() + 1);
        say(&format!("the command has ended, and {what} {left:?} at most: {why}"));
    }
}

/// Releases the lock, or keeps others from it until this time after it was acquired. A loss that is only noticed now counts, too.
fn release(held: DLockGuard<'_>, kept: Option<Duration>, unconfirmed: UnconfirmedRelease) -> Release {
    let released = match kept {
        Some(time) => held.unlock_after(time).map(drop),
        None => held.unlock(),
    };
    let outcome = match released {
        Ok(()) => Release::Done,
        Err(error @ Error::LeaseLost(_)) => Release::TooLate(error),
        Err(error) => {
            unconfirmed.say(error);
            Release::Unanswered
        }
    };
    let _ = SETTLED.set(());
    outcome
}
