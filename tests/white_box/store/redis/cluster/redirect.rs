//! Unit tests of `src/store/redis/cluster/redirect.rs`.

use super::*;

fn error(line: &str) -> Value {
    ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
}

#[test]
fn each_reply_says_what_its_call_does_next() {
    for (line, expected) in [
        ("MOVED 3999 127.0.0.1:6381", RedirectReply::Moved { host: "127.0.0.1", port: 6381 }),
        ("MOVED 3999 node-1.example:6381", RedirectReply::Moved { host: "node-1.example", port: 6381 }),
        ("MOVED 3999 ::1:6381", RedirectReply::Moved { host: "::1", port: 6381 }),
        ("MOVED 3999 :6381", RedirectReply::Moved { host: "", port: 6381 }),
        ("MOVED 3999 ?:6381", RedirectReply::Moved { host: "?", port: 6381 }),
        ("ASK 3999 127.0.0.1:6381", RedirectReply::Ask { host: "127.0.0.1", port: 6381 }),
        ("MOVED", RedirectReply::Later),
        ("MOVED 3999", RedirectReply::Later),
        ("MOVED 3999 host", RedirectReply::Later),
        ("ASK 3999 host:99999", RedirectReply::Later),
        ("TRYAGAIN Multiple keys request during rehashing of slot", RedirectReply::TryAgain),
        ("CLUSTERDOWN Hash slot not served", RedirectReply::Later),
        ("LOADING Redis is loading the dataset in memory", RedirectReply::Later),
        ("READONLY You can't write against a read only replica.", RedirectReply::Later),
        ("MASTERDOWN Link with MASTER is down", RedirectReply::Later),
        ("READONLY You can't write script: 5e3e, on @user_script:2.", RedirectReply::Answer),
        (
            "ERR Script attempted to access a non local key in a cluster node script: 5e3e, on @user_script:2.",
            RedirectReply::Answer,
        ),
        ("NOSCRIPT No matching script.", RedirectReply::Answer),
        ("CROSSSLOT Keys in request", RedirectReply::Answer),
        ("NOPERM no", RedirectReply::Answer),
    ] {
        assert_eq!(redirect_reply(&error(line)), expected, "{line}");
    }
    assert_eq!(redirect_reply(&Value::Int(1)), RedirectReply::Answer);
}

#[test]
fn redirections_are_bounded_and_pause_from_the_second_on() {
    let mut budget = RedirectBudget::default();
    let pauses: Vec<_> = (0..6).map(|_| budget.redirect().map(|pause| pause.as_millis())).collect();
    assert_eq!(pauses, [Some(0), Some(10), Some(20), Some(40), Some(80), None]);
}

#[test]
fn pauses_double_to_the_longest() {
    let mut budget = RedirectBudget::default();
    let pauses: Vec<_> = (0..7).map(|_| budget.pause().as_millis()).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 100, 100]);
    (0..100).for_each(|_| assert_eq!(budget.pause().as_millis(), 100));
}
