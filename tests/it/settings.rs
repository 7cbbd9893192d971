//! Which lease a lock has: its own, that of its type in the file, the default. No setting is lost without a word.

use redis_dlock::{
    DEFAULT_LEASE, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, GeneratorBuilder, MemoryLockProcessor,
};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const FILE: Duration = Duration::from_millis(7_000);
const DEFAULT: Duration = Duration::from_secs(5);

/// A file with a lease for ORDER alone.
fn file() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config-dlock.properties");
    fs::write(&path, format!("ORDER={}\n", FILE.as_millis())).unwrap();
    (directory, path)
}

fn build(builder: GeneratorBuilder) -> DLockGenerator {
    builder.build(MemoryLockProcessor::new()).unwrap()
}

/// The lease that the store was given, but for what has passed of it.
fn has_lease(lock: &DistributedReentrantLock, lease: Duration) -> bool {
    let _guard = lock.lock().unwrap();
    let left = lock.holder().unwrap().unwrap().remaining.unwrap();
    left <= lease && left + Duration::from_secs(1) > lease && format!("{lock:?}").contains(&format!("lease: {lease:?}"))
}

#[track_caller]
fn refused(result: Result<DistributedReentrantLock, Error>, parts: &[&str]) {
    let text = result.expect_err("must be refused").to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_config_without_a_lease_takes_the_default() {
    let generator = build(DLockGenerator::builder().default_lease(DEFAULT).unwrap());
    let config = DLockConfig::new("ORDER", "2").with_reason("why");
    assert!(has_lease(&generator.generate_with(config.clone()).unwrap(), DEFAULT));
    let own = Duration::from_secs(9);
    assert!(has_lease(&generator.generate_with(config.with_lease(own)).unwrap(), own));
    // Also one that is equal to what it would be without.
    let same = DLockConfig::new("ORDER", "3").with_lease(DEFAULT_LEASE);
    assert!(has_lease(&generator.generate_with(same).unwrap(), DEFAULT_LEASE));
    let plain = build(DLockGenerator::builder());
    assert!(has_lease(&plain.generate_with(DLockConfig::new("ORDER", "4")).unwrap(), DEFAULT_LEASE));
}

#[test]
fn a_config_without_a_lease_takes_that_of_its_type_in_the_file() {
    let (_directory, path) = file();
    let generator = DLockGenerator::from_properties(&path, MemoryLockProcessor::new()).unwrap();
    let config = DLockConfig::new("ORDER", "2").with_reason("why");
    assert!(has_lease(&generator.generate_with(config).unwrap(), FILE));
    assert!(has_lease(&generator.generate("ORDER", "3").unwrap(), FILE));
    // The built-in default is none for a type that was forgotten in the file.
    let parts = ["BATCH", "config-dlock.properties", "default_lease"];
    refused(generator.generate("BATCH", "1"), &parts);
    refused(generator.generate_with(DLockConfig::new("BATCH", "1")), &parts);
    let own = Duration::from_secs(9);
    assert!(has_lease(&generator.generate_with(DLockConfig::new("BATCH", "1").with_lease(own)).unwrap(), own));
    refused(generator.generate("", "1"), &["lock type", "at least one character"]);
}

#[test]
fn a_file_and_a_default_count_in_either_order() {
    let (_directory, path) = file();
    let builder = DLockGenerator::builder;
    for builder in [
        builder().properties(&path).unwrap().default_lease(DEFAULT).unwrap(),
        builder().default_lease(DEFAULT).unwrap().properties(&path).unwrap(),
    ] {
        let generator = build(builder);
        assert!(has_lease(&generator.generate("ORDER", "1").unwrap(), FILE));
        assert!(has_lease(&generator.generate("BATCH", "1").unwrap(), DEFAULT));
        assert!(has_lease(&generator.generate_with(DLockConfig::new("ORDER", "2")).unwrap(), FILE));
        assert!(has_lease(&generator.generate_with(DLockConfig::new("BATCH", "2")).unwrap(), DEFAULT));
    }
}

#[test]
fn settings_are_checked_against_the_lease_that_counts() {
    let generator = build(DLockGenerator::builder().default_lease(DEFAULT).unwrap());
    // With the built-in lease of 30 s a gap every 6 s would be too often.
    let config = DLockConfig::new("ORDER", "1").with_poller_gap(Duration::from_secs(6));
    generator.generate_with(config).unwrap();
    let config = DLockConfig::new("ORDER", "1").with_poller_gap(DEFAULT / 2);
    refused(generator.generate_with(config), &["poller_gap"]);
}

#[cfg(feature = "tls")]
#[test]
fn certificates_for_a_connection_without_tls_are_refused() {
    use redis_dlock::RedisLockProcessor;
    for url in ["redis://127.0.0.1", "unix:///tmp/socket"] {
        let builder = || RedisLockProcessor::builder(url).unwrap();
        for builder in [builder().tls_root_certificates("x"), builder().tls_client_certificate("x", "y")] {
            let error = builder.build().expect_err("nothing would be checked").to_string();
            assert!(error.contains("rediss://"), "{error}");
        }
    }
}

#[test]
fn settings_that_a_url_cannot_have_are_refused() {
    use redis_dlock::RedisLockProcessor;
    for (url, remedy) in [
        ("redis://host/?db=3", "/db"),
        ("redis://host/0?timeout=5", "leave it out"),
        ("redis://host/0#2", "`#`"),
        ("unix:///tmp/socket?databse=2", "db, user and pass"),
        // Of a bare `&` in a password, all after it would be lost.
        ("unix:///tmp/socket?pass=a&s3crt", "joined by `&`"),
    ] {
        let error = RedisLockProcessor::builder(url).expect_err(url);
        assert!(matches!(error, Error::InvalidConfig { what: "URL", .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(remedy) && !text.contains("s3crt"), "{text}");
    }
    for url in ["redis://host/?protocol=resp2", "unix:///tmp/socket?db=2&user=u&pass=p", "redis://host/3"] {
        RedisLockProcessor::builder(url).unwrap();
    }
}

#[test]
fn a_generator_gives_the_lease_of_a_type_and_a_config_to_go_on_with() {
    let (_directory, path) = file();
    let plain = build(DLockGenerator::builder());
    assert_eq!(plain.lease_of("ORDER").unwrap(), DEFAULT_LEASE);
    let from_file = build(DLockGenerator::builder().properties(&path).unwrap());
    assert_eq!(from_file.lease_of("ORDER").unwrap(), FILE);
    let text = from_file.lease_of("BATCH").unwrap_err().to_string();
    assert!(text.contains("BATCH") && text.contains("config-dlock.properties"), "{text}");
    let both = build(DLockGenerator::builder().default_lease(DEFAULT).unwrap().properties(&path).unwrap());
    assert_eq!((both.lease_of("ORDER").unwrap(), both.lease_of("BATCH").unwrap()), (FILE, DEFAULT));

    let config = both.config("ORDER", " 7 ").unwrap().with_reason("why");
    assert_eq!((config.unique_key(), config.lease()), ("DLOCK_ORDER_7", FILE));
    assert!(has_lease(&both.generate_with(config).unwrap(), FILE));
    assert!(from_file.config("BATCH", "1").is_err());
    for generator in [&plain, &from_file, &both] {
        assert!(matches!(generator.config("", "1"), Err(Error::InvalidConfig { what: "lock type", .. })));
        assert!(matches!(generator.lease_of(""), Err(Error::InvalidConfig { what: "lock type", .. })));
    }
}
