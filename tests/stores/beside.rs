//! Beside `consul lock`, on one key.

use crate::voters::{Consul, Quorum, Voters, program};
use redis_dlock::{DLockConfig, DLockGenerator};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Runs a command under the lock of `consul lock`.
fn consul_lock(servers: &Consul, arguments: &[&str], command: &str) -> Child {
    Command::new(program::<Consul>())
        .args(["lock", &format!("-http-addr={}", servers.address())])
        .args(arguments)
        .args(["team/DLOCK_BESIDE_x", command])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Shows: G1.
#[test]
fn consul_lock_and_this_crate_exclude_each_other() {
    let servers = Consul::start(1);
    let generator = DLockGenerator::new(Consul::processor(&servers.url("team"))).unwrap();
    let config = DLockConfig::new("BESIDE", "x").with_lease(Duration::from_secs(10));
    let lock = generator.generate_with(config).unwrap();
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        let mut other = consul_lock(&servers, &["-try=1s"], "true");
        assert!(!other.wait().unwrap().success(), "it does not get the lock");
        guard.unlock().unwrap();

        let mut other = consul_lock(&servers, &[], "echo inside; exec sleep 100");
        let mut told = BufReader::new(other.stdout.take().unwrap()).lines();
        assert_eq!(told.next().unwrap().unwrap(), "inside");
        assert!(lock.try_lock().unwrap().is_none());
        let waiting = lock.clone();
        let waiter = std::thread::spawn(move || waiting.lock().unwrap().unlock().unwrap());
        // It ends its command when it is told to, and gives the lock back.
        rustix::process::kill_process(rustix::process::Pid::from_child(&other), rustix::process::Signal::TERM).unwrap();
        other.wait().unwrap();
        waiter.join().unwrap();
    }
}
