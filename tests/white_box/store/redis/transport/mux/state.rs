//! Unit tests of `src/store/redis/transport/mux/state.rs`.

use super::*;
use crate::store::redis::net::endpoint::Endpoint;

#[test]
fn a_writer_that_comes_back_does_not_take_the_role_of_a_successor_that_yields() {
    let mut state = MuxState::<Endpoint>::new();
    let first = state.gather();
    assert!(state.take_idle_role());
    let second = state.gather();
    assert!(!state.has_gathered(first));
    assert!(state.has_gathered(second));
    assert!(!state.has_gathered(second));
}
