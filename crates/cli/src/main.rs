//! The command `dlock`: runs a command under a lock, shows and breaks locks, and examines servers.
//!
//! Its one `unsafe` is the fork of `dlock run`, before any thread begins: see `run/fork.rs`.

#[cfg(not(target_os = "linux"))]
compile_error!("the command `dlock` needs Linux: it relies on PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER");

mod args;
mod breaking;
mod doctor;
mod list;
mod output;
mod pages;
mod run;
mod show;
mod status;
mod store;
mod watch;

use args::{Action, Arguments};
use clap::Parser;
use clap::error::ErrorKind;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let others = run::Others::start();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) => return explain(&said).into(),
    };
    let others = if matches!(arguments.action, Action::Run(_)) { others } else { None };
    match arguments.action {
        Action::Run(wanted) => run::run(arguments.url.as_deref(), &wanted, others).into(),
        Action::Completions { shell } => output::end(pages::completions(shell)).into(),
        Action::Man { of } => output::end(pages::manual(of.as_deref())).into(),
        Action::Ls(wanted) => output::end(list::list(arguments.url.as_deref(), &wanted)).into(),
        Action::Show(wanted) => output::end(show::show(arguments.url.as_deref(), &wanted)).into(),
        Action::Watch(wanted) => output::end(watch::watch(arguments.url.as_deref(), &wanted)).into(),
        Action::Break(wanted) => output::end(breaking::break_hold(arguments.url.as_deref(), &wanted)).into(),
        Action::Doctor(wanted) => output::end(doctor::examine(arguments.url.as_deref(), &wanted)).into(),
    }
}

/// Prints help or the version, or says what is wrong with the arguments. Whether anybody can read it does not matter for the status.
fn explain(said: &clap::Error) -> u8 {
    let text = said.render().to_string();
    if matches!(said.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        return 0;
    }
    status::say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    status::USAGE
}
