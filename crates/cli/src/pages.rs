//! Completions for shells and manual pages, made from the definition of the arguments.

use crate::args::Arguments;
use crate::output;
use crate::status::{Failure, USAGE};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut <Arguments>::command(), "dlock", &mut text);
    output::write(&text)?;
    Ok(0)
}

/// The page of `dlock`, or of one of its subcommands.
pub(crate) fn manual(of: Option<&str>) -> Result<u8, Failure> {
    let mut command = <Arguments>::command();
    command.build();
    let page = match of {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            found.ok_or_else(|| Failure::new(USAGE, format!("there is no subcommand {name:?}: see dlock --help")))?
        }
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text).map_err(|error| Failure::system("cannot make the page", error))?;
    output::write(&text)?;
    Ok(0)
}
