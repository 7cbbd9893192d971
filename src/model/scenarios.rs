//! What is explored.

use super::store::Faults;
use super::world::{Act, LEASE, Scenario};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::time::Duration;

pub(crate) const NO_FAULTS: Faults = Faults { commands: 0, messages: 0, breaks: 0 };

const SOME: Faults = Faults { commands: 2, messages: 1, breaks: 1 };

const SHORT: Duration = Duration::from_millis(30);

/// Nobody else.
pub(crate) const THREADS: Scenario = Scenario {
    clients: &[&[&[Act::Lock, Act::Lock], &[Act::Lock], &[Act::Lock]]],
    listener: false,
    probe: false,
    faults: NO_FAULTS,
    leaps: false,
    local_passes: 1,
};

pub(crate) const PASSING: Scenario = Scenario { listener: true, ..THREADS };

pub(crate) const FAULTY: Scenario = Scenario { faults: SOME, leaps: true, ..THREADS };

pub(crate) const TWO: Scenario =
    Scenario { clients: &[&[&[Act::Lock], &[Act::Lock]], &[&[Act::Lock], &[Act::Lock]]], listener: true, ..THREADS };

pub(crate) const TWO_FAULTY: Scenario = Scenario { faults: SOME, leaps: true, probe: true, ..TWO };

pub(crate) const GIVE_UPS: Scenario = Scenario {
    clients: &[
        &[&[Act::Lock], &[Act::For(SHORT), Act::Try], &[Act::Cancellable]],
        &[&[Act::Lock], &[Act::Cancel, Act::For(LEASE)]],
    ],
    ..TWO
};

pub(crate) const GIVE_UPS_FAULTY: Scenario = Scenario { faults: SOME, leaps: true, ..GIVE_UPS };

pub(crate) const CLOSING: Scenario =
    Scenario { clients: &[&[&[Act::Lock, Act::Lock], &[Act::Lock], &[Act::Close]], &[&[Act::Lock]]], ..TWO };

pub(crate) const CLOSING_FAULTY: Scenario = Scenario { faults: SOME, leaps: true, ..CLOSING };

pub(crate) fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 0x2_0000;
    config.max_steps = MaxSteps::FailAfter(100_000);
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::None;
    config
}

fn iterations(usual: usize) -> usize {
    std::env::var("DLOCK_MODEL_ITERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

pub(crate) fn run<S: Scheduler + 'static>(scheduler: S, scenario: Scenario) -> usize {
    Runner::new(scheduler, config()).run(move || scenario.play())
}

fn holds(scenario: Scenario) {
    let n = iterations(1000);
    let begin = std::time::Instant::now();
    run(RandomScheduler::new(n), scenario);
    let random = begin.elapsed();
    run(PctScheduler::new(4, n), scenario);
    eprintln!("{n} schedules each: random {random:.1?}, pct {:.1?}", begin.elapsed() - random);
}

#[test]
fn threads_of_one_client() {
    holds(THREADS);
}

#[test]
fn threads_that_pass_the_lock_on() {
    holds(PASSING);
}

#[test]
fn threads_of_one_client_with_faults() {
    holds(FAULTY);
}

#[test]
fn two_clients() {
    holds(TWO);
}

#[test]
fn two_clients_with_faults() {
    holds(TWO_FAULTY);
}

#[test]
fn give_ups() {
    holds(GIVE_UPS);
}

#[test]
fn give_ups_with_faults() {
    holds(GIVE_UPS_FAULTY);
}

#[test]
fn closing() {
    holds(CLOSING);
}

#[test]
fn closing_with_faults() {
    holds(CLOSING_FAULTY);
}
