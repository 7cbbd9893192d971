//! Unit tests of `src/store/redis/net/address.rs`.

use super::*;

#[test]
fn urls_are_read() {
    let a = Address::parse("redis://ann:s%40crt@db.example:7000/3").expect("a URL");
    assert_eq!(a.place, Place::Tcp { host: "db.example".into(), port: 7000, tls: false });
    assert_eq!((a.user.as_deref(), a.password.as_deref(), a.db), (Some("ann"), Some("s@crt"), 3));
    assert_eq!(format!("{a} {a:?}"), "db.example:7000 db.example:7000/3");
    let a = Address::parse("redis://[::1]").expect("a URL");
    assert_eq!(format!("{a}"), "[::1]:6379");
    let a = Address::parse("unix:///run/r.sock?db=2&user=ann&pass=s3crt").expect("a URL");
    assert_eq!((a.place.clone(), a.password.as_deref()), (Place::Unix("/run/r.sock".into()), Some("s3crt")));
    assert!(!format!("{a:?}{a}").contains("s3crt"));
}

#[test]
fn of_an_unusable_url_only_a_known_scheme_is_shown_and_the_reason() {
    let none = "";
    for (url, scheme, reason) in [
        ("", none, "missing scheme"),
        ("s3crt", none, "missing scheme"),
        ("ann:s3crt@host", none, "missing scheme"),
        ("redis//ann:s3crt@host", none, "missing scheme"),
        ("redis:s3crt", none, "missing host"),
        ("redis:s3crt://host", none, "missing host"),
        ("http://ann:s3crt@host", none, "unsupported scheme"),
        ("s3crt://redis://host", none, "unsupported scheme"),
        ("etcd://ann:s3crt@host", none, "EtcdLockProcessor::new"),
        ("consul://s3crt@host", none, "ConsulLockProcessor::new"),
        ("mongodb://ann:s3crt@host", none, "MongoLockProcessor::new"),
        ("REDIS://host:s3crt", none, "the host or the port"),
        ("redis://ann:s3crt", "redis", "the host or the port"),
        ("redis://ann:s3crt@host:port", "redis", "the host or the port"),
        ("redis://s3crt:99999", "redis", "the host or the port"),
        ("redis:///s3crt", "redis", "missing host"),
        ("valkey://:s3crt/more@host:1:2", "valkey", "%2F"),
        ("redis://ann:s3crt#more@host", "redis", "%23"),
        ("redis://ann:1/s3crt@host", "redis", "%2F"),
        ("redis://0.0.0.0/s3crt", "redis", "wildcard"),
        ("redis://ann:s3crt@host/x", "redis", "not a number"),
        ("redis://host/s3crt", "redis", "not a number"),
        ("redis://s3crt@host/?protocol=resp3", "redis", "RESP3"),
        ("redis://ann:%ff@s3crt", "redis", "the password is not UTF-8"),
        ("redis://ann:s3crt@host/?protocol=s3crt", "redis", "unknown protocol"),
        ("unix:///run/r.sock?db=x&pass=s3crt&user=a", "unix", "not a number"),
        ("unix://s3crt/run", "unix", "missing path"),
        ("rediss://ann:s3crt@host/#insecure", "rediss", "tls"),
        // These could be used, but not as they were meant.
        ("redis://ann:1?s3crt@host", "redis", "%3F"),
        ("redis://ann:1#s3crt@host", "redis", "%23"),
        ("redis://ann%3As3crt%40host", "redis", "plain `@`"),
        ("redis://s3crt.é", "redis", "xn--"),
        ("redis://host?s3crt=1", "redis", "a setting"),
        ("unix:///run/r.sock%3Fpass=s3crt", "unix", "plain `?`"),
        ("valkey+unix:///run/s3crt%00", "valkey+unix", "without NUL"),
    ] {
        let error = Address::parse(url).expect_err(url);
        let Error::InvalidConfig { what: "URL", value, hint } = &error else { panic!("{error:?}") };
        let shown = if scheme.is_empty() { NOT_SHOWN.to_owned() } else { format!("{scheme}://… {NOT_SHOWN}") };
        assert_eq!(*value, shown, "{url}");
        assert!(hint.contains(reason), "{url}: {hint}");
        assert!(!format!("{error} {error:?}").contains("s3crt"), "{error}");
    }
}

#[test]
fn words_are_shown_without_the_user() {
    let of = |user: &str, words: &str| {
        let place = Place::Unix(PathBuf::new());
        Address { place, user: Some(user.to_owned()), password: None, db: 0 }.hide_user(words)
    };
    for (words, shown) in [
        ("NOPERM: alice has no ACL permissions", "NOPERM: *** has no ACL permissions"),
        ("alice", "***"),
        ("`alice`, 'alice' and alice's", "`***`, '***' and ***'s"),
        ("malice, alices, alice_2 and Alice", "malice, alices, alice_2 and Alice"),
        ("alicealice alice", "alicealice ***"),
        ("nothing", "nothing"),
    ] {
        assert_eq!(of("alice", words), shown);
    }
    assert_eq!(of("\"o d\\é", "user \"o d\\é may not"), "user *** may not");
    assert_eq!(of("default", "User default may not"), "User default may not");
    assert_eq!(of("", "User  may not"), "User  may not");
}

#[test]
#[cfg(not(feature = "tls"))]
fn tls_without_the_feature_says_what_to_enable() {
    let error = Address::parse("rediss://host").expect_err("no TLS");
    assert!(error.to_string().contains("feature `tls`"), "{error}");
}
