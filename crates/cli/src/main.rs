//! The command `dlock`, with the stores of this package's features.

use std::process::ExitCode;

fn main() -> ExitCode {
    dlock_cli::run(&[])
}
