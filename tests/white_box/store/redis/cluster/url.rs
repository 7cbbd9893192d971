//! Unit tests of `src/store/redis/cluster/url.rs`.

use super::*;

#[test]
fn urls_are_read() {
    for (url, seeds) in [
        ("redis+cluster://h1", &["-:-@h1:6379"][..]),
        ("redis+cluster://h1/", &["-:-@h1:6379"]),
        ("redis+cluster://h1:7000,h2/0", &["-:-@h1:7000", "-:-@h2:6379"]),
        ("redis+cluster://ann:s%40crt@h1,[::1]:7001", &["ann:s@crt@h1:6379", "ann:s@crt@[::1]:7001"]),
        ("redis+cluster://:s3crt@[::1]", &["-:s3crt@[::1]:6379"]),
    ] {
        let shown = |address: &Address| {
            let login = [&address.user, &address.password].map(|word| word.as_deref().unwrap_or("-")).join(":");
            format!("{login}@{address}")
        };
        let read = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(read.iter().map(shown).collect::<Vec<_>>(), seeds, "{url}");
    }
}

#[test]
fn of_an_unusable_url_only_the_scheme_is_shown_and_the_reason() {
    for (url, reason) in [
        ("redis+cluster://", "host"),
        ("redis+cluster://ann:s3crt@h1,", "host"),
        ("redis+cluster://ann:s3crt@h1:x", "port"),
        ("redis+cluster://ann:s3crt@h1:0", "port"),
        ("redis+cluster://ann:s3crt@[h1]", "host"),
        ("redis+cluster://ann:s3/crt@h1", "%2F"),
        ("redis+cluster://ann:s3?crt@h1", "%2F"),
        ("redis+cluster://ann:s3%crt@h1", "%25"),
        ("redis+cluster://s3crt@h1", "without a password"),
        ("redis+cluster://ann:s3crt@h1/x1", "database 0"),
        ("redis+cluster://ann:s3crt@h1/x", "database 0"),
        ("redis+cluster://ann:s3crt@h1/0/1", "database 0"),
        ("redis+cluster://h1?s3crt=1", "leave it out"),
        ("redis+cluster://h1#s3crt", "leave it out"),
        #[cfg(not(feature = "tls"))]
        ("rediss+cluster://ann:s3crt@h1", "feature `tls`"),
    ] {
        let error = parse(url).expect_err(url).to_string();
        assert!(error.contains(reason), "{url}: {error}");
        assert!(!error.contains("s3") && !error.contains("ann:") && error.contains("cluster"), "{url}: {error}");
    }
}

#[test]
fn a_database_is_named_by_its_number() {
    let error = parse("redis+cluster://ann:s3crt@h1,h2/15").expect_err("not 0").to_string();
    assert!(error.contains("database \"15\"") && error.contains("leave the database out"), "{error}");
    assert!(!error.contains("s3crt"), "{error}");
}
