//! Commands that the server refuses in the middle of a script.
//!
//! The commands are read out of the scripts, so a new one is tried without a line here. `scripts` looks at each script alone:
//! what it leaves, and whether its answer says so. `clients` looks at what becomes of a lock between processes. `removed` plays the same
//! steps with all rights.

mod clients;
mod removed;
pub(crate) mod scene;
mod scripts;
pub(crate) mod steps;

use std::collections::BTreeSet;

/// Every command that a script calls, in small letters.
fn commands() -> BTreeSet<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
    let mut commands = BTreeSet::new();
    for file in std::fs::read_dir(dir).expect("the scripts") {
        let text = std::fs::read_to_string(file.expect("a script").path()).expect("its text");
        for call in text.split("call('").skip(1) {
            let command = call.split('\'').next().expect("a command");
            commands.insert(command.to_ascii_lowercase());
        }
    }
    commands
}

#[test]
fn the_commands_are_found() {
    let commands = commands();
    for known in ["set", "get", "del", "incr", "decr", "time", "llen", "lpop", "lpush", "rpush", "lrem", "publish"] {
        assert!(commands.contains(known), "{known} in {commands:?}");
    }
    // With the rights of the manual a script can do all that it calls, and these are all that it can be denied.
    let rights = crate::acl::rules();
    for command in &commands {
        let right = format!("+{command}");
        assert!(rights.iter().any(|word| *word == right || word.starts_with(&format!("{right}|"))), "{right}");
    }
}
