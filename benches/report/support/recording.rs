//! The very commands that this crate sends, recorded, so that a bare connection can send them, too.

use super::proxy::Proxy;
use super::raw::{Address, frame_end};
use redis_dlock::{DLockConfig, DLockGenerator};
use std::thread;
use std::time::Duration;

/// An uncontended lock and unlock of one key.
pub(crate) struct RecordedPair {
    pub(crate) acquire: Vec<u8>,
    pub(crate) release: Vec<u8>,
}

/// Records one uncontended lock + unlock of each of so many keys, by a client that is under way.
pub(crate) fn record_pairs(port: u16, keys: usize) -> Vec<RecordedPair> {
    let proxy = Proxy::to(port, Duration::ZERO);
    let generator = DLockGenerator::connect(&Address::Tcp(proxy.port()).url()).unwrap();
    let pair = |target: String, taken: &dyn Fn() -> Vec<u8>| {
        let lock = generator.generate_with(DLockConfig::new("RECORDED", target)).unwrap();
        let _ = taken();
        let guard = lock.lock().unwrap();
        let acquire = taken();
        guard.unlock().unwrap();
        RecordedPair { acquire, release: taken() }
    };
    // Scripts are loaded, and numbers are what they are in the long run.
    (0..20).for_each(|n| {
        pair(format!("warm-up {n}"), &Vec::new);
        thread::sleep(Duration::from_millis(1));
    });
    (0..keys).map(|n| pair(format!("{n}"), &|| proxy.take_sent())).collect()
}

/// The commands of packed bytes.
pub(crate) fn commands(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut commands = Vec::new();
    while let Some(end) = frame_end(bytes) {
        commands.push(&bytes[..end]);
        bytes = &bytes[end..];
    }
    assert!(bytes.is_empty());
    commands
}

/// A call that a client makes now and then.
pub(crate) struct Rare {
    pub(crate) name: &'static str,
    /// What it finds on the server, and is to find again when it is repeated.
    pub(crate) before: Vec<Vec<u8>>,
    pub(crate) command: Vec<u8>,
}

/// Records what a holder and a waiter send while time goes by.
pub(crate) fn record_rare(port: u16) -> Vec<Rare> {
    let proxies = [(); 2].map(|()| Proxy::to(port, Duration::ZERO));
    let generators =
        proxies.each_ref().map(|proxy| DLockGenerator::connect(&Address::Tcp(proxy.port()).url()).unwrap());
    let lease = Duration::from_millis(600);
    let [held, wanted] = generators
        .each_ref()
        .map(|generator| generator.generate_with(DLockConfig::new("RECORDED", "rare").with_lease(lease)).unwrap());
    // Scripts are loaded, and the waiter's inbox is open.
    let guard = held.lock().unwrap();
    assert!(wanted.try_lock_for(Duration::from_millis(200)).unwrap().is_none());
    guard.unlock().unwrap();

    proxies.iter().for_each(|proxy| drop(proxy.take_sent()));
    let guard = held.lock().unwrap();
    let acquire = proxies[0].take_sent();
    assert!(wanted.try_lock_for(lease).unwrap().is_none());
    let [kept, asked] = proxies.each_ref().map(Proxy::take_sent);
    guard.unlock().unwrap();

    let held = commands(&acquire).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let kept = commands(&kept);
    // A probe needs the lock's key alone.
    let is_probe = |command: &&&[u8]| String::from_utf8_lossy(command).lines().nth(6) == Some("1");
    let mut rare = Vec::new();
    for (name, command) in
        [("probe", kept.iter().find(is_probe)), ("extend", kept.iter().find(|command| !is_probe(command)))]
    {
        if let Some(command) = command {
            rare.push(Rare { name, before: held.clone(), command: command.to_vec() });
        }
    }
    // The waiter's acquire, polls, and at last its release.
    let asked = commands(&asked);
    let scripts = asked.iter().enumerate().filter(|(_, command)| String::from_utf8_lossy(command).contains("EVALSHA"));
    if let [_, (at, poll), .., _] = scripts.collect::<Vec<_>>()[..] {
        let before = held.into_iter().chain(asked[..at].iter().map(|command| command.to_vec())).collect();
        rare.push(Rare { name: "poll, somebody else holds it", before, command: poll.to_vec() });
    }
    rare
}
