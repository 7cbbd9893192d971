//! The threads that the command cannot do without.

use crate::status::Failure;
use std::thread::Builder;

pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| Failure::system("cannot start a thread", error))
}
