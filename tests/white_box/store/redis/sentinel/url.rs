//! Unit tests of `src/store/redis/sentinel/url.rs`.

use super::*;

fn read(url: &str) -> (String, Vec<String>) {
    let service = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let shown = |address: &Address| {
        let login = [&address.user, &address.password].map(|word| word.as_deref().unwrap_or("-")).join(":");
        format!("{login}@{address}/{}", address.db)
    };
    (shown(&service.address), service.sentinels.iter().map(shown).collect())
}

#[test]
fn urls_are_read() {
    for (url, servers, sentinels) in [
        ("redis+sentinel://h1/dlock", "-:-@service dlock/0", &["-:-@h1:26379/0"][..]),
        (
            "redis+sentinel://ann:s%40crt@h1:7000,h2,[::1]:7002/my%20service/3?sentinel_username=s&sentinel_password=p%26w",
            "ann:s@crt@service my service/3",
            &["s:p&w@h1:7000/0", "s:p&w@h2:26379/0", "s:p&w@[::1]:7002/0"],
        ),
        ("redis+sentinel://:s3crt@[::1]/x/?sentinel_password=p", "-:s3crt@service x/0", &["-:p@[::1]:26379/0"]),
        (
            "redis-sentinel://s3crt@h1,h2:1/2?sentinelMasterId=x",
            "-:s3crt@service x/2",
            &["-:-@h1:26379/0", "-:-@h2:1/0"],
        ),
        ("redis-sentinel://h1,h2/1#x", "-:-@service x/1", &["-:-@h1:26379/0", "-:-@h2:26379/0"]),
        ("redis-sentinel://a:b@h1?sentinelMasterId=x", "a:b@service x/0", &["-:-@h1:26379/0"]),
    ] {
        let read = read(url);
        assert_eq!(
            (read.0.as_str(), read.1.as_slice()),
            (servers, sentinels.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice()),
            "{url}"
        );
    }
}

#[test]
fn of_an_unusable_url_only_the_scheme_is_shown_and_the_reason() {
    for (url, reason) in [
        ("redis+sentinel://", "host"),
        ("redis+sentinel://h1", "no service"),
        ("redis+sentinel://ann:s3crt@h1", "no service"),
        ("redis+sentinel://ann:s3crt@h1/", "no service"),
        ("redis+sentinel://ann:s3crt@h1:x/dlock", "port"),
        ("redis+sentinel://ann:s3crt@h1:0/dlock", "port"),
        ("redis+sentinel://ann:s3crt@h1,/dlock", "host"),
        ("redis+sentinel://ann:s3crt@[h1]/dlock", "host"),
        ("redis+sentinel://ann:s3crt@::1/dlock", "port"),
        ("redis+sentinel://ann:s3/crt@h1/dlock", "%2F"),
        ("redis+sentinel://ann:s3?crt@h1/dlock", "%2F"),
        ("redis+sentinel://ann:s3%crt@h1/dlock", "%25"),
        ("redis+sentinel://s3crt@h1/dlock", "without a password"),
        ("redis+sentinel://ann:s3crt@h1/dlock/x", "not a number"),
        ("redis+sentinel://ann:s3crt@h1/dlock/1/2", "too many"),
        ("redis+sentinel://ann:s3crt@h1/dlock?db=1", "not known"),
        ("redis+sentinel://h1/dlock?sentinel_password=s3crt&sentinel_password=s3crt", "twice"),
        ("redis+sentinel://h1/dlock?sentinel_username=s3crt", "sentinel_password"),
        ("redis+sentinel://h1/dlock#s3crt", "`#`"),
        ("redis-sentinel://s3crt@h1/1", "sentinelMasterId"),
        #[cfg(not(feature = "tls"))]
        ("rediss+sentinel://ann:s3crt@h1/dlock", "feature `tls`"),
    ] {
        let error = parse(url).expect_err(url).to_string();
        assert!(error.contains(reason), "{url}: {error}");
        assert!(!error.contains("s3") && !error.contains("ann:") && error.contains("sentinel"), "{url}: {error}");
    }
}
