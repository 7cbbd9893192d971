//! `dlock watch`: the list of locks, again and again.

use crate::args::{Watch, Which};
use crate::list;
use crate::output::{self, fit};
use crate::status::Failure;
use crate::store;
use redis_dlock::DLockGenerator;
use serde_json::json;
use std::io::{self, IsTerminal};
use std::thread;

pub(crate) fn watch(url: Option<&str>, wanted: &Watch) -> Result<u8, Failure> {
    // A wrong URL or a wrong password will not mend itself; a server that is away may come back.
    let generator = store::connect_when_there(url)?;
    let in_place = !wanted.json && io::stdout().is_terminal();
    let mut rounds = 0;
    loop {
        let page = if wanted.json { document(&generator, &wanted.which) } else { page(&generator, &wanted.which) };
        let is_read = output::print(&if in_place { output::over(&fit(&page)) } else { page })?;
        rounds += 1;
        if !is_read || wanted.count.is_some_and(|count| rounds >= count) {
            return Ok(0);
        }
        thread::sleep(wanted.interval);
    }
}

fn page(generator: &DLockGenerator, which: &Which) -> String {
    match list::ask(generator, which) {
        Ok(locks) => {
            format!("{}{} {}\n", list::page(&locks), locks.len(), if locks.len() == 1 { "lock" } else { "locks" })
        }
        Err(error) => format!("{error}\n"),
    }
}

/// One line: `{"locks": […]}`, or `{"error": "…"}`.
fn document(generator: &DLockGenerator, which: &Which) -> String {
    let document = match list::ask(generator, which) {
        Ok(locks) => json!({ "locks": locks.iter().map(list::document).collect::<Vec<_>>() }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    format!("{document}\n")
}
