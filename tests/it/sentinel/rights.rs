//! The user that the manual (page "failover", "Rights") tells an operator to make on Sentinels can do all that a client needs there,
//! and with any one of its rights missing something is denied: the line is neither too short nor too long.

use crate::support::LONG;
use crate::support::crew::eventually;
use crate::support::sentinels::{Plan, SERVICE, Sentinel, Service};
use redis_dlock::{DLockGenerator, Error, RedisLockProcessor};

/// The words of the manual's line after the user's name and password.
fn rights() -> Vec<String> {
    let page = include_str!("../../../src/manual/failover.md");
    let start = page.find("ACL SETUSER watcher").expect("the page has the line");
    let line = page[start..].split("\n```").next().expect("the line's end");
    let words = line.split_whitespace().filter(|word| word.starts_with(['+', '~', '&', '-']));
    words.map(str::to_owned).collect()
}

/// A master without replicas that wants a password, and two Sentinels with a user of these rights.
fn service_with(rights: &[String]) -> Service {
    Service::start_as(&Plan {
        server_args: ["--requirepass", "data", "--masterauth", "data"].map(str::to_owned).to_vec(),
        sentinel_lines: [
            vec![format!("user watcher on >watch {}", rights.join(" "))],
            vec![format!("sentinel auth-pass {SERVICE} data")],
        ],
        replicas: 0,
        sentinels: 2,
        ..Plan::default()
    })
}

const LOGIN: &str = "sentinel_username=watcher&sentinel_password=watch";

/// A client that is told of the first Sentinel, and waits for a busy machine: a server that is late is no denial.
fn connect(service: &Service, servers: &str, sentinels: &str) -> Result<DLockGenerator, Error> {
    let place = service.sentinels[0].place();
    let builder = RedisLockProcessor::builder(&format!("redis+sentinel://:{servers}@{place}/{SERVICE}?{sentinels}"))?;
    DLockGenerator::new(builder.connect_timeout(LONG).io_timeout(LONG).connect()?)
}

fn locks(generator: &DLockGenerator) {
    generator.generate("SENTINEL", "rights").unwrap().lock().unwrap().unlock().unwrap();
}

/// Whether a client of ours is connected to a Sentinel.
fn is_asked(sentinel: &Sentinel) -> bool {
    sentinel.run::<String>(&["CLIENT", "LIST"]).expect("the Sentinel answers").contains("name=redis-dlock ")
}

fn denied(sentinel: &Sentinel) -> Vec<redis::Value> {
    sentinel.run(&["ACL", "LOG"]).expect("the Sentinel answers")
}

#[test]
fn sentinels_and_servers_have_logins_of_their_own() {
    let service = service_with(&rights());
    locks(&connect(&service, "data", LOGIN).unwrap());
    for (servers, sentinels, is_of_sentinels) in [
        ("data", LOGIN.replace("=watcher&", "=nobody&"), true),
        ("s3crt", LOGIN.to_owned(), false),
        ("data", LOGIN.replace("password=watch", "password=s3crt"), true),
    ] {
        let text = connect(&service, servers, &sentinels).unwrap_err().to_string();
        assert!(!text.contains("s3crt") && !text.contains("data") && !text.contains("watcher"), "{text}");
        assert_eq!(text.contains("sentinel_password"), is_of_sentinels, "{text}");
    }
}

#[test]
fn the_manuals_user_has_all_rights_it_needs_on_a_sentinel_and_no_others() {
    let rights = rights();
    let service = service_with(&rights);
    let sentinel = &service.sentinels[0];
    let generator = connect(&service, "data", LOGIN).unwrap();
    locks(&generator);
    eventually("the other Sentinel is learnt, and asked", || is_asked(&service.sentinels[1]));
    for sentinel in &service.sentinels {
        let log = denied(sentinel);
        assert!(log.is_empty(), "{log:?}");
    }
    generator.close();
    drop(generator);

    for right in &rights {
        let fewer = rights.iter().filter(|word| *word != right).map(String::as_str);
        let user: Vec<_> = ["ACL", "SETUSER", "watcher", "reset", "on", ">watch"].into_iter().chain(fewer).collect();
        sentinel.run::<()>(&user).expect("the Sentinel takes the rules");
        sentinel.run::<()>(&["ACL", "LOG", "RESET"]).expect("the Sentinel answers");
        let connected = connect(&service, "data", LOGIN);
        eventually(&format!("something is denied without {right}"), || !denied(sentinel).is_empty());
        match connected {
            // Other Sentinels are not learnt then, and the log of this one says why.
            Ok(generator) => locks(&generator),
            Err(error) => assert!(matches!(error, Error::Denied { .. }), "without {right}: {error:?}"),
        }
    }
}
