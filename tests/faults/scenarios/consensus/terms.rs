//! Leaders, while a server dies, and while one of them has no network.

use super::super::terms::assert_led;
use super::struck;
use crate::consensus::ConsensusStore;
use crate::setup::Setup;

on_each_store!(no_two_lead_while_a_server_dies_or_a_leader_is_cut_off);

/// Shows: G1, G3, G5, G7, L1, S1.
fn no_two_lead_while_a_server_dies_or_a_leader_is_cut_off<V: ConsensusStore>() {
    for report in struck::<V>("leaders", Setup::leading) {
        assert_led(report);
    }
}
