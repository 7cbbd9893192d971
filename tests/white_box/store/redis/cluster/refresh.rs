//! Unit tests of `src/store/redis/cluster/refresh.rs`.

use super::*;
use crate::store::redis::cluster::Reach;

#[test]
fn a_caller_waits_for_a_map_that_is_asked_for_after_its_cause() {
    let refresher = Arc::new(Refresher::new(Vec::new(), Arc::new(Map::new(Reach::nowhere(), None, Arc::default()))));
    let thread = |is_asking: bool| Refreshing {
        is_busy: true,
        is_wanted: !is_asking,
        is_asking,
        ended: 7,
        ..Refreshing::default()
    };
    *refresher.state.lock() = thread(false);
    assert_eq!([refresher.want(), refresher.want()], [7; 2], "the thread is about to ask");
    *refresher.state.lock() = thread(true);
    assert_eq!([refresher.want(), refresher.want()], [8; 2], "it has asked, and asks once more");
}
