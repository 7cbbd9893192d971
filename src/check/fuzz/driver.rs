//! Runs the targets on stable Rust, as tests: first the corpus as it is, then mutations of it.
//!
//! A dependency (`bolero`) would bring some forty crates, keep the corpus in directories of its own choice, and not keep failing
//! inputs.
//!
//! * `DLOCK_FUZZ_SECONDS`: how long each target runs, from a seed taken from the clock. Without it, each target does a fixed number of
//!   runs from a fixed seed.
//! * `DLOCK_FUZZ_SEED`: the seed, as a failure prints it.
//!
//! A failing input is added to the corpus, so that it runs first from then on. Commit it together with the fix.

use super::{Target, targets};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Takes about a second for each target in an unoptimised build.
const RUNS: u64 = 10_000;
const SEED: u64 = 0x5eed;
/// The longest mutated input.
const LONGEST: usize = 4096;

/// A small generator of random numbers (splitmix64). Its sequence for a given seed must never change.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must be above 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % limit as u64).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target.name)
}

/// The corpus, sorted by name, so that a seed means the same on every machine.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder(target)).unwrap_or_else(|e| panic!("{}: {e}", folder(target).display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a corpus entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no corpus for {}", target.name);
    paths.iter().map(|path| fs::read(path).expect("a corpus entry")).collect()
}

/// An input from the corpus after one to eight changes.
fn mutated(dice: &mut Dice, target: &Target, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut data = dice.pick(corpus).clone();
    for _ in 0..=dice.below(8) {
        let at = dice.below(data.len() + 1);
        let end = at + dice.below(data.len() - at + 1);
        match dice.below(9) {
            0 if at < data.len() => data[at] ^= 1 << dice.below(8),
            1 if at < data.len() => data[at] = *dice.pick(&[0, 1, b' ', b'\n', b'-', b'9', 0x7f, 0x80, 0xff]),
            2 => data.insert(at, dice.roll() as u8),
            3 => drop(data.drain(at..end)),
            4 => {
                let copied = data[at..end].to_vec();
                data.splice(at..at, copied);
            }
            5 => {
                let other = dice.pick(corpus);
                let (from, to) = (dice.below(other.len() + 1), dice.below(other.len() + 1));
                data.splice(at..end, other[from.min(to)..from.max(to)].iter().copied());
            }
            6 => data.truncate(at),
            7 => {
                let c = char::from_u32(dice.below(0x11_0000) as u32).unwrap_or('\u{202e}');
                data.splice(at..at, c.to_string().into_bytes());
            }
            _ => drop(data.splice(at..at, dice.pick(target.words).bytes())),
        }
        data.truncate(LONGEST);
    }
    data
}

/// Runs one input. An input that fails is kept in the corpus.
fn run(target: &Target, data: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.check)(data))).is_ok() {
        return;
    }
    let name =
        data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    let path = folder(target).join(format!("failed-{name:016x}"));
    let kept = match fs::write(&path, data) {
        Ok(()) => format!("kept as {}", path.display()),
        Err(e) => format!("not kept: {e}"),
    };
    panic!("target {}, {origin}: \"{}\" failed, {kept}", target.name, data.escape_ascii());
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value:?} is no number")))
}

#[expect(clippy::print_stdout, reason = "how much was run is the result of a long run")]
fn drive(name: &str) {
    let target = targets().find(|target| target.name == name).expect("a target");
    let corpus = corpus(target);
    corpus.iter().for_each(|data| run(target, data, "from the corpus"));
    let seconds = number("DLOCK_FUZZ_SECONDS").map(Duration::from_secs);
    let drawn = seconds.and(SystemTime::now().duration_since(UNIX_EPOCH).ok()).map(|time| time.as_nanos() as u64);
    let seed = number("DLOCK_FUZZ_SEED").or(drawn).unwrap_or(SEED);
    let (mut dice, start, origin) = (Dice(seed), Instant::now(), format!("DLOCK_FUZZ_SEED={seed}"));
    let mut runs = 0;
    while seconds.map_or(runs < RUNS, |limit| start.elapsed() < limit) {
        run(target, &mutated(&mut dice, target, &corpus), &origin);
        runs += 1;
    }
    println!("{name}: {} entries, {runs} mutations, {origin}, {:?}", corpus.len(), start.elapsed());
}

/// Defines a test for each target, and one that checks that no target is missing.
macro_rules! drive {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test] fn $test() { drive($name); })*

        #[test]
        fn every_target_is_driven() {
            let names: Vec<_> = targets().map(|target| target.name).collect();
            assert_eq!(names, [$($name),*]);
            let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/Cargo.toml");
            let manifest = fs::read_to_string(manifest).expect("the crate for libFuzzer");
            for name in names {
                assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "libFuzzer has no {name}");
            }
        }
    };
}

drive! {
    any_properties_are_read_or_refused_by_line: "properties",
    any_host_makes_lockers_and_any_holder_is_told_from_them: "locker",
    any_url_is_read_or_refused_without_its_password: "url",
    any_message_is_read_as_it_was_written_or_ignored: "message",
    any_reply_is_read_as_the_scripts_write_it_or_refused: "reply",
    any_bytes_of_a_server_are_replies_or_refused: "resp",
    any_error_reply_has_a_class_and_is_shown_on_one_line: "error",
    any_answer_to_hello_is_judged: "hello",
}
