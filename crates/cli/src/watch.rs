//! `dlock watch`: the list of locks, again and again.

use crate::args::Watch;
use crate::list::{self, Found};
use crate::output;
use crate::settings::Settings;
use crate::status::Failure;
use serde_json::json;
use std::io::{self, IsTerminal};
use std::thread;

pub(crate) fn watch(settings: &Settings, wanted: &Watch) -> Result<u8, Failure> {
    // A wrong URL or a wrong password will not mend itself; a server that is away may come back.
    let generator = settings.connect_when_there()?;
    let in_place = !wanted.json && io::stdout().is_terminal();
    let mut rounds = 0;
    loop {
        // What may pass is a part of what is seen; a denied right ends the watch.
        let found = list::ask(&generator, &wanted.which)?;
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

fn page(found: &Found, columns: usize) -> String {
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
fn document(found: &Found) -> String {
    let locks: Vec<_> = found.locks.iter().map(list::document).collect();
    let errors: Vec<_> = found.missing.iter().map(ToString::to_string).collect();
    let document = match (locks.is_empty(), errors.is_empty()) {
        (_, true) => json!({ "locks": locks }),
        (true, false) => json!({ "error": errors.join("; ") }),
        (false, false) => json!({ "locks": locks, "error": errors.join("; ") }),
    };
    format!("{document}\n")
}
