//! Unit tests of `src/store/redis/cluster/redirect.rs`.

use super::*;

fn error(line: &str) -> Value {
    ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
}

#[test]
fn each_reply_says_what_its_call_does_next() {
    for (line, expected) in [
        ("MOVED 3999 127.0.0.1:6381", Said::Moved { host: "127.0.0.1", port: 6381 }),
        ("MOVED 3999 node-1.example:6381", Said::Moved { host: "node-1.example", port: 6381 }),
        ("MOVED 3999 ::1:6381", Said::Moved { host: "::1", port: 6381 }),
        ("MOVED 3999 :6381", Said::Moved { host: "", port: 6381 }),
        ("MOVED 3999 ?:6381", Said::Moved { host: "?", port: 6381 }),
        ("ASK 3999 127.0.0.1:6381", Said::Ask { host: "127.0.0.1", port: 6381 }),
        ("MOVED", Said::Later),
        ("MOVED 3999", Said::Later),
        ("MOVED 3999 host", Said::Later),
        ("ASK 3999 host:99999", Said::Later),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Said::TryAgain),
        ("CLUSTERDOWN Hash slot not served", Said::Later),
        ("LOADING Redis is loading the dataset in memory", Said::Later),
        ("READONLY You can't write against a read only replica.", Said::Later),
        ("MASTERDOWN Link with MASTER is down", Said::Later),
        ("READONLY You can't write script: 5e3e, on @user_script:2.", Said::Answer),
        (
            "ERR Script attempted to access a non local key in a cluster node script: 5e3e, on @user_script:2.",
            Said::Answer,
        ),
        ("NOSCRIPT No matching script.", Said::Answer),
        ("CROSSSLOT Keys in request", Said::Answer),
        ("NOPERM no", Said::Answer),
    ] {
        assert_eq!(said(&error(line)), expected, "{line}");
    }
    assert_eq!(said(&Value::Int(1)), Said::Answer);
}

#[test]
fn redirections_are_bounded_and_pause_from_the_second_on() {
    let mut course = Course::default();
    let pauses: Vec<_> = (0..6).map(|_| course.redirect().map(|pause| pause.as_millis())).collect();
    assert_eq!(pauses, [Some(0), Some(10), Some(20), Some(40), Some(80), None]);
}

#[test]
fn pauses_double_to_the_longest() {
    let mut course = Course::default();
    let pauses: Vec<_> = (0..7).map(|_| course.pause().as_millis()).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 100, 100]);
    (0..100).for_each(|_| assert_eq!(course.pause().as_millis(), 100));
}
