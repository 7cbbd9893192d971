//! The arguments.

#![allow(clippy::doc_markdown, reason = "the comments are what `--help` prints")]

use crate::message::LogFormat;
use crate::settings::{Reach, Rules, time};
use crate::status::NOT_ACQUIRED;
use crate::timing;
use clap::builder::{NonEmptyStringValueParser, Resettable, Str};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use nix::sys::signal::Signal;
use redis_dlock::DLockConfig;
use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

/// Distributed locks on Redis, etcd or Consul for shell scripts and cron jobs.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, after_help = WHERE, subcommand_required = true, arg_required_else_help = false)]
pub(crate) struct Arguments<A: Subcommand = Action> {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// How messages on standard error are written: as text, or as one JSON document a line, {"time", "level", "program", "pid", "message"}.
    /// "level" is error, warn or info. Where they are known, there are also "lock", its key, and "holder", "host" and "reason" of who has it
    // It is read before all other arguments: see `message::read_format`.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text",
        help_heading = OPTIONS
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) action: A,
}

/// Only the subcommand that is used most often. Defining all subcommands takes longer than the rest of the arguments.
#[derive(Debug, Subcommand)]
enum OnlyRun {
    Run(Run),
}

impl Arguments {
    /// Reads the arguments of this process, of which one may be `run`.
    pub(crate) fn read(may_run: bool) -> Result<Self, clap::Error> {
        if may_run
            && let Ok(Arguments { reach, log_format, action: OnlyRun::Run(run) }) = Arguments::<OnlyRun>::try_parse()
        {
            return Ok(Self { reach, log_format, action: Action::Run(run) });
        }
        // The whole definition explains errors and prints help.
        Self::try_parse()
    }
}

/// The usual heading, for options that concern neither the server nor the lock. Without it, the heading of a flattened struct would go on.
const OPTIONS: Resettable<Str> = Resettable::Reset;

// A line of these texts has at most 79 characters, unless it is a paragraph: a terminal wraps longer lines, and would break the lists.

const WHERE: &str = "\
The server is that of --url, else of the environment variable DLOCK_URL, else of the line `url = …` in the file \
$XDG_CONFIG_HOME/dlock/config (~/.config/dlock/config if XDG_CONFIG_HOME is not set). The file may have a line for each other option of \
the server and the lock, too: `replica-acks = 1`. A time is a number of seconds, or 500ms, 30s, 5m, 1h 30m.";

/// What `--help` says of the exit statuses of `dlock run`.
const RUNNING: &str = "\
Exit status:
  that of the command; 128 + n if signal n ended it, or ended dlock before
  64   wrong usage: arguments, URL or configuration file
  65   not acquired: somebody else held the lock for all of --wait, or with
       --once-every it was done already (or what --not-acquired-status says)
  66   the lock was lost while the command ran (with --on-lost stop)
  67   the server cannot be reached, or does not answer, also at the end of --wait
  68   the server denies the login, or a right
  69   the server cannot carry the lock, or the key is used for something else
  70   the operating system refused something that dlock needs
  126  the command cannot be executed
  127  the command was not found

INT, TERM, HUP, QUIT, USR1 and USR2 are forwarded to the command's process group. When dlock ends, even by SIGKILL, nothing of this group is \
left; --daemons says what becomes of other processes that the command has started. A dlock that is stopped (Ctrl-Z) renews nothing: after the lease, others may get the lock.";

/// What `--help` says of the exit statuses of `dlock ls`.
const LISTING: &str = "\
Exit status:
  0    done, whether or not there is such a lock
  64   wrong usage: arguments, URL or configuration file
  67   the server, or a master of a Cluster, cannot be reached or does not answer
  68   the server denies the login, or a right: +scan is needed
  69   the server cannot tell
  70   the output could not be written";

/// What `--help` says of the exit statuses of `dlock show`.
const SHOWING: &str = "\
Exit status:
  0    done, whether or not somebody holds it; with --quiet: somebody does
  1    with --quiet: nobody holds it
  64   wrong usage: arguments, URL or configuration file
  67   the server cannot be reached, or does not answer
  68   the server denies the login, or a right
  69   the server cannot tell, or the key is used for something else
  70   the output could not be written";

/// What `--help` says of the exit statuses of `dlock watch`.
const WATCHING: &str = "\
Exit status:
  0    all rounds of --count are printed, or nobody reads them any more
  64   wrong usage: arguments, URL or configuration file
  68   the server denies the login, or a right: +scan is needed
  69   the server cannot tell
  70   the output could not be written

A server that cannot be reached, or does not answer, is waited for.";

/// What `--help` says of the exit statuses of `dlock wait`.
const WAITING: &str = "\
Exit status:
  0    nobody holds the lock
  64   wrong usage: arguments, URL or configuration file
  65   somebody held the lock for all of --timeout
  67   the server cannot be reached, or does not answer, until the end of --timeout
  68   the server denies the login, or a right
  69   the server cannot tell, or the key is used for something else

It looks every half second, and takes no lock: when it ends, somebody else may already hold the lock again. A lock whose holder has died is held \
until its lease and its lock-delay are over. One that is kept after --at-least or --once-every is not held.";

/// What `--help` says of the exit statuses of `dlock completions` and `dlock man`.
const PRINTING: &str = "\
Exit status:
  0    done
  64   there is no such shell or subcommand
  70   the output could not be written";

/// What `--help` says of the exit statuses of `dlock break`.
const BREAKING: &str = "\
Exit status:
  0    the lock was taken from that locker
  1    that locker does not hold the lock, or the question was not answered
       with yes: nothing was changed
  64   wrong usage: arguments, URL or configuration file
  67   the server cannot be reached, or does not answer
  68   the server denies the login, or a right
  69   the server cannot break locks, or the key is used for something else
  70   the lock was taken, and that could not be written

The broken holder is told at once if it listens, else by its next look, a sixth of its lease later at most. Until then it goes on.";

/// How `dlock break` is used, in two lines: clap's own is wider than a narrow terminal, and pairs `--yes` with `--locker`.
const BREAK_USAGE: &str = "\
dlock break [OPTIONS] --locker <LOCKER> <TYPE> <TARGET>
       dlock break [OPTIONS] --current [--yes] <TYPE> <TARGET>";

/// What `--help` says of the exit statuses of `dlock doctor`.
const EXAMINING: &str = "\
Exit status:
  0    nothing is wrong; there may be notices
  1    something is wrong with a server, or it cannot be reached
  64   wrong usage: arguments, URL or configuration file
  70   the findings could not be written";

/// What `--help` says of the exit statuses of `dlock exporter`.
const SERVING: &str = "\
Exit status:
  64   wrong usage: arguments, URL or configuration file
  70   the address cannot be listened on

If the server cannot be reached or denies a right, dlock_store_up is 0, and one line on standard error says so. Another line says when the server is back. A request lists all locks once; those that come meanwhile have the same answer. \
Whoever reaches the address can read it: there is no login and no TLS.";

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs a command under a lock, and releases the lock when the command and all processes of its process group have ended
    #[command(after_help = RUNNING)]
    Run(Run),
    /// Lists the locks that somebody holds or waits for, as they are found: up to 256 together by name. A master of a Cluster that does not answer is named
    #[command(after_help = LISTING)]
    Ls(Ls),
    /// Shows who holds a lock, why and since when, and who waits for it in which order
    #[command(after_help = SHOWING)]
    Show(Show),
    /// Waits until nobody holds a lock
    #[command(after_help = WAITING)]
    Wait(Wait),
    /// Lists locks again and again, in place on a terminal, until it is interrupted
    #[command(after_help = WATCHING)]
    Watch(Watch),
    /// Takes a lock from its holder by force, and gives it to the first that waits
    #[command(after_help = BREAKING, override_usage = BREAK_USAGE)]
    Break(Break),
    /// Examines the server, or each master of a Cluster, and their replicas: rights, version, role, messages, eviction, persistence, clock and
    /// round trip; and says what to do
    #[command(after_help = EXAMINING)]
    Doctor(Doctor),
    /// Serves the figures of all locks for Prometheus at /metrics, until it is ended: held, waiting, leases near their end, by type
    #[command(after_help = SERVING)]
    Exporter(Exporter),
    /// Prints what a shell needs to complete the arguments of dlock
    #[command(after_help = PRINTING)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the manual page, for `man -l -`
    #[command(after_help = PRINTING)]
    Man {
        /// A subcommand, for its own page
        #[arg(value_name = "SUBCOMMAND")]
        of: Option<String>,
    },
}

impl Action {
    /// The lock that the subcommand is about.
    pub(crate) fn lock(&self) -> Option<&LockName> {
        match self {
            Self::Run(Run { lock, .. })
            | Self::Show(Show { lock, .. })
            | Self::Wait(Wait { lock, .. })
            | Self::Break(Break { lock, .. }) => Some(lock),
            _ => None,
        }
    }
}

/// One lock.
#[derive(Args, Clone, Debug)]
pub(crate) struct LockName {
    /// The lock's type, a name for locks of one kind
    #[arg(value_name = "TYPE")]
    pub(crate) lock_type: String,
    /// What is locked. Spaces at its ends do not count. The lock's key on the server is DLOCK_{TYPE}_{TARGET}
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
}

impl LockName {
    pub(crate) fn key(&self) -> String {
        DLockConfig::new(&*self.lock_type, &self.target).unique_key().to_owned()
    }
}

/// Some locks.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// Which locks, by TYPE_TARGET, without the prefix DLOCK_ of the keys: `*` stands for any text, `?` for any character, `\` takes the meaning of the next one away
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: String,
}

#[derive(Args, Debug)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Prints one JSON document a line for each lock: {"key", "locker", "remaining_ms", "lock_delay_ms", "delayed_release", "waiting"}.
    /// "locker" is null if others wait for a lock that is free, "remaining_ms" too, and on etcd and Consul always; "lock_delay_ms" unless the
    /// holder has died and the lock is in its lock-delay; "delayed_release" unless a hold has ended and the lock is kept: then nobody holds it,
    /// "locker" is a text that begins with `delayed-release`, and "delayed_release" is {"locker", "held_for_ms", "delay_ms", "ended_ms_ago",
    /// "holder_name", "reason", "program", "host", "pid"}
    #[arg(long)]
    pub(crate) json: bool,
    /// Asks each holder, too: for how long it holds the lock, and why. That is one question a lock. With --json, each document has the fields held_for_ms and reason, too
    #[arg(long)]
    pub(crate) long: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) lock: LockName,
    /// Prints one JSON document: {"key", "holder", "remaining_ms", "lock_delay_ms", "delayed_release", "waiting", "queue_length"}. The holder,
    /// and each in the list "waiting", is {"locker", "client", "told"}. If a hold has ended and the lock is kept, "delayed_release" is
    /// {"locker", "held_for_ms", "delay_ms", "ended_ms_ago", "holder_name", "reason", "program", "host", "pid"}. "client" is {"program",
    /// "host", "pid", "user", "version", "started_unix_ms", "features"}. "told" is {"thread", "thread_id", "reason", "held_for_ms",
    /// "hold_count", "token", "lease_left_ms", "lingering", "waiting_threads", "first_waits_for_ms", "waiters"}, and the first of the threads
    /// that wait are {"thread", "thread_id", "waits_for_ms"}. What is not known is null
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints nothing: the exit status says whether somebody holds the lock. A lock in its lock-delay is held
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) lock: LockName,
    /// Waits for at most this time. Without it, waits without a limit; with 0, looks once. Of a holder that does not answer before the end, only
    /// the locker is named
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Prints one JSON document a line for each round: {"locks": [{"key", "locker", "remaining_ms", "lock_delay_ms", "delayed_release", "waiting"}, …]},
    /// as `ls` does, or {"error"} with a text while the server does not answer, or both while a master of a Cluster does not
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait before asking again
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) interval: Duration,
    /// Stops after this many rounds
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Break {
    #[command(flatten)]
    pub(crate) lock: LockName,
    #[command(flatten)]
    pub(crate) from: FromWhom,
    /// Does not ask. If somebody else holds it by the time of the break, nothing is changed
    #[arg(long, requires = "current")]
    pub(crate) yes: bool,
    /// What the holder is told
    #[arg(long, value_name = "TEXT", default_value = "broken with dlock")]
    pub(crate) reason: String,
}

/// From whom a lock is taken.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct FromWhom {
    /// Who must hold it, as `dlock ls` and `dlock show` print it. If somebody else does, nothing is changed
    #[arg(long, value_name = "LOCKER", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) locker: Option<String>,
    /// Shows who holds it, and asks on the terminal whether to take it from them
    #[arg(long)]
    pub(crate) current: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Waits for a server that is away for at most this time. Without it, that is a finding
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    /// How long the examination of one server may take, with the first connect
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) limit: Duration,
    /// Prints one JSON document: {"worst", "findings": [{"server", "subject", "severity", "message", "advice"}, …]}. "severity" and
    /// "worst" are fine, notice or wrong; "advice" is null where there is nothing to do
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Exporter {
    /// Where it is served
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9810", value_parser = host_and_port)]
    pub(crate) listen: String,
    /// A lease that has no more left than this is near its end
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub(crate) near: Duration,
    /// How many types of locks have figures of their own. Those that are seen later have them together, as the type `other`
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) types: usize,
    /// Types whose names contain `_`: of any other key, the text before the first `_` counts as the type
    #[arg(long = "type", value_name = "TYPE,…", value_delimiter = ',')]
    pub(crate) named: Vec<String>,
}

/// Reads `127.0.0.1:9810`, `[::]:9810` or `localhost:9810`.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_whole = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if text.rsplit_once(':').is_some_and(is_whole) {
        Ok(text.to_owned())
    } else {
        Err("give HOST:PORT: 0.0.0.0:9810".to_owned())
    }
}

/// The last part of the lease, as a divisor. A lease that cannot be renewed counts as lost when this part begins, so that the command ends before the
/// lease.
const ENDING_PART: u32 = 6;

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) lock: LockName,
    /// Waits for the lock for at most this time (30s, 5m). Without it, waits without a limit
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    /// Tries once, and does not wait
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// The exit status if the lock was not acquired, such as 0 where it is no failure that the command runs elsewhere, or was run already
    #[arg(long, value_name = "STATUS", default_value_t = NOT_ACQUIRED)]
    pub(crate) not_acquired_status: u8,
    /// Keeps everybody from the lock until so long after the command has got it, whatever its status is: a job that ends at once is not run
    /// again by a machine whose clock is late. Who waits with --once-every waits for the end of this time, too
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "once_every")]
    pub(crate) at_least: Option<Duration>,
    /// Keeps everybody from the lock for so long after the command has ended with status 0. Whoever finds it so ends at once with status 65,
    /// and says when and by whom it was done. After a command that has failed, others may run theirs. Give a time that is shorter than the
    /// period by more than the command takes: 20h for a job of every night
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) once_every: Option<Duration>,
    /// Says on standard error for whom it waits, when it has the lock, and when the command has ended and the lock is released
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// How long the server keeps the lock without hearing from dlock, which renews it for as long as the command runs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) lease: Duration,
    /// What the lock is for, as `dlock show` tells it. Without it, that is the command with its arguments: give a reason if the
    /// arguments hold what users of the server must not see
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The signal that asks the command's process group to end
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
    pub(crate) stop_signal: Signal,
    /// How long the group has to end after the stop signal, before SIGKILL: 5s, and after a loss a sixth of the lease at most. A lease that
    /// cannot be renewed counts as lost so long before its end; of a longer time after a loss, somebody else may have the lock in the rest
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// What happens when the lock is lost: `stop` ends the command, `warn` prints a message and lets it run, and anything else is
    /// run as a shell command, with DLOCK_PID (the command's process id) in its environment, while the command goes on
    #[arg(long, value_name = "stop|warn|CMD", default_value = "stop", value_parser = on_lost)]
    pub(crate) on_lost: OnLost,
    /// What becomes of processes that outlive the command outside its process group, such as daemons: `stop` ends them like the group, `wait` keeps the
    /// lock until all that the command has started has ended, and `leave` lets them run on without the lock
    #[arg(long, value_enum, value_name = "stop|wait|leave", hide_possible_values = true, default_value = "stop")]
    pub(crate) daemons: WithDaemons,
    #[command(flatten)]
    pub(crate) rules: Rules,
    /// The command and its arguments. It finds the lock's key in the environment variable DLOCK_KEY, and the fencing token in
    /// DLOCK_TOKEN
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = OPTIONS)]
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// How long the group has to end while the lock is held.
    pub(crate) fn grace(&self) -> Duration {
        self.grace.unwrap_or(timing::GRACE)
    }

    /// How long the group has to end after a loss.
    pub(crate) fn grace_after_loss(&self, max_hold: Option<Duration>) -> Duration {
        self.grace.unwrap_or_else(|| self.reserve(max_hold))
    }

    /// How long before the end of the lease the command is told to stop, if the lease could not be renewed, or before that of `--max-hold`.
    /// A limit that is shorter than the lease counts as the lease here, so that the command gets most of it.
    pub(crate) fn reserve(&self, max_hold: Option<Duration>) -> Duration {
        let lease = max_hold.map_or(self.lease, |limit| limit.min(self.lease));
        self.grace().min(lease / ENDING_PART)
    }
}

/// What happens to processes that the command has started outside its process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WithDaemons {
    Stop,
    Wait,
    Leave,
}

/// What is done when the lock is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnLost {
    Stop,
    Warn,
    Run(String),
}

fn on_lost(text: &str) -> Result<OnLost, String> {
    match text {
        "stop" => Ok(OnLost::Stop),
        "warn" => Ok(OnLost::Warn),
        _ if text.trim().is_empty() => Err("give `stop`, `warn` or a shell command".to_owned()),
        command => Ok(OnLost::Run(command.to_owned())),
    }
}

/// Reads `TERM`, `SIGTERM`, `term` or `15`.
fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_ascii_uppercase();
    let named = if name.starts_with("SIG") { Signal::from_str(&name) } else { Signal::from_str(&format!("SIG{name}")) };
    let found = named.ok().or_else(|| Signal::try_from(text.parse::<i32>().ok()?).ok());
    found.ok_or_else(|| "give the name or the number of a signal, TERM or 15 say".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        <Arguments>::command().debug_assert();
        Arguments::<OnlyRun>::command().debug_assert();
    }

    #[test]
    fn a_number_is_seconds() {
        for (text, millis) in [("5", 5000), ("0", 0), ("0.5", 500), ("5s", 5000), ("1m 30s", 90_000), ("20ms", 20)] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "soon", "-5", "5 parsecs", "1e3", "inf", "NaN", ".", "99999999999999999999999"] {
            assert!(time(wrong).is_err_and(|hint| hint.contains("30s")), "{wrong}");
        }
    }

    #[test]
    fn a_signal_has_several_names() {
        for name in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(signal(name), Ok(Signal::SIGTERM));
        }
        assert!(signal("TREM").is_err() && signal("0").is_err() && signal("").is_err());
    }

    #[test]
    fn what_happens_on_a_loss_is_a_word_or_a_command() {
        assert_eq!(on_lost("stop"), Ok(OnLost::Stop));
        assert_eq!(on_lost("warn"), Ok(OnLost::Warn));
        assert_eq!(on_lost("kill $DLOCK_PID"), Ok(OnLost::Run("kill $DLOCK_PID".to_owned())));
        assert!(on_lost(" ").is_err());
    }
}
