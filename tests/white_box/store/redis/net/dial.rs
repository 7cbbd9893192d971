//! Unit tests of `src/store/redis/net/dial.rs`.

use super::*;
use socket2::{Domain, SockAddr, Type};
use std::time::Duration;

/// Longer than any test takes.
const HANG: Duration = Duration::from_secs(20);

#[test]
fn a_full_local_server_is_waited_for_until_the_deadline() {
    let dir = std::env::temp_dir().join(format!("redis-dlock-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("full");
    let server = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    server.bind(&SockAddr::unix(&path).expect("an address")).expect("a name");
    server.listen(0).expect("a listener");
    let soon = || Instant::now() + Duration::from_millis(20);
    let mut waiting = Vec::new();
    let full = loop {
        match connect_unix(&path, soon()) {
            Ok(socket) => waiting.push(socket),
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), ErrorKind::TimedOut);
    assert!(!waiting.is_empty());
    std::thread::scope(|scope| {
        let late = scope.spawn(|| connect_unix(&path, Instant::now() + HANG));
        std::thread::sleep(Duration::from_millis(30));
        let accepted = server.accept().expect("one that waits");
        assert!(late.join().expect("no panic").is_ok(), "it takes the place that is free now");
        drop(accepted);
    });
    std::fs::remove_dir_all(&dir).expect("it is ours");
    let refused = connect_unix(&path, soon()).expect_err("no such server");
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}
