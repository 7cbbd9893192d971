//! The command `dlock`: runs a command under a lock, shows and breaks locks, and examines servers.
//!
//! Its one `unsafe` is the fork of `dlock run`, before any thread begins: see `run/fork.rs`.
//!
//! The library has [`run`], for programs that are this command with more stores. `crates/mongodb` has such a program.

#[cfg(not(target_os = "linux"))]
compile_error!("the command `dlock` needs Linux: it relies on PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER");

mod args;
mod breaking;
mod doctor;
mod exporter;
mod list;
mod message;
mod output;
mod pages;
mod process_one;
mod run;
mod settings;
mod show;
mod status;
mod store;
mod threads;
mod timing;
mod wait;
mod watch;

use args::{Action, Arguments};
use clap::error::ErrorKind;
use settings::{Rules, Settings};
use status::Failure;
use std::process::ExitCode;

pub use store::OtherStore;

/// Runs the command with the arguments of this process, and returns its status. The URL of a store may have the schemes of `others`, too. Call
/// it first of all: `dlock run` forks before any thread begins.
#[must_use]
pub fn run(others: &'static [OtherStore]) -> ExitCode {
    store::know(others);
    message::read_format(std::env::args_os());
    let processes = run::Helpers::start();
    let arguments = match Arguments::read(processes.is_some()) {
        Ok(arguments) => arguments,
        Err(said) => return output::end(explain(&said)).into(),
    };
    let Arguments { reach, action, .. } = arguments;
    let processes = if matches!(action, Action::Run(_)) { processes } else { None };
    if let Some(lock) = action.lock() {
        message::are_about(lock.key());
    }
    if !matches!(action, Action::Run(_))
        && let Err(failure) = process_one::hear_signals()
    {
        return output::end(Err(failure)).into();
    }
    let settings = || Settings::of(&reach, Rules::default());
    let outcome = match action {
        Action::Run(wanted) => return run::run(&reach, &wanted, processes).into(),
        Action::Completions { shell } => pages::completions(shell),
        Action::Man { of } => pages::manual(of.as_deref()),
        Action::Ls(wanted) => settings().and_then(|settings| list::list(&settings, &wanted)),
        Action::Show(wanted) => settings().and_then(|settings| show::show(&settings, &wanted)),
        Action::Wait(wanted) => settings().and_then(|settings| wait::wait(&settings, &wanted)),
        Action::Watch(wanted) => settings().and_then(|settings| watch::watch(&settings, &wanted)),
        Action::Break(wanted) => settings().and_then(|settings| breaking::break_hold(&settings, &wanted)),
        Action::Exporter(wanted) => settings().and_then(|settings| exporter::serve(&settings, &wanted)),
        Action::Doctor(wanted) => settings().and_then(|settings| doctor::examine(&settings, &wanted)),
    };
    output::end(outcome).into()
}

/// Prints help or the version, or says what is wrong with the arguments.
fn explain(said: &clap::Error) -> Result<u8, Failure> {
    let text = said.render().to_string();
    if matches!(said.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return output::write(text.as_bytes()).map(|_| 0);
    }
    message::complain(message::without_logins(text.strip_prefix("error: ").unwrap_or(&text)).trim_end());
    Ok(status::USAGE)
}
