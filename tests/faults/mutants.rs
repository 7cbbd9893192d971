//! Mistakes, each built into the library of the worker processes: what the scenarios and the checker must find.
//!
//! Only in a build with `--cfg dlock_mutants`; see the library's `src/sync.rs`. Without a mistake the same scenarios are
//! clean, in the same build.

use crate::checker::Property;
use crate::report::Report;
use crate::scenarios::{access, holder, network};

/// A scenario, played with a mistake or without.
type Play = fn(Option<&'static str>) -> Report;

/// How often a scenario is played anew when the machine was so busy that it excuses what the mistake does.
const PLAYS: usize = 5;

fn must_be_caught(mutant: &'static str, play: Play, by: Property) {
    must_show(mutant, play, |report| report.violations.iter().any(|violation| violation.property == by));
}

/// The mistake costs a lease that the machine would have let its holder keep.
fn must_cost_a_lease(mutant: &'static str, play: Play) {
    must_show(mutant, play, |report| report.lost > report.excused);
}

fn must_show(mutant: &'static str, play: Play, is_caught: impl Fn(&Report) -> bool) {
    let is_busy = |report: &Report| report.late > 0.05;
    let reports = (0..PLAYS).map(|_| play(Some(mutant)));
    let report = reports.enumerate().find(|(n, report)| is_caught(report) || !is_busy(report) || n + 1 == PLAYS);
    let (_, report) = report.expect("at least one");
    assert!(is_caught(&report), "{mutant} was not caught: {report}\n{}", report.stories());
    eprintln!("{mutant}: {report}: {}", report.stories().lines().next().unwrap_or_default());
}

#[test]
fn a_release_that_deletes_whatever_is_there_is_caught() {
    must_be_caught("DeletesWithoutCompare", holder::stopped, Property::O);
}

#[test]
fn an_extension_that_makes_the_key_anew_is_caught() {
    must_be_caught("ExtendsWithoutCompare", network::extension_after_release, Property::O);
}

#[test]
fn an_acquire_that_is_resent_with_another_locker_is_caught() {
    must_be_caught("AsksAnewWithoutAnswer", network::reply_of_acquire_lost, Property::X);
}

#[test]
fn a_deadline_that_counts_from_the_reply_is_caught() {
    must_be_caught("CountsFromReply", network::slow_replies_to_a_stopped_holder, Property::M);
}

#[test]
fn a_token_that_does_not_rise_is_caught() {
    must_be_caught("TokensStand", holder::undisturbed, Property::F);
}

#[test]
fn a_denied_extension_that_is_taken_for_a_loss_is_caught() {
    must_cost_a_lease("TakesDenialForLoss", access::right_taken_for_a_moment);
}

#[test]
fn a_denied_extension_that_is_not_tried_again_is_caught() {
    must_cost_a_lease("GivesUpWhenDenied", access::right_taken_for_a_moment);
}

#[test]
fn without_a_mistake_the_same_scenarios_are_clean() {
    let plays: [Play; 6] = [
        access::right_taken_for_a_moment,
        holder::undisturbed,
        holder::stopped,
        network::extension_after_release,
        network::reply_of_acquire_lost,
        network::slow_replies_to_a_stopped_holder,
    ];
    std::thread::scope(|scope| {
        let runs: Vec<_> = plays.into_iter().map(|play| scope.spawn(move || play(None).assert_clean())).collect();
        runs.into_iter().for_each(|run| drop(run.join().expect("a clean run")));
    });
}
