//! Unit tests of `src/store/redis/transport/routes.rs`.

use super::*;

/// Shows: S17.
#[test]
fn a_key_stays_on_its_mux_until_its_last_call_is_over() {
    let routes = Arc::new(Routes::new());
    let hash = KeyHash::of("DLOCK_ORDER_4711");
    let first = Route::enter(&routes, hash, 2);
    let mut second = Route::enter(&routes, hash, 0);
    assert_eq!((first.mux, second.mux), (2, 2));
    drop(first);
    let third = Route::enter(&routes, hash, 1);
    assert_eq!(third.mux, 2);
    second.join(third);
    drop(second);
    assert_eq!(Route::enter(&routes, hash, 1).mux, 1);
}
