//! URLs that lead to something else: the first call says so, also `lock()`, which waits for a server that was there once.

use crate::consensus::{ConsensusStore, Consul, Etcd, Quorum};
use crate::support::crew::{eventually, spawn, wait_by};
use crossbeam_channel::{Receiver, unbounded};
use parking_lot::Mutex;
use redis_dlock::port::{AcquireOutcome, Claim, ExtendOutcome, Operations, ProbeOutcome};
use redis_dlock::{BackendFailure, CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

on_each_store!(
    a_web_server_is_told_to_be_none_of_the_store,
    a_server_whose_name_nobody_knows_is_passed_over,
    a_limit_is_one_for_the_whole_of_a_request,
    an_inbox_opens_within_a_limit_of_the_store,
    an_inbox_ends_if_it_is_answered_at_once_without_news,
    a_proxy_that_answers_for_a_server_that_is_away_is_waited_for_once_the_server_has_answered,
);

fn lock<V: ConsensusStore>(url: &str) -> DistributedReentrantLock {
    let generator = DLockGenerator::new(V::processor(url)).unwrap();
    generator.generate_with(DLockConfig::new("WRONG", "x").with_lease(V::LONG_LEASE)).unwrap()
}

/// What each way to lock says of a URL that leads elsewhere.
fn refusals<V: ConsensusStore>(url: &str) -> Vec<Error> {
    let limit = Duration::from_secs(3600);
    let ways: [fn(&DistributedReentrantLock, Duration) -> Error; 4] = [
        |lock, _| lock.lock().unwrap_err(),
        |lock, _| lock.lock_cancellable(&CancelToken::new()).unwrap_err(),
        |lock, _| lock.try_lock().unwrap_err(),
        |lock, limit| lock.try_lock_for(limit).unwrap_err(),
    ];
    // Each with a client that has heard of no server. The test hangs if one waits for a server to come.
    ways.into_iter()
        .map(|way| {
            spawn({
                let lock = lock::<V>(url);
                move || way(&lock, limit)
            })
            .join()
        })
        .collect()
}

fn assert_says<V: ConsensusStore>(url: &str, hint: &str) {
    for error in refusals::<V>(url) {
        assert!(error.to_string().contains(hint), "{error}");
    }
}

fn hint<V: ConsensusStore>() -> &'static str {
    if V::NAME == "etcd" { "not as etcd's JSON gateway does" } else { "not as Consul does" }
}

fn url<V: ConsensusStore>(address: &str) -> String {
    format!("{}://{address}", if V::NAME == "etcd" { "etcd" } else { "consul" })
}

/// A server in front of another one: it answers each request with the same, or passes connections on.
struct Front {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    behind: Mutex<Option<String>>,
    passed_on: Mutex<Vec<TcpStream>>,
}

impl Front {
    fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap().to_string(), Arc::new(Shared::default()));
        let told = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = told.behind.lock().clone();
                match server.and_then(|server| TcpStream::connect(server).ok()) {
                    Some(server) => told.pass_on(client, server),
                    None => drop(thread::spawn(move || answer_once(client, answer))),
                }
            }
        });
        Self { address, shared }
    }

    /// From now on it passes connections on to this server, or answers by itself.
    fn pass_on(&self, to: Option<&str>) {
        *self.shared.behind.lock() = to.map(str::to_owned);
        for stream in self.shared.passed_on.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn pass_on(&self, client: TcpStream, server: TcpStream) {
        let copies = || (client.try_clone().unwrap(), server.try_clone().unwrap());
        let ((mut up, mut to), (mut back, mut down)) = (copies(), copies());
        thread::spawn(move || std::io::copy(&mut up, &mut to));
        thread::spawn(move || std::io::copy(&mut down, &mut back));
        self.passed_on.lock().extend([client, server]);
    }
}

/// Reads what there is of a request, answers, and closes.
fn answer_once(mut client: TcpStream, answer: &str) {
    let mut bytes = [0; 65536];
    let _ = client.read(&mut bytes);
    let _ = client.write_all(answer.as_bytes());
}

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 19\r\nconnection: close\r\n\r\n404 page not found\n";
const PAGE: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 15\r\nconnection: close\r\n\r\n<html>hi</html>";
const JSON: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
const NO_NEWS: &str = "HTTP/1.1 200 OK\r\nx-consul-index: 7\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]";
const NO_INDEX: &str = "HTTP/1.1 200 OK\r\nx-consul-index: 0\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]";
/// A stream of changes that etcd begins, and ends.
const ENDS: &str = concat!(
    "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    r#"{"result":{"header":{"cluster_id":"1","revision":"7","raft_term":"1"},"created":true}}"#,
    "\n"
);
const AWAY: &str = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

fn a_web_server_is_told_to_be_none_of_the_store<V: ConsensusStore>() {
    for answer in [NOT_FOUND, PAGE, JSON, AWAY] {
        let front = Front::start(answer);
        assert_says::<V>(&url::<V>(&front.address), hint::<V>());
    }
}

/// Its name says which server it needs in addition to etcd.
mod beside_etcd {
    mod consul {
        use super::super::*;

        #[test]
        fn the_server_of_another_store_is_told_to_be_none() {
            let (etcd, consul) = (Etcd::start(1), Consul::start(1));
            assert_says::<Etcd>(&url::<Etcd>(consul.address()), hint::<Etcd>());
            assert_says::<Consul>(&url::<Consul>(etcd.address()), hint::<Consul>());
        }
    }
}

/// Nothing was sent to it, so the next server is asked even if the request must not be sent twice.
fn a_server_whose_name_nobody_knows_is_passed_over<V: ConsensusStore>() {
    let servers = V::start(1);
    let lock = lock::<V>(&url::<V>(&format!("nobody.invalid,{}", servers.address())));
    lock.try_lock().unwrap().expect("it is free").unlock().unwrap();
}

/// A server that answers each request with a head, after this time, and no body. Returns its URL.
fn late_heads<V: ConsensusStore>(after: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url::<V>(&listener.local_addr().unwrap().to_string());
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut bytes = [0; 65536];
                let _ = client.read(&mut bytes);
                thread::sleep(after);
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
                let _ = client.read(&mut bytes);
            });
        }
    });
    url
}

/// A server answers with a head that comes late, and no body. A call that gave the body a limit of its own would wait for much longer than one
/// beside it that has no answer at all.
fn a_limit_is_one_for_the_whole_of_a_request<V: ConsensusStore>() {
    const LIMIT: Duration = Duration::from_secs(2);
    let late = late_heads::<V>(LIMIT.mul_f64(0.9));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let never = url::<V>(&silent.local_addr().unwrap().to_string());
    let [late, never] = [late, never].map(|url| {
        let processor = V::processor(&url);
        spawn(move || {
            let begin = Instant::now();
            assert!(processor.inspect("k", LIMIT).unwrap_err().is_transient());
            begin.elapsed()
        })
    });
    let (late, never) = (late.join(), never.join());
    assert!(late < never.mul_f64(1.4), "{late:?} beside {never:?}");
}

/// The client's own limit is longer than any close may take, because an inbox opens for as long as the store lets it.
///
/// Shows: L6.
fn an_inbox_opens_within_a_limit_of_the_store<V: ConsensusStore>() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let never = url::<V>(&silent.local_addr().unwrap().to_string());
    let [headed, never] = [late_heads::<V>(Duration::ZERO), never].map(|url| {
        spawn(move || {
            let begin = Instant::now();
            assert!(V::processor(&url).queue().unwrap().open_inbox("h-1-ff", Duration::MAX).is_err());
            begin.elapsed()
        })
    });
    let (headed, never) = (headed.join(), never.join());
    assert!(headed < never * 4, "{headed:?} beside {never:?}");
}

/// A server or a proxy that answers each question of an inbox at once would be asked again without a pause.
fn an_inbox_ends_if_it_is_answered_at_once_without_news<V: ConsensusStore>() {
    let answers: &[_] = if V::NAME == "etcd" { &[ENDS] } else { &[NO_NEWS, NO_INDEX] };
    for answer in answers {
        let front = Front::start(answer);
        let processor = V::processor(&url::<V>(&front.address));
        let mut inbox = processor.queue().unwrap().open_inbox("h-1-ff", Duration::MAX).unwrap();
        let heard = inbox.next(Duration::from_secs(20));
        assert!(heard.is_err(), "{heard:?}");
    }
}

/// An etcd that begins each stream at once, and says nothing in it. It is at the revision 7 for the first stream, and at 12 from then on. The entry of
/// each look has last changed at this one. Returns its URL, and what each stream begins with.
fn silent_streams(changed: u64) -> (String, Receiver<Option<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, (asks, asked)) = (url::<Etcd>(&listener.local_addr().unwrap().to_string()), unbounded());
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut client in listener.incoming().map_while(Result::ok) {
            let (mut request, mut piece) = (String::new(), [0; 4096]);
            while !request.ends_with('}') {
                let length = client.read(&mut piece).unwrap();
                request.push_str(str::from_utf8(&piece[..length]).unwrap());
            }
            let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
            let revision = if open.is_empty() { "7" } else { "12" };
            let header = json!({ "cluster_id": "1", "revision": revision, "raft_term": "1" });
            let answer = if request.starts_with("POST /v3/watch ") {
                let from = body["create_request"].get("start_revision");
                let _ = asks.send(from.map(|from| from.as_str().unwrap().parse().unwrap()));
                open.push(client.try_clone().unwrap());
                json!({ "result": { "header": header, "created": true } })
            } else {
                let revision = changed.to_string();
                let entry = json!({ "key": body["key"], "create_revision": "2", "mod_revision": revision });
                json!({ "header": header, "kvs": [entry] })
            };
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            let _ = client.write_all(format!("{head}{answer}\n").as_bytes());
        }
    });
    (url, asked)
}

/// The first line of a stream comes before the changes since the revision that it begins with, and the connection may die between both.
///
/// Shows: L1.
#[test]
fn an_etcd_that_has_begun_a_stream_has_told_nothing_by_that() {
    let begins = |changed, next| {
        let (url, asked) = silent_streams(changed);
        let processor = Etcd::processor(&url);
        // The first stream lives for this long, and the second one for 20 s.
        let _inbox = processor.queue().unwrap().open_inbox("h-1-ff", Duration::from_secs(5)).unwrap();
        let begins = [(); 3].map(|()| asked.recv_timeout(Duration::from_secs(60)).unwrap());
        assert_eq!(begins, [None, Some(next), Some(next)]);
    };
    thread::scope(|scope| {
        scope.spawn(|| begins(9, 8));
        scope.spawn(|| begins(7, 13));
    });
}

/// Who has once had an answer of the store knows that the URL is right. Then such an answer is that of a server that is away.
fn a_proxy_that_answers_for_a_server_that_is_away_is_waited_for_once_the_server_has_answered<V: ConsensusStore>() {
    let server = V::start(1);
    let front = Front::start(AWAY);
    let url = url::<V>(&front.address);
    assert_says::<V>(&url, hint::<V>());

    front.pass_on(Some(server.address()));
    let lock = lock::<V>(&url);
    lock.lock().unwrap().unlock().unwrap();
    front.pass_on(None);
    eventually("the proxy answers", || {
        matches!(lock.is_locked(), Err(Error::Backend { failure: BackendFailure::Unknown, .. }))
    });
    let waits = wait_by(&lock, move |lock| lock.lock().unwrap().unlock().unwrap());
    front.pass_on(Some(server.address()));
    waits.join();
}

/// A server of another cluster in the URL counts as one that is away. When all servers are of that cluster, they were set up anew, and the client goes on
/// there. The terms of their log begin anew, too.
///
/// Shows: G1, S1.
#[test]
fn etcd_servers_of_another_cluster_count_only_if_all_are_of_it() {
    const LIMIT: Duration = Duration::from_secs(5);
    let (mut cluster, other) = (Etcd::start(1), Etcd::start(1));
    // So that its term is higher than that of the other one.
    cluster.servers()[0].kill();
    cluster.servers()[0].restart();
    let fronts = [Front::start(AWAY), Front::start(AWAY)];
    fronts.iter().for_each(|front| front.pass_on(Some(cluster.address())));
    let url = format!("etcd://{},{}", fronts[0].address, fronts[1].address);
    let [first, second] = [(); 2].map(|()| Etcd::processor(&url));
    let claim = |key, locker| Claim::new(key, "h-1-ff", locker, Etcd::LONG_LEASE);
    let (held, free) = (claim("held", "h-1-ff-1"), claim("free", "h-1-ff-2"));
    assert!(matches!(first.acquire(&held, LIMIT), Ok(AcquireOutcome::Acquired(_))));
    assert_eq!(second.inspect("held", LIMIT).unwrap().holder.as_deref(), Some("h-1-ff-1"));

    fronts[0].pass_on(Some(other.address()));
    assert!(matches!(first.extend(&held, LIMIT), Ok(ExtendOutcome::Extended(_))), "the other server goes on");
    fronts[1].pass_on(None);
    for processor in [&first, &second] {
        let other = claim("held", "h-1-ff-3");
        eventually("the server that is away is not asked first", || {
            let error = processor.acquire(&other, LIMIT).expect_err("the cluster of the lock is away").to_string();
            error.contains(&fronts[0].address) && error.contains("name the servers of one cluster")
        });
    }

    fronts[1].pass_on(Some(other.address()));
    assert!(matches!(first.probe(&held, LIMIT), Ok(ProbeOutcome::NotOurs(_))));
    assert!(matches!(first.acquire(&free, LIMIT), Ok(AcquireOutcome::Acquired(_))));
    assert!(matches!(first.extend(&free, LIMIT), Ok(ExtendOutcome::Extended(_))));
}

/// A server of another cluster does not know the session of a release that had no answer. Its error does not say of which cluster it is, and the
/// session goes on in its own one.
///
/// Shows: G1, L1.
#[test]
fn etcd_servers_of_another_cluster_end_no_session() {
    const LIMIT: Duration = Duration::from_secs(5);
    let (cluster, other) = (Etcd::start(1), Etcd::start(1));
    let front = Front::start(AWAY);
    front.pass_on(Some(cluster.address()));
    let processor = Etcd::processor(&format!("etcd://{},{}", front.address, other.address()));
    let claim = Claim::new("held", "h-1-ff", "h-1-ff-1", Etcd::LONG_LEASE);
    assert!(matches!(processor.acquire(&claim, LIMIT), Ok(AcquireOutcome::Acquired(_))));

    front.pass_on(None);
    assert!(processor.release(&claim, LIMIT).is_err(), "another server is asked first from now on");
    front.pass_on(Some(cluster.address()));
    processor.settle(&claim, LIMIT).unwrap();
    assert_eq!(processor.inspect("held", LIMIT).unwrap().holder, None);
}
