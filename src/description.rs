//! Descriptions of locks for people: who holds a lock and why, who waits, and what their processes are.

use crate::fields::{self, Fields};
use crate::one_line::OneLine;
use std::fmt;
use std::time::{Duration, SystemTime};

/// The feature of a client that answers when it is asked about a key.
pub(crate) const DESCRIBES: &str = "describe";

/// How many waiting threads a client names at most.
pub(crate) const MOST_WAITERS: usize = 16;

/// The most that an answer says of one waiting thread, in bytes.
const LONGEST_WAITER: usize = 64;

/// The longest reason in an answer that names waiting threads, in bytes.
const LONGEST_REASON: usize = 400;

/// Who holds a lock and who waits for it: [`DLockGenerator::describe`](crate::DLockGenerator::describe). It may be out of date when it is read.
/// Each of its texts is one line, and safe to show. Nobody authenticates what clients say of themselves: a program that may write to the store
/// can forge it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The lock's key in the store.
    pub key: String,
    /// The holder of the lock; in its lock-delay, the last holder. `None` if there is none.
    pub holder: Option<Party>,
    /// The time until the store frees the key if nobody extends the lease. `None` if it never frees the key, or does not know.
    pub remaining: Option<Duration>,
    /// What is left of the [lock-delay](crate::DLockConfig::with_lock_delay), if the lock is in it: the lease of the
    /// [`holder`](Self::holder) has ended, no process holds the lock any more, and the store keeps others out for that time.
    pub lock_delay: Option<Duration>,
    /// The hold that has ended, if the release is [delayed](crate::DLockGuard::unlock_after): nobody holds the lock, and the store keeps
    /// everybody out for the [`remaining`](Self::remaining) time. The locker of the [`holder`](Self::holder) is the text that the key contains.
    pub delayed_release: Option<DelayedRelease>,
    /// The first hundred processes in the store's queue, in its order. A process that only polls, such as one of JVM DLock, is not among them.
    pub waiting: Vec<Party>,
    /// How many wait in that queue.
    pub queue_length: u64,
}

/// A process that holds a lock or waits for it.
///
/// ```
/// # use redis_dlock::{DLockConfig, DLockGenerator, MemoryLockProcessor};
/// # let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let lock = generator.generate_with(DLockConfig::new("EXPORT", "nightly").with_reason("for the books"))?;
/// let guard = lock.lock()?;
/// let holder = generator.describe("EXPORT", "nightly")?.holder.expect("this thread holds it");
/// // held by "web-1-4711-2bc5940092e843234bd3ff84-1": export (pid 4711) on web-1, for 3m 5s (for the books)
/// println!("held by {holder}");
/// # assert!(holder.to_string().ends_with("s (for the books)"), "{holder}");
/// # drop(guard);
/// # Ok::<_, redis_dlock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Party {
    /// The locker in the store, as it is there; what is no text, or looks like what is none, is escaped.
    pub locker: String,
    /// Whether it is a locker of the generator that was asked.
    pub is_local: bool,
    /// The client's record of itself. `None` if there is none: the process is dead, is cut off from the store, has just begun, is one of JVM
    /// DLock or of version 0.1.0, or was told to keep [no record](crate::GeneratorBuilder::client_record).
    pub client: Option<ClientRecord>,
    /// The client's answer. `None` if the client was not asked, because it does not listen, or did not answer in time.
    pub told: Option<Told>,
}

/// What a client says of itself, for as long as it lives and for at most 90 s longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientRecord {
    /// The name of the program's file.
    pub program: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The number of the process.
    pub pid: Option<u32>,
    /// The name of its user, or `uid` and a number.
    pub user: Option<String>,
    /// The version of this crate.
    pub version: Option<String>,
    /// When the client was made, by the clock of its machine.
    pub started: Option<SystemTime>,
    /// What the client can do that clients of other versions may not.
    pub features: Vec<String>,
}

/// What a client answers when it is asked about a lock. Times are those of its own clock, at the moment of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Told {
    /// The name of the thread that holds the lock, or that is the first to wait. For a [`Hold`](crate::Hold): the name that the program gave
    /// it, or else that of the thread that took it, or that waits for it.
    pub thread: Option<String>,
    /// The number of that thread, as in Rust's `ThreadId(7)`. `None` for a hold with a name of its own.
    pub thread_id: Option<u64>,
    /// What the lock is for: [`DLockConfig::with_reason`](crate::DLockConfig::with_reason) of the handle that asked for it.
    pub reason: Option<String>,
    /// For how long the thread holds the lock.
    pub held_for: Option<Duration>,
    /// How many times the thread holds the lock.
    pub hold_count: u32,
    /// The fencing token of the hold.
    pub token: Option<u64>,
    /// The time until the deadline at which the client counts the lock as lost, if the lease is not extended.
    pub lease_left: Option<Duration>,
    /// Whether no thread holds the lock, and the client keeps it for a while: [lingering](crate::manual::leases#lingering).
    pub lingering: bool,
    /// How many threads of the client wait for the lock.
    pub waiting_threads: usize,
    /// For how long the first of them has waited.
    pub first_waits_for: Option<Duration>,
    /// The first of these threads, in their order: sixteen at most, and fewer if the answer has no more room. A client of an earlier version
    /// names none.
    pub waiters: Vec<WaitingThread>,
}

/// A thread that waits for a lock in its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingThread {
    /// The name of the thread, or of the [`Hold`](crate::Hold) that it waits for. A long one is cut, and ends with `…`.
    pub thread: Option<String>,
    /// The number of the thread, as in Rust's `ThreadId(7)`.
    pub thread_id: Option<u64>,
    /// For how long it has waited, since it last asked the store.
    pub waits_for: Duration,
}

impl WaitingThread {
    /// Returns the fields of an answer that name the thread: its number, its time in milliseconds, and its name. What is unknown is empty.
    fn to_text(&self) -> String {
        let id = self.thread_id.map_or_else(String::new, |id| id.to_string());
        format!("{id},{},{}", self.waits_for.as_millis(), self.thread.as_deref().unwrap_or_default())
    }

    fn of_text(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ',');
        let (id, waits, name) = (parts.next()?, parts.next()?, parts.next()?);
        let thread = Some(name).filter(|name| !name.is_empty()).map(str::to_owned);
        Some(Self { thread, thread_id: id.parse().ok(), waits_for: waits.parse().ok().map(Duration::from_millis)? })
    }
}

/// A lock that is held or waited for: an item of [`DLockGenerator::list`](crate::DLockGenerator::list).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedLock {
    /// The lock's key in the store.
    pub key: String,
    /// The locker that holds the lock, or in its lock-delay held it last; `None` if nobody holds it, but others wait for it.
    pub locker: Option<String>,
    /// The time until the store frees the lock if nobody extends the lease.
    pub remaining: Option<Duration>,
    /// What is left of the lock-delay, if no process holds the lock any more: as [`Description::lock_delay`].
    pub lock_delay: Option<Duration>,
    /// The hold that has ended, if the release is delayed: as [`Description::delayed_release`].
    pub delayed_release: Option<DelayedRelease>,
    /// How many processes wait in the store's queue.
    pub waiting: u64,
}

/// What a key contains after [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after): nobody holds the lock, and nobody gets it before
/// the end of a time. Any program that may write to the store can forge it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelayedRelease {
    /// The locker of the hold that has ended.
    pub locker: String,
    /// How long the hold lasted.
    pub held_for: Duration,
    /// For how long after the end of the hold nobody gets the lock.
    pub delay: Duration,
    /// When the hold ended, by the clock of the holder's machine. Only on a store that does not tell what is left of the delay.
    pub ended: Option<SystemTime>,
    /// The name that the program gave the hold: [`DLockConfig::with_holder_name`](crate::DLockConfig::with_holder_name).
    pub holder_name: Option<String>,
    /// What the lock was for: [`DLockConfig::with_reason`](crate::DLockConfig::with_reason). A long reason is cut, and ends with `…`.
    pub reason: Option<String>,
    /// The name of the program's file.
    pub program: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The number of the process.
    pub pid: Option<u32>,
}

/// The beginning of what a key contains whose release is delayed. The rest is a text of [`Fields`]. The space keeps the whole from being taken
/// for the identity of a client, and its last field is one that no locker ends with.
const DELAYED: &str = "delayed-release ";

impl DelayedRelease {
    /// Reads what a key contains. `None` if that is not the mark of a delayed release.
    #[must_use]
    pub fn of_locker(text: &str) -> Option<Self> {
        let (mut locker, mut found) = (None, Self::default());
        let millis = |value: &str| value.parse().ok().map(Duration::from_millis).unwrap_or_default();
        for (name, value) in fields::read(text.strip_prefix(DELAYED)?) {
            match name {
                "locker" => locker = Some(value),
                "held" => found.held_for = millis(&value),
                "delay" => found.delay = millis(&value),
                "ended" => found.ended = time_of(&value),
                "holder" => found.holder_name = Some(value),
                "reason" => found.reason = Some(value),
                "program" => found.program = Some(value),
                "host" => found.host = Some(value),
                "pid" => found.pid = value.parse().ok(),
                _ => {}
            }
        }
        found.locker = locker?;
        Some(found)
    }

    /// Returns how long ago the hold has ended, if `remaining` is what the store says is left of the key's time.
    #[must_use]
    pub fn ended_ago(&self, remaining: Option<Duration>) -> Option<Duration> {
        match (remaining, self.ended) {
            (Some(left), _) => Some(self.delay.saturating_sub(left)),
            (None, Some(ended)) => SystemTime::now().duration_since(ended).ok(),
            (None, None) => None,
        }
    }

    pub(crate) fn to_mark(&self) -> String {
        let mut fields = Fields::default();
        fields.put("locker", Some(&self.locker));
        fields.put("held", Some(self.held_for.as_millis()));
        fields.put("delay", Some(self.delay.as_millis()));
        fields.put("ended", self.ended.and_then(seconds_of));
        fields.put("pid", self.pid);
        fields.put_text("host", self.host.as_deref(), 64);
        fields.put_text("program", self.program.as_deref(), 100);
        fields.put_text("holder", self.holder_name.as_deref(), 150);
        fields.put_text("reason", self.reason.as_deref(), 200);
        fields.put("version", Some(1));
        format!("{DELAYED}{}", fields.into_line())
    }

    /// A hold of this process.
    pub(crate) fn of_this_process(host: &str) -> Self {
        let this = ClientRecord::of_this_process(host, SystemTime::UNIX_EPOCH, &[]);
        Self { program: this.program, host: this.host, pid: this.pid, ..Self::default() }
    }

    /// Notes that the hold ends now, for a store that does not tell what is left of the delay. On other stores, what is left tells when the
    /// hold has ended.
    pub(crate) fn ending_now(self) -> Self {
        Self { ended: Some(SystemTime::now()), ..self }
    }
}

/// Writes a time of day as seconds.
fn seconds_of(at: SystemTime) -> Option<u64> {
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|at| at.as_secs())
}

/// Reads a time of day.
fn time_of(seconds: &str) -> Option<SystemTime> {
    let since = seconds.parse().ok().map(Duration::from_secs);
    since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since))
}

impl ClientRecord {
    /// Describes this process, with a client that was made at this time and has these features.
    pub(crate) fn of_this_process(host: &str, started: SystemTime, features: &[&str]) -> Self {
        let program = std::env::current_exe().ok();
        let program =
            program.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        Self {
            program,
            host: Some(host.to_owned()),
            pid: Some(std::process::id()),
            user: user(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            started: Some(started),
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        }
    }

    /// Returns whether the client answers when it is asked about a key.
    pub(crate) fn describes(&self) -> bool {
        self.features.iter().any(|feature| feature == DESCRIBES)
    }

    pub(crate) fn to_line(&self) -> String {
        let mut fields = Fields::default();
        fields.put("pid", self.pid);
        fields.put_text("version", self.version.as_deref(), 40);
        fields.put("started", self.started.and_then(seconds_of));
        fields.put_text("features", Some(&self.features.join(",")), 100);
        fields.put_text("host", self.host.as_deref(), 200);
        fields.put_text("user", self.user.as_deref(), 200);
        fields.put_text("program", self.program.as_deref(), 300);
        fields.into_line()
    }

    pub(crate) fn of_line(line: &str) -> Self {
        let mut record = Self::default();
        for (name, value) in fields::read(line) {
            match name {
                "program" => record.program = Some(value),
                "host" => record.host = Some(value),
                "pid" => record.pid = value.parse().ok(),
                "user" => record.user = Some(value),
                "version" => record.version = Some(value),
                "started" => record.started = time_of(&value),
                "features" => record.features = value.split(',').filter(|f| !f.is_empty()).map(str::to_owned).collect(),
                // A later version says more.
                _ => {}
            }
        }
        record
    }
}

/// Returns the name of the user of this process, or `uid` and its number.
fn user() -> Option<String> {
    let named = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|name| !name.is_empty());
    named.or_else(uid)
}

#[cfg(target_os = "linux")]
fn uid() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").ok().map(|of| format!("uid {}", of.uid()))
}

#[cfg(not(target_os = "linux"))]
fn uid() -> Option<String> {
    None
}

impl Told {
    /// Writes what the client says of this locker, if it has one.
    pub(crate) fn to_line(&self, locker: Option<&str>) -> String {
        let millis = |time: Option<Duration>| time.map(|time| time.as_millis());
        let mut fields = Fields::default();
        fields.put("locker", locker);
        fields.put("threadid", self.thread_id);
        fields.put("held", millis(self.held_for));
        fields.put("count", Some(self.hold_count));
        fields.put("token", self.token);
        fields.put("left", millis(self.lease_left));
        fields.put("lingering", Some(u8::from(self.lingering)));
        fields.put("threads", Some(self.waiting_threads));
        fields.put("waits", millis(self.first_waits_for));
        fields.put_text("thread", self.thread.as_deref(), 150);
        let most = if self.waiters.is_empty() { fields::MOST } else { LONGEST_REASON };
        fields.put_text("reason", self.reason.as_deref(), most);
        // Earlier versions ignore these.
        for waiter in self.waiters.iter().take(MOST_WAITERS) {
            if !fields.has_room("waiter", LONGEST_WAITER) {
                break;
            }
            fields.put_text("waiter", Some(&waiter.to_text()), LONGEST_WAITER);
        }
        fields.into_line()
    }

    /// Reads an answer, and the locker that it is about.
    pub(crate) fn of_line(line: &str) -> (Option<String>, Self) {
        let (mut locker, mut told) = (None, Self::default());
        let millis = |value: &str| value.parse().ok().map(Duration::from_millis);
        for (name, value) in fields::read(line) {
            match name {
                "locker" => locker = Some(value),
                "thread" => told.thread = Some(value),
                "threadid" => told.thread_id = value.parse().ok(),
                "reason" => told.reason = Some(value),
                "held" => told.held_for = millis(&value),
                "count" => told.hold_count = value.parse().unwrap_or(0),
                "token" => told.token = value.parse().ok(),
                "left" => told.lease_left = millis(&value),
                "lingering" => told.lingering = value == "1",
                "threads" => told.waiting_threads = value.parse().unwrap_or(0),
                "waits" => told.first_waits_for = millis(&value),
                "waiter" if told.waiters.len() < MOST_WAITERS => told.waiters.extend(WaitingThread::of_text(&value)),
                _ => {}
            }
        }
        (locker, told)
    }
}

// Who holds a lock and who waits for it, in words: each is a part of one line.

/// Shows the locker, and as far as they are known the process, how long it holds the lock or waits for it, and the reason: for a line such as
/// `held by {party}`.
impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&locker_in_words(&self.locker))?;
        if let Some(client) = &self.client {
            write!(f, ": {}", process(client.program.as_deref(), client.pid, client.host.as_deref()))?;
        }
        let Some(told) = &self.told else { return Ok(()) };
        // A client that still asks may be in the key already, and holds nothing then.
        match (told.held_for, told.first_waits_for) {
            (Some(held), _) => write!(f, ", for {}", time(held))?,
            (None, Some(waits)) => write!(f, ", waiting for {}", time(waits))?,
            (None, None) => {}
        }
        f.write_str(&reason(told.reason.as_deref()))
    }
}

/// Shows the process, the name of the hold, how long the hold lasted, and the reason: for a line such as `held last by {release}`.
impl fmt::Display for DelayedRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&process(self.program.as_deref(), self.pid, self.host.as_deref()))?;
        if let Some(name) = &self.holder_name {
            write!(f, ", {}", OneLine(name))?;
        }
        write!(f, ", in {}{}", time(self.held_for), reason(self.reason.as_deref()))
    }
}

/// Returns what a key contains, in quotation marks if that is a locker.
pub(crate) fn locker_in_words(text: &str) -> String {
    match DelayedRelease::of_locker(text) {
        Some(ended) => format!("nobody: held last by {ended}"),
        None => format!("{text:?}"),
    }
}

fn process(program: Option<&str>, pid: Option<u32>, host: Option<&str>) -> String {
    let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    format!("{} (pid {pid}) on {}", OneLine(program.unwrap_or("?")), OneLine(host.unwrap_or("?")))
}

fn reason(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({})", OneLine(reason)))
}

/// Returns a time as people write it: to a millisecond below ten seconds, to a second above.
fn time(time: Duration) -> String {
    const UNITS: [(&str, u128); 5] = [("day", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut left = time.as_millis();
    if left >= 10_000 {
        left -= left % 1_000;
    }
    let mut words = Vec::new();
    for (unit, length) in UNITS {
        let (count, plural) = (left / length, if unit == "day" && left / length > 1 { "s" } else { "" });
        left %= length;
        if count > 0 {
            words.push(format!("{count}{unit}{plural}"));
        }
    }
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
#[path = "../tests/white_box/description.rs"]
mod tests;
