//! What people are told.

use crate::store::Need;
use crate::suite::Suite;
use crate::tenure::PATIENCE;
use redis_dlock::port::{Directory, KeyFilter, LockProcessor, Message};
use std::time::Duration;

const KEY: &str = "DLOCK_T_x";

fn of(processor: &dyn LockProcessor) -> &dyn Directory {
    processor.directory().expect("the case needs a directory")
}

pub(crate) fn names_the_holder_and_who_waits_in_order(suite: &Suite) {
    let clients = [suite.client(), suite.client(), suite.client()];
    let _ears = [clients[1].listen(), clients[2].listen()];
    let parties = || of(clients[0].processor()).parties(KEY, PATIENCE).unwrap();
    assert_eq!(parties(), redis_dlock::port::Parties::default());
    let holder = clients[0].holder(KEY);
    let waiting = [clients[1].waiter(KEY), clients[2].waiter(KEY)];
    let found = parties();
    assert_eq!(found.holder.as_ref(), Some(&holder.locker));
    assert!(suite.is_left(found.remaining, holder.lease), "{found:?}");
    assert_eq!(found.waiting, waiting.each_ref().map(|tenure| tenure.locker.clone()));
    assert_eq!(found.queue_length, 2);
    waiting[0].release();
    assert_eq!(parties().waiting, [waiting[1].locker.clone()]);
}

pub(crate) fn lists_each_lock_that_is_held(suite: &Suite) {
    let client = suite.client();
    let keys: Vec<_> = (0..150).map(|n| format!("DLOCK_T_{n}")).collect();
    let held: Vec<_> = keys.iter().map(|key| client.holder(key)).collect();
    let other = client.holder("DLOCK_OTHER_1");
    let list = || {
        let filter = KeyFilter::new(|key| key.starts_with("DLOCK_T_"));
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = of(client.processor()).list(&filter, from.as_deref(), PATIENCE).unwrap();
            found.extend(page.locks);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.dedup_by(|(a, _), (b, _)| a == b);
        found
    };
    let found = list();
    assert_eq!(found.len(), held.len());
    for tenure in &held {
        let (_, inspection) = found.iter().find(|(key, _)| *key == tenure.key).expect("each is listed");
        assert_eq!(inspection.holder.as_ref(), Some(&tenure.locker));
        tenure.release();
    }
    assert_eq!(list(), []);
    other.release();
}

pub(crate) fn keeps_a_record_for_its_time(suite: &Suite) {
    let client = suite.client();
    let directory = of(client.processor());
    let records = || directory.records(&["host-a-1", "host-b-2"], PATIENCE).unwrap();
    let long = Duration::from_secs(3600);
    assert_eq!(records(), [None, None]);
    directory.put_record("host-a-1", "pid=1 x=%0a é", long, PATIENCE).unwrap();
    directory.put_record("host-b-2", "pid=2", suite.short(), PATIENCE).unwrap();
    assert_eq!(records(), [Some("pid=1 x=%0a é".to_owned()), Some("pid=2".to_owned())]);
    directory.put_record("host-a-1", "pid=3", long, PATIENCE).unwrap();
    suite.store().pass_time(suite.short());
    assert_eq!(records(), [Some("pid=3".to_owned()), None]);
    directory.remove_record("host-a-1", PATIENCE).unwrap();
    directory.remove_record("host-a-1", PATIENCE).unwrap();
    assert_eq!(records(), [None, None]);
}

pub(crate) fn delivers_what_clients_say(suite: &Suite) {
    let (one, two) = (suite.client(), suite.client());
    let holder = two.holder(KEY);
    let id = holder.locker.rsplit_once('-').map(|(client, _)| client.to_owned()).expect("a client");
    let say = |words: &str| of(one.processor()).say(&id, KEY, words, PATIENCE).unwrap();
    // Some stores do not know who listens.
    if suite.has(Need::DeadAtOnce) {
        assert!(!say("describe 1 a DLOCK_T_x"), "nobody listens");
    }
    let mut inbox = two.listen();
    for words in ["describe 1 a DLOCK_T_x", "described 1 locker=x reason=%0a é"] {
        assert!(say(words));
        assert_eq!(inbox.hear(), Message::Said { text: words.to_owned() });
    }
    // None replaces another one.
    let many: Vec<_> = (0..20).map(|n| format!("described {n} a")).collect();
    assert!(many.iter().all(|words| say(words)));
    many.into_iter().for_each(|text| assert_eq!(inbox.hear(), Message::Said { text }));
}
