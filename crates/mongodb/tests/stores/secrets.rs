//! No error, no `Debug` and no line of the log shows a login.

use crate::fresh::Fresh;
use crate::support::journal;
use dlock_mongodb::MongoLockProcessor;
use redis_dlock::DLockGenerator;

const PASSWORD: &str = "sesame";

#[track_caller]
fn assert_hidden(shown: &str) {
    assert!(!shown.is_empty() && !shown.contains(PASSWORD), "{shown}");
}

#[test]
fn an_unusable_url_shows_no_login() {
    for rest in ["", "host:port", "host/a.b", "host/admin", "host/?unknown=1", "host:27017:27017"] {
        let error = MongoLockProcessor::new(&format!("mongodb://me:{PASSWORD}@{rest}")).unwrap_err();
        assert_hidden(&error.to_string());
        assert_hidden(&format!("{error:?}"));
    }
}

#[test]
fn a_refused_login_is_not_shown() {
    journal::keep();
    let store = Fresh::start();
    let url = store.url();
    let rest = url.trim_start_matches("mongodb://");
    let (_, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    let processor = MongoLockProcessor::new(&format!("mongodb://me:{PASSWORD}@{hosts}")).unwrap();
    assert_hidden(&format!("{processor:?}"));
    let generator = DLockGenerator::new(processor).unwrap();
    let lock = generator.generate("SECRET", store.database_name()).unwrap();
    let error = lock.try_lock().unwrap_err();
    assert_hidden(&error.to_string());
    assert_hidden(&format!("{error:?} {generator:?} {lock:?}"));
    let notes = journal::notes(lock.key());
    generator.close();
    journal::warnings_with("").iter().chain(&notes).for_each(|line| assert_hidden(line));
}
