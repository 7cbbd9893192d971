//! `dlock show` prints who holds a lock, and who waits for it.

use crate::args::{LockName, Show};
use crate::output::{self, millis, one_line, time};
use crate::settings::Settings;
use crate::status::{Failure, NOT_HELD};
use redis_dlock::{
    ClientRecord, DLockGenerator, DelayedRelease, Description, Error, Holder, Party, Told, WaitingThread,
};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, SystemTime};

pub(crate) fn show(settings: &Settings, wanted: &Show) -> Result<u8, Failure> {
    let generator = settings.connect()?;
    if wanted.quiet {
        return Ok(if holder(&generator, &wanted.lock)?.is_some() { 0 } else { NOT_HELD });
    }
    let seen = generator.describe(&*wanted.lock.lock_type, &wanted.lock.target)?;
    output::print(&if wanted.json { document(&seen) } else { page(&seen) })?;
    Ok(0)
}

fn document(seen: &Description) -> String {
    let document = json!({
        "key": seen.key,
        "holder": seen.holder.as_ref().map(party),
        "remaining_ms": seen.remaining.map(millis),
        "lock_delay_ms": seen.lock_delay.map(millis),
        "delayed_release": seen.delayed_release.as_ref().map(|ended| delayed(ended, seen.remaining)),
        "waiting": seen.waiting.iter().map(party).collect::<Vec<_>>(),
        "queue_length": seen.queue_length,
    });
    format!("{document:#}\n")
}

pub(crate) fn delayed(ended: &DelayedRelease, remaining: Option<Duration>) -> Value {
    json!({
        "locker": ended.locker,
        "held_for_ms": millis(ended.held_for),
        "delay_ms": millis(ended.delay),
        "ended_ms_ago": ended.ended_ago(remaining).map(millis),
        "holder_name": ended.holder_name,
        "reason": ended.reason,
        "program": ended.program,
        "host": ended.host,
        "pid": ended.pid,
    })
}

fn party(party: &Party) -> Value {
    json!({
        "locker": party.locker,
        "client": party.client.as_ref().map(client),
        "told": party.told.as_ref().map(told),
    })
}

fn client(client: &ClientRecord) -> Value {
    let started = client.started.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    json!({
        "program": client.program,
        "host": client.host,
        "pid": client.pid,
        "user": client.user,
        "version": client.version,
        "started_unix_ms": started.map(millis),
        "features": client.features,
    })
}

fn told(told: &Told) -> Value {
    json!({
        "thread": told.thread,
        "thread_id": told.thread_id,
        "reason": told.reason,
        "held_for_ms": told.held_for.map(millis),
        "hold_count": told.hold_count,
        "token": told.token,
        "lease_left_ms": told.lease_left.map(millis),
        "lingering": told.lingering,
        "waiting_threads": told.waiting_threads,
        "first_waits_for_ms": told.first_waits_for.map(millis),
        "waiters": told.waiters.iter().map(waiter).collect::<Vec<_>>(),
    })
}

fn waiter(waiter: &WaitingThread) -> Value {
    json!({
        "thread": waiter.thread,
        "thread_id": waiter.thread_id,
        "waits_for_ms": millis(waiter.waits_for),
    })
}

/// The key of a lock in quotation marks.
pub(crate) fn key(lock: &LockName) -> String {
    format!("{:?}", lock.key())
}

/// Returns the lock's holder. A lock that is kept after its hold has ended has none. A lock in its lock-delay has one, because work of its dead
/// holder may still be under way.
pub(crate) fn holder(generator: &DLockGenerator, lock: &LockName) -> Result<Option<Holder>, Error> {
    let seen = generator.generate(&*lock.lock_type, &lock.target)?.holder()?;
    Ok(seen.filter(|holder| holder.delayed_release().is_none()))
}

/// Returns the holder of a lock, as far as the store and the holder tell. `None` if nobody holds it, or if they do not tell.
pub(crate) fn holder_of(generator: &DLockGenerator, lock: &LockName) -> Option<Party> {
    generator.describe(&*lock.lock_type, &lock.target).ok()?.holder
}

/// Returns the description of a lock for people.
pub(crate) fn page(seen: &Description) -> String {
    let mut page = format!("{}\n", one_line(&seen.key));
    match &seen.holder {
        None => page.push_str("  nobody holds it\n"),
        Some(_) if seen.delayed_release.is_some() => of_delay(&mut page, seen),
        Some(holder) => {
            match seen.lock_delay {
                Some(left) => {
                    let _ = writeln!(page, "  nobody holds it: its lock-delay has {} left", time(left));
                    let _ = writeln!(page, "  held last by {}", one_line(&holder.locker));
                }
                None => {
                    let _ = writeln!(page, "  held by {}", one_line(&holder.locker));
                }
            }
            of_party(&mut page, holder);
            if let Some(left) = seen.remaining {
                let _ = writeln!(page, "    the server keeps it for {}", time(left));
            }
        }
    }
    for (n, waits) in seen.waiting.iter().enumerate() {
        let _ = writeln!(page, "  {}. waits: {}", n + 1, one_line(&waits.locker));
        of_party(&mut page, waits);
    }
    let more = seen.queue_length.saturating_sub(seen.waiting.len() as u64);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more");
    }
    page
}

/// Adds the lines about a delayed release.
fn of_delay(page: &mut String, seen: &Description) {
    let Some(ended) = &seen.delayed_release else { return };
    let left = seen.remaining.map_or_else(String::new, |left| format!(" for {}", time(left)));
    let _ = writeln!(page, "  nobody holds it: it is kept free of holders{left}");
    let ago = ended.ended_ago(seen.remaining).map_or_else(String::new, |ago| format!(" until {} ago", time(ago)));
    let _ = writeln!(page, "  held last by {}{ago}", one_line(&ended.locker));
    let _ = writeln!(page, "    {ended}");
    let _ = writeln!(page, "    dlock break with --current ends it");
}

fn of_party(page: &mut String, party: &Party) {
    let mut line = |text: String| {
        let _ = writeln!(page, "    {text}");
    };
    match &party.client {
        Some(client) => line(of_client(client)),
        None => line("no client record: the process may be dead, or keeps none".to_owned()),
    }
    let Some(told) = &party.told else {
        return line(
            "the process was not asked, or has not answered: it hangs, has just begun, or does not listen".to_owned(),
        );
    };
    if let Some(reason) = &told.reason {
        line(format!("reason: {}", one_line(reason)));
    }
    if let Some(held) = told.held_for {
        // A hold with a holder name has no thread number.
        let owner = match (&told.thread, told.thread_id) {
            (Some(name), Some(id)) => format!("thread {} ({id})", one_line(name)),
            (Some(name), None) => one_line(name),
            (None, Some(id)) => format!("a thread without a name ({id})"),
            (None, None) => "a thread without a name".to_owned(),
        };
        let token = told.token.map_or_else(String::new, |token| format!(", token {token}"));
        let count = if told.hold_count > 1 { format!(" (locked {} times)", told.hold_count) } else { String::new() };
        line(format!("{owner} has held it for {}{count}{token}", time(held)));
    }
    if told.lingering {
        line("no thread holds it: the process keeps it for a while".to_owned());
    }
    if let Some(left) = told.lease_left {
        line(format!("{} of its lease are left, by its own clock", time(left)));
    }
    if told.waiting_threads > 0 {
        let first = told.first_waits_for.map_or_else(String::new, |since| format!(", the longest for {}", time(since)));
        line(format!("waiting threads: {}{first}", told.waiting_threads));
    }
    for waiter in &told.waiters {
        let name = waiter.thread.as_deref().map_or_else(|| "a thread without a name".to_owned(), one_line);
        let number = waiter.thread_id.map_or_else(String::new, |id| format!(" ({id})"));
        line(format!("  {name}{number} waits for {}", time(waiter.waits_for)));
    }
}

/// `program (pid 7) of user on host, version 0.1.0, running for 3m`.
fn of_client(client: &ClientRecord) -> String {
    let text = |value: &Option<String>| value.as_deref().map_or_else(|| "?".to_owned(), one_line);
    let pid = client.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    let mut line = format!(
        "{} (pid {pid}) of {} on {}, version {}",
        text(&client.program),
        text(&client.user),
        text(&client.host),
        text(&client.version)
    );
    if let Some(age) = client.started.and_then(|at| SystemTime::now().duration_since(at).ok()) {
        let _ = write!(line, ", running for {}", time(age));
    }
    line
}
