//! Unit tests of `src/store/redis/cluster/inbox/waker.rs`.

use super::*;
use crate::store::redis::net::socket::Socket;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[test]
fn a_wait_ends_when_something_comes_when_it_is_woken_and_when_its_time_is_over() {
    const LONG: Duration = Duration::from_secs(20);
    let waker = Waker::new().expect("sockets");
    let (near, mut far) = UnixStream::pair().expect("sockets");
    let (silent, _silent_far) = UnixStream::pair().expect("sockets");
    let sockets = [Socket::Unix(near), Socket::Unix(silent)];
    let sockets = [(&sockets[0], false), (&sockets[1], false)];
    assert_eq!(waker.wait(&sockets, Duration::from_millis(1)).expect("a wait"), [false, false]);
    let begun = Instant::now();
    far.write_all(b"x").expect("room");
    assert_eq!(waker.wait(&sockets, LONG).expect("a wait"), [true, false]);
    sockets[0].0.read_now(&mut [0; 8]).expect("a byte");
    (0..1000).for_each(|_| waker.wake());
    assert_eq!(waker.wait(&sockets, LONG).expect("a wait"), [false, false]);
    assert_eq!(waker.wait(&[sockets[0], (sockets[1].0, true)], LONG).expect("a wait"), [false, true], "it has room");
    drop(far);
    while !waker.wait(&sockets, LONG).expect("a wait")[0] {}
    assert!(begun.elapsed() < LONG);
}
