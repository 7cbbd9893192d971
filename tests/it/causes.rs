//! What an error of the store was caused by, for programs: its `source()`.

use crate::support::{Asking, claim};
use crate::support::{LONG, Proxy, RedisServer};
use redis_dlock::processor::Operations;
use redis_dlock::{BackendFailure, Error, MemoryLockProcessor, RedisLockProcessor};
use std::error::Error as _;
use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

/// The I/O error that caused an error, also by way of a copy of it.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    let copy = error.clone();
    let cause = copy.source()?.downcast_ref::<io::Error>().expect("the cause is an I/O error itself");
    assert!(error.to_string().ends_with(&cause.to_string()), "{error} says what {cause:?} says");
    Some(cause.kind())
}

#[test]
fn a_refused_connection_is_known_by_its_kind() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = RedisLockProcessor::connect(&format!("redis://{closed}/")).unwrap_err();
    assert_eq!(io_kind(&error), Some(io::ErrorKind::ConnectionRefused));
    let none = RedisLockProcessor::connect("unix:///no/such/redis.sock").unwrap_err();
    assert_eq!(io_kind(&none), Some(io::ErrorKind::NotFound));
}

#[test]
fn a_connection_that_is_cut_under_a_command_is_known_too() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    // Long enough that the cut comes first.
    let store = RedisLockProcessor::builder(&proxy.url()).unwrap().io_timeout(LONG).connect().unwrap();
    store.inspect("k", LONG).unwrap();
    let mut inbox = store.open("client", LONG).unwrap();
    proxy.silence();
    let release = claim("k", "a-1", Duration::from_secs(30));
    let (asked, heard) = thread::scope(|scope| {
        let asked = scope.spawn(|| store.release(&release, LONG).unwrap_err());
        let heard = scope.spawn(|| inbox.next(LONG).unwrap_err());
        thread::sleep(Duration::from_millis(200));
        proxy.reset();
        (asked.join().unwrap(), heard.join().unwrap())
    });
    for error in [asked, heard] {
        assert!(matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. }), "{error}");
        let kind = io_kind(&error);
        assert!(matches!(kind, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)), "{error:?}");
    }
}

#[test]
fn what_no_other_error_caused_has_no_source() {
    let store = MemoryLockProcessor::new();
    store.set_reachable(false);
    assert!(store.inspect("k", LONG).unwrap_err().source().is_none());
}
