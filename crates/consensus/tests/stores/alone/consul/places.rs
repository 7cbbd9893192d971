//! Where in Consul the locks are, and how its agent is reached.

use crate::consensus::{ConsensusStore, Consul, Quorum};
use crate::support::crew::{eventually, spawn};
use dlock_consensus::ConsulLockProcessor;
use redis_dlock::port::{LockProcessor, Operations};
use redis_dlock::{BackendFailure, DLockGenerator, Error};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);

fn pair(processor: impl LockProcessor) -> Result<(), Error> {
    DLockGenerator::new(processor)?.generate("STORES", "x")?.lock()?.unlock()
}

#[test]
fn the_own_datacenter_is_one_and_another_one_is_told_by_name() {
    let servers = Consul::start(1);
    let url = |parameters: &str| format!("{}?{parameters}", servers.url("team"));
    pair(ConsulLockProcessor::new(&url("dc=dc1")).unwrap()).unwrap();
    assert_eq!(servers.list("team/DLOCK"), [""; 0]);
    let processor = ConsulLockProcessor::builder(&servers.url("team")).unwrap().datacenter("nowhere").build().unwrap();
    let error = processor.inspect("DLOCK_a_b", LIMIT).unwrap_err().to_string();
    assert!(error.contains("No path to datacenter") && error.contains("nowhere"), "{error}");
    // It shows nothing of the store: the name is more likely to be wrong than the network, and no wait would change that.
    let error = spawn(move || pair(processor).unwrap_err()).join();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

/// A Consul that is not Enterprise would take a transaction's namespace for the default one.
#[test]
fn a_namespace_and_a_partition_are_refused_by_name_where_there_are_none() {
    let servers = Consul::start(1);
    let url = servers.url("team");
    for parameter in ["ns=x", "partition=x"] {
        let processor = ConsulLockProcessor::new(&format!("{url}?{parameter}")).unwrap();
        let error = processor.inspect("DLOCK_a_b", LIMIT).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { .. }) && error.to_string().contains("Enterprise"), "{error:?}");
        assert!(pair(processor).is_err());
    }
    let wrong = ConsulLockProcessor::builder(&url).unwrap().namespace("a&b").build().unwrap_err();
    assert!(matches!(wrong, Error::InvalidConfig { .. }), "{wrong:?}");
}

/// Whoever connects to it would wait for an agent that accepts nobody.
///
/// Shows: G12.
#[cfg(target_os = "linux")]
#[test]
fn an_agent_that_accepts_no_connection_keeps_nobody_past_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("consul.sock");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _in_the_queue = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let url = format!("consul://{}/team", path.display().to_string().replace('/', "%2F"));
    let processor = ConsulLockProcessor::new(&url).unwrap();
    let asking = spawn(move || processor.inspect("DLOCK_a_b", Duration::from_millis(300)).unwrap_err());
    let error = asking.join();
    assert!(matches!(error, Error::Backend { failure: BackendFailure::NotExecuted, .. }), "{error:?}");
}

/// The bytes of a socket go on to the server.
#[test]
fn an_agent_is_reached_by_its_unix_socket() {
    let servers = Consul::start(1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("consul.sock");
    let url = format!("consul://{}/team", path.display().to_string().replace('/', "%2F"));
    let error = pair(ConsulLockProcessor::new(&url).unwrap()).unwrap_err();
    assert!(error.to_string().contains("consul.sock"), "{error}");
    let (listener, address) = (UnixListener::bind(&path).unwrap(), servers.address().to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = std::net::TcpStream::connect(&address).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            let (mut from, mut to) = (server, client);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let processor = Arc::new(ConsulLockProcessor::new(&url).unwrap());
    let clients = [(); 2].map(|()| DLockGenerator::new(Arc::clone(&processor)).unwrap());
    let [held, waits] = clients.each_ref().map(|client| client.generate("STORES", "x").unwrap());
    let guard = held.lock().unwrap();
    let waiter = spawn(move || drop(waits.lock().unwrap()));
    eventually("it waits", || processor.inspect(held.key(), LIMIT).unwrap().waiting == 1);
    guard.unlock().unwrap();
    waiter.join();
}
