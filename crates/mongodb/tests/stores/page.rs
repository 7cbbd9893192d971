//! What the manual of `redis-dlock` says of this store.

use crate::support::stores_page::tells_limits;
use dlock_mongodb::MongoLockProcessor;

#[test]
fn the_figures_of_the_page_are_the_limits_of_the_store() {
    tells_limits("MongoDB", &MongoLockProcessor::new("mongodb://127.0.0.1:1/").unwrap());
}
