//! The command `dlock` with URLs `mongodb://…` and `mongodb+srv://…`, beside those of the command itself.

use dlock_cli::OtherStore;
use dlock_mongodb::MongoLockProcessor;
use std::process::ExitCode;
use std::sync::Arc;

static MONGODB: [OtherStore; 1] =
    [OtherStore { scheme: "mongodb", open: |url| Ok(Arc::new(MongoLockProcessor::new(url)?)) }];

fn main() -> ExitCode {
    dlock_cli::run(&MONGODB)
}
