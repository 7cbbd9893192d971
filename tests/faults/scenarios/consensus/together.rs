//! Several locks at once, while a server dies, and while a process that has some of them has no network.

use super::super::together::assert_together;
use super::struck;
use crate::consensus::ConsensusStore;
use crate::setup::Setup;

on_each_store!(no_two_have_one_of_several_locks_while_a_server_dies_or_a_process_is_cut_off);

/// Shows: G1, G3, G5, G7, L1, S1.
fn no_two_have_one_of_several_locks_while_a_server_dies_or_a_process_is_cut_off<V: ConsensusStore>() {
    for report in struck::<V>("several locks", Setup::together) {
        assert_together(report);
    }
}
