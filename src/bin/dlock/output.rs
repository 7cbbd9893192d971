//! What is printed for people and for programs.

use crate::status::{self, Failure};
use anstream::AutoStream;
use std::io::{self, ErrorKind, Write};

/// Prints a text, with its colours if the output is a terminal that shows them. A reader that has gone away is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = AutoStream::auto(io::stdout().lock());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::system("cannot write the output", error)),
        _ => Ok(()),
    }
}

/// Says what has failed, and returns the status.
pub(crate) fn end(outcome: Result<u8, Failure>) -> u8 {
    outcome.unwrap_or_else(|failure| {
        status::say(&failure.message);
        failure.status
    })
}
