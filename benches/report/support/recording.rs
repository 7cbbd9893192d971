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
