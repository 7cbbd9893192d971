//! Plays executions under many schedules, for the models of the crate and of the consensus stores.

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// How many schedules of each scenario each scheduler tries.
fn iterations() -> usize {
    std::env::var("DLOCK_MODEL_ITERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

/// Plays one execution for each schedule. Returns how many there were.
pub(crate) fn explore<S: Scheduler + 'static>(scheduler: S, play: impl Fn() + Send + Sync + 'static) -> usize {
    explore_and(scheduler, FailurePersistence::None, play)
}

fn explore_and<S: Scheduler + 'static>(
    scheduler: S,
    failed: FailurePersistence,
    play: impl Fn() + Send + Sync + 'static,
) -> usize {
    let _ = env_logger::builder().format_timestamp(None).is_test(true).try_init();
    let mut config = Config::new();
    config.stack_size = 0x2_0000;
    config.max_steps = MaxSteps::FailAfter(100_000);
    config.silence_warnings = true;
    config.failure_persistence = failed;
    Runner::new(scheduler, config).run(play)
}

/// Plays executions with schedules of both kinds. A failure prints its schedule; `DLOCK_MODEL_SCHEDULE` plays that one alone.
pub(crate) fn explore_both(play: impl Fn() + Copy + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("DLOCK_MODEL_SCHEDULE") {
        explore(ReplayScheduler::new_from_encoded(&schedule), play);
        return;
    }
    let (n, begin) = (iterations(), Instant::now());
    explore_and(RandomScheduler::new(n), FailurePersistence::Print, play);
    let random = begin.elapsed();
    explore_and(PctScheduler::new(4, n), FailurePersistence::Print, play);
    eprintln!("{n} schedules each: random {random:.1?}, pct {:.1?}", begin.elapsed() - random);
}

/// Makes a test of each row: its name, and the scenario whose schedules it explores.
macro_rules! explored {
    ($($name:ident: $scenario:expr;)*) => {
        $(#[test]
        fn $name() {
            explore_both(|| $scenario.play());
        })*
    };
}

pub(crate) use explored;

/// Looks for an execution that fails with one of these words, and says what it found, or else how an execution failed in another way. The
/// schedule decides what a mistake breaks first, so such an execution is passed over.
#[cfg_attr(not(dlock_mutants), allow(dead_code, reason = "only the copy with mutants looks for mistakes"))]
pub(crate) fn failure(play: impl Fn() + Copy + Send + Sync + 'static, words: &[&str]) -> Result<(), String> {
    const ROUND: usize = 50;
    let begin = Instant::now();
    let mut others = String::new();
    // Some mistakes show sooner at random, some by priorities that change a few times, and some only by priorities that change often.
    for round in 0..20_000 {
        let ran = catch_unwind(AssertUnwindSafe(|| match round % 4 {
            0 => explore(PctScheduler::new(4, ROUND), play),
            1 => explore(RandomScheduler::new(ROUND), play),
            2 => explore(PctScheduler::new(8, ROUND), play),
            _ => explore(PctScheduler::new(16, ROUND), play),
        }));
        let Err(panic) = ran else { continue };
        let text = match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default(),
        };
        if words.iter().any(|words| text.contains(words)) {
            eprintln!("round {round}, {:.1?}: {text:.300}", begin.elapsed());
            return Ok(());
        }
        others = text;
    }
    Err(format!("not caught, or not by {words:?}: {others:.2000}"))
}
