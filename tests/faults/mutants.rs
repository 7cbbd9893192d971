//! Mistakes that are built into the library of the worker processes. The scenarios and the checker must find each of them.
//!
//! This module is only built in the copy with mutants: see tests/mutants/main.rs. Without a mistake the same scenarios are clean, in the same build.

use crate::checker::Property;
use crate::report::Report;
use crate::scenarios::sentinel::{cut_off, emptied, killed, planned};
use crate::scenarios::{access, cluster, holder, network};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A scenario, played with a mistake or without.
type Play = fn(Option<&'static str>) -> Report;

/// Mistakes on the consensus stores.
mod consensus {
    use super::{Property, must_be_caught};
    use crate::consensus::ConsensusStore;
    use crate::scenarios::consensus::Stage;
    use crate::scenarios::consensus::clients::{replies_lost, undisturbed};

    on_each_store!(
        a_session_that_is_not_renewed_is_caught,
        a_session_that_outlives_a_request_without_an_answer_is_caught
    );

    fn a_session_that_is_not_renewed_is_caught<V: ConsensusStore>() {
        must_be_caught("RenewsNothing", |mutant| undisturbed(&mut Stage::<V>::open(), mutant), Property::O);
    }

    fn a_session_that_outlives_a_request_without_an_answer_is_caught<V: ConsensusStore>() {
        must_be_caught("LeavesSessions", |mutant| replies_lost(&mut Stage::<V>::open(), mutant), Property::Q);
    }
}

/// How often a scenario is played anew when the machine was so busy that it excuses what the mistake does.
const PLAYS: usize = 5;

fn must_be_caught(mutant: &'static str, play: Play, by: Property) {
    must_show(mutant, play, |report, _| report.violations.iter().any(|violation| violation.property == by));
}

/// The mistake costs a lease that the machine would have let its holder keep. A machine that is busy in each play excuses each loss; then the
/// mistake must cost a lease in all of them. The same scenario without the mistake costs none on such a machine.
fn must_cost_a_lease(mutant: &'static str, play: Play) {
    let mut always = true;
    must_show(mutant, play, |report, is_last| {
        always &= report.lost > 0;
        report.lost > report.excused || is_last && always
    });
}

fn must_show(mutant: &'static str, play: Play, mut is_caught: impl FnMut(&Report, bool) -> bool) {
    for n in 1..=PLAYS {
        let report = play(Some(mutant));
        if is_caught(&report, n == PLAYS) {
            eprintln!("{mutant}: {report}: {}", report.stories().lines().next().unwrap_or_default());
            return;
        }
        let is_busy = report.late > 0.05;
        assert!(is_busy && n < PLAYS, "{mutant} was not caught: {report}\n{}", report.stories());
    }
}

/// The scene itself ends with these words.
fn must_fail(play: impl FnOnce(), words: &str) {
    let failure = catch_unwind(AssertUnwindSafe(play)).expect_err("the mistake is found");
    let told = failure.downcast_ref::<String>().map_or("", String::as_str);
    assert!(told.contains(words), "{told}");
}

/// Defines a test for each mistake: its name, and the check that finds it.
macro_rules! caught_each {
    ($($name:ident: $check:expr;)*) => {
        $(#[test]
        fn $name() {
            $check;
        })*
    };
}

caught_each! {
    // Here the replicas make the mistake, not the library.
    a_queue_in_another_order_at_the_new_master_is_caught:
        must_fail(killed::while_held_with_a_queue_turned_round, "another order");
    a_release_that_deletes_whatever_is_there_is_caught:
        must_be_caught("DeletesWithoutCompare", holder::stopped, Property::O);
    a_lock_that_is_free_before_its_time_is_caught: must_be_caught("KeepsNothing", holder::keeping, Property::K);
    an_extension_that_makes_the_key_anew_is_caught:
        must_be_caught("ExtendsWithoutCompare", network::extension_after_release, Property::O);
    an_acquire_that_is_resent_with_another_locker_is_caught:
        must_be_caught("AsksAnewWithoutAnswer", network::reply_of_acquire_lost, Property::X);
    a_deadline_that_counts_from_the_reply_is_caught:
        must_be_caught("CountsFromReply", network::slow_replies_to_a_stopped_holder, Property::M);
    a_token_that_does_not_rise_is_caught: must_be_caught("TokensStand", holder::undisturbed, Property::F);
    a_denied_extension_that_is_taken_for_a_loss_is_caught:
        must_cost_a_lease("TakesDenialForLoss", access::right_taken_for_a_moment);
    a_denied_extension_that_is_not_tried_again_is_caught:
        must_cost_a_lease("GivesUpWhenDenied", access::right_taken_for_a_moment);
    a_master_without_replicas_that_is_believed_is_caught:
        must_be_caught("CountsUnacknowledged", cut_off::holds_with_one_ack, Property::M);
    a_hold_that_is_not_checked_at_another_server_is_caught:
        must_be_caught("IgnoresNewServers", emptied::while_held, Property::T);
    sentinels_that_are_not_asked_anew_are_caught:
        must_fail(|| drop(killed::from_hand_to_hand(Some("BelievesOldAnswers"))), "the processes follow");
    an_old_master_that_is_left_only_when_it_ends_the_connections_is_caught:
        must_fail(|| planned::while_held(Some("WatchesNothing")), "the old master is left before it is a replica");
    an_extension_that_needs_all_keys_of_a_slot_that_moves_is_caught:
        must_cost_a_lease("ExtendsWithAllKeys", cluster::moved::while_held);
    an_inbox_that_does_not_follow_its_slot_is_caught:
        must_fail(|| drop(cluster::moved::while_held(Some("KeepsOldSubscriptions"))), "the processes follow");
    waiters_that_are_dropped_when_their_slot_moves_are_caught:
        must_fail(|| cluster::unheard::after_a_move(Some("DropsTheUnheard")), "another order");
}

#[test]
fn without_a_mistake_the_same_scenarios_are_clean() {
    let plays: [Play; 12] = [
        access::right_taken_for_a_moment,
        holder::undisturbed,
        holder::keeping,
        holder::stopped,
        network::extension_after_release,
        network::reply_of_acquire_lost,
        network::slow_replies_to_a_stopped_holder,
        cut_off::holds_with_one_ack,
        emptied::while_held,
        cluster::moved::while_held,
        cluster::stopped::others_watched,
        killed::from_hand_to_hand,
    ];
    std::thread::scope(|scope| {
        let runs: Vec<_> = plays.into_iter().map(|play| scope.spawn(move || play(None).assert_clean())).collect();
        runs.into_iter().for_each(|run| drop(run.join().expect("a clean run")));
    });
}
