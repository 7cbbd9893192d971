//! What a URL of Sentinels may name, and what each error says.

use crate::support::sentinels::{Plan, SERVICE, Service};
use crate::support::{Proxy, RedisServer, free_port};
use redis_dlock::{DLockGenerator, Error, RedisLockProcessor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A service that nobody fails over.
fn small() -> Plan {
    Plan { replicas: 1, sentinels: 3, ..Plan::default() }
}

#[track_caller]
fn locks(generator: &DLockGenerator) {
    let lock = generator.generate("SENTINEL", "names").unwrap();
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn one_sentinel_that_answers_is_enough_in_every_form_of_url() {
    let service = Service::start_as(&small());
    let [one, dead] = [service.sentinels[1].place(), format!("127.0.0.1:{}", free_port())];
    for url in [
        service.url(),
        format!("redis+sentinel://{dead},{one}/{SERVICE}"),
        format!("redis+sentinel://{one},{dead}/{SERVICE}/3"),
        format!("redis-sentinel://{dead},{one}/0?sentinelMasterId={SERVICE}"),
    ] {
        let generator = DLockGenerator::connect(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
        locks(&generator);
    }
}

#[test]
fn a_name_that_no_sentinel_knows_is_shown_as_a_fault_of_the_settings() {
    let service = Service::start_as(&small());
    let url = service.url().replace(SERVICE, "other");
    match DLockGenerator::connect(&url).unwrap_err() {
        Error::InvalidConfig { what, value, hint, .. } => {
            assert_eq!((what, value.as_str()), ("service", "other"));
            assert!(hint.contains("sentinel monitor"), "{hint}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn if_no_sentinel_answers_each_cause_is_named() {
    let ports = [free_port(), free_port()];
    let url = format!("redis+sentinel://ann:s3crt@127.0.0.1:{},127.0.0.1:{}/{SERVICE}", ports[0], ports[1]);
    let error = DLockGenerator::connect(&url).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let text = error.to_string();
    assert!(ports.iter().all(|port| text.contains(&port.to_string())) && text.contains(SERVICE), "{text}");
    assert!(!format!("{text}{error:?}").contains("s3crt"), "{text}");
}

#[test]
fn a_sentinel_behind_a_plain_url_says_which_url_to_write_and_a_server_is_no_sentinel() {
    let service = Service::start_as(&Plan { replicas: 0, sentinels: 1, ..Plan::default() });
    match DLockGenerator::connect(&format!("redis://{}/", service.sentinels[0].place())).unwrap_err() {
        Error::Unsupported { message, .. } => assert!(message.contains("redis+sentinel://"), "{message}"),
        other => panic!("{other:?}"),
    }
    let url = format!("redis+sentinel://127.0.0.1:{}/{SERVICE}", service.servers[0].port());
    let text = DLockGenerator::connect(&url).unwrap_err().to_string();
    assert!(text.contains("no Sentinel"), "{text}");
}

#[test]
fn a_replica_behind_a_plain_url_is_refused_until_it_is_promoted() {
    let master = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let store = || RedisLockProcessor::connect(&replica.url());
    let error = store().unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("is a replica"), "{error:?}");
    replica.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    store().unwrap();
}

#[test]
fn addresses_that_only_the_servers_can_reach_are_mapped() {
    let service = Service::start_as(&small());
    let master = service.servers[0].port();
    let proxy = Proxy::to(master, Duration::ZERO);
    let (calls, near) = (Arc::new(AtomicUsize::new(0)), proxy.port());
    let counted = Arc::clone(&calls);
    let map = move |host: &str, port: u16| {
        counted.fetch_add(1, Ordering::SeqCst);
        (host.to_owned(), if port == master { near } else { port })
    };
    let store = RedisLockProcessor::builder(&service.url()).unwrap().address_map(map).connect().unwrap();
    locks(&DLockGenerator::new(store).unwrap());
    assert!(proxy.connections() > 0 && calls.load(Ordering::SeqCst) > 0);
}
