//! The pictures of the manual are those that `tests/examples/pictures.rs` makes, and show the times that the client has.

#[path = "../../examples/pictures.rs"]
#[allow(dead_code, reason = "the test calls what the program writes")]
mod program;

use super::package;
use redis_dlock::DEFAULT_LEASE;
use std::fs;

#[test]
fn the_pictures_are_what_the_program_makes() {
    let files = program::files();
    assert_eq!(files.len(), 3);
    for (path, text) in files {
        let kept = fs::read_to_string(package().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(kept == text, "{path} is another one: cargo run --example pictures");
    }
}

/// The numbers that the pictures say.
#[test]
fn the_pictures_tell_the_times_of_the_client() {
    let text = |path: &str| fs::read_to_string(package().join(path)).expect("a text");
    let (timing, config) = (text("src/timing.rs"), text("src/config.rs"));
    let (lease, hand_over) = (text("src/manual/pictures/lease.svg"), text("src/manual/pictures/hand_over.svg"));
    assert!(timing.contains("const RENEW_AT: f64 = 0.75;") && lease.contains("renewal at 75 %"));
    assert!(lease.contains(&format!(">{} s<", DEFAULT_LEASE.as_secs())));
    assert!(config.contains("const DEFAULT_LOCAL_PASSES: u32 = 16;") && hand_over.contains("at most 16 times"));
    assert!(
        timing.contains("const LOCAL_TIME: Duration = Duration::from_millis(10);") && hand_over.contains("for 10 ms")
    );
}
