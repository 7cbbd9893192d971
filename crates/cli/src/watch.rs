//! `dlock watch` prints the list of locks repeatedly.

use crate::args::{Watch, Which};
use crate::list::{self, AllLocks};
use crate::output;
use crate::settings::Settings;
use crate::status::Failure;
use redis_dlock::DLockGenerator;
use serde_json::json;
use std::io::{self, IsTerminal};
use std::thread;

pub(crate) fn watch(settings: &Settings, wanted: &Watch) -> Result<u8, Failure> {
    // A wrong URL or password is an error at once. A server that is away may come back, so this waits for it. With `--json` each round reports it
    // instead.
    let mut connected = if wanted.json { None } else { Some(settings.connect_when_there()?) };
    let in_place = !wanted.json && io::stdout().is_terminal();
    let mut rounds = 0;
    loop {
        // An error that may pass is a part of the output. A denied right ends the watch.
        let found = ask(settings, &mut connected, &wanted.which)?;
        let (rows, columns) = if in_place { output::size() } else { (usize::MAX, usize::MAX) };
        let page = if wanted.json { document(&found) } else { page(&found, columns) };
        let is_read = output::print(&if in_place { output::over(&output::fit(&page, rows, columns)) } else { page })?;
        rounds += 1;
        if !is_read || wanted.count.is_some_and(|count| rounds >= count) {
            return Ok(0);
        }
        thread::sleep(wanted.interval);
    }
}

/// Connects if necessary, and asks for all locks.
fn ask(settings: &Settings, connected: &mut Option<DLockGenerator>, which: &Which) -> Result<AllLocks, Failure> {
    let generator = match connected {
        Some(generator) => generator,
        None => match settings.builder()?.connect() {
            Err(error) if error.is_transient() => return Ok(AllLocks { locks: Vec::new(), missing: vec![error] }),
            store => connected.insert(Settings::asking(store?)?),
        },
    };
    Ok(list::ask(generator, which)?)
}

fn page(found: &AllLocks, columns: usize) -> String {
    let mut page = String::new();
    if found.missing.is_empty() || !found.locks.is_empty() {
        let count = found.locks.len();
        page = list::page(&found.locks, columns);
        page.push_str(&format!("{count} {}\n", if count == 1 { "lock" } else { "locks" }));
    }
    page.extend(found.missing.iter().map(|error| format!("{error}\n")));
    page
}

/// One line: `{"locks": […]}`, `{"error": "…"}`, or both if a master of a Cluster does not answer.
fn document(found: &AllLocks) -> String {
    let locks: Vec<_> = found.locks.iter().map(list::document).collect();
    let errors: Vec<_> = found.missing.iter().map(ToString::to_string).collect();
    let document = match (locks.is_empty(), errors.is_empty()) {
        (_, true) => json!({ "locks": locks }),
        (true, false) => json!({ "error": errors.join("; ") }),
        (false, false) => json!({ "locks": locks, "error": errors.join("; ") }),
    };
    format!("{document}\n")
}
