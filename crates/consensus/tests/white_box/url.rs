//! Tests of `url.rs`: what is read of a URL, and that nothing of a wrong one is shown.

use super::*;

#[test]
fn a_prefix_that_a_path_cannot_have_is_refused_and_not_shown() {
    for root in ["a/b@host", ".", "..", "a/../b", "a%20b", "a//b", "a\nb", "a?b", "a#b", "b:sesame@host"] {
        let error = StoreUrl::parse(&format!("consul://h/{root}"), "consul", 8500, &[]).err().expect(root).to_string();
        assert!(error.contains("consul://…") && error.contains("prefix") && !error.contains("sesame"), "{error}");
    }
    for root in ["a", "a.b/..c", "ä b/c:d"] {
        assert!(StoreUrl::parse(&format!("consul://h/{root}/"), "consul", 8500, &[]).is_ok(), "{root}");
    }
}

#[test]
fn each_wrong_part_has_a_hint_of_its_own() {
    for (rest, hint) in [
        ("", "host is missing"),
        ("me@", "host is missing"),
        ("a,,b", "a host is"),
        ("h:x", "a port is"),
        ("h:70000", "a port is"),
        ("h?a=b", "no parameters"),
        ("@h", "before the @"),
        ("h/a//b", "the prefix"),
    ] {
        for (scheme, port) in [("etcd", 2379), ("consul", 8500)] {
            let error =
                StoreUrl::parse(&format!("{scheme}://{rest}"), scheme, port, &[]).err().expect(rest).to_string();
            assert!(error.contains(hint), "{rest}: {error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_socket_is_a_path_in_place_of_a_host() {
    let read = |url: &str| StoreUrl::parse(url, "consul", 8500, &["dc"]);
    let url = read("consul://t@%2Frun%2fa%20b.sock/team?dc=x").expect("a URL");
    assert_eq!((url.socket, url.root.as_str()), (Some("/run/a b.sock".into()), "team/"));
    assert_eq!(url.servers, [ON_A_SOCKET]);
    for wrong in ["consul://%2Fa,%2Fb", "consul+https://%2Fa", "consul://%2F%00"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    assert!(StoreUrl::parse("etcd://%2Fa", "etcd", 2379, &[]).is_err());
}

#[test]
fn parameters_are_those_of_the_store_and_no_secret_is_shown() {
    let read = |url: &str| StoreUrl::parse(url, "consul", 8500, &["dc", "ns"]);
    let url = read("consul://t@h/a/b?dc=east-1&ns=team_x").expect("a URL");
    assert_eq!(url.parameters, [("dc".into(), "east-1".into()), ("ns".into(), "team_x".into())]);
    assert_eq!((url.root.as_str(), url.servers.len()), ("a/b/", 1));
    assert_eq!(read("consul://h?dc=east").expect("a URL").root, ROOT);
    for wrong in ["?", "?dc", "?dc=", "?dc=a&dc=b", "?token=sesame", "?dc=a/b", "?dc=a%20", "?dc=a&"] {
        let error = read(&format!("consul://h{wrong}")).err().expect(wrong).to_string();
        assert!(error.contains("there are dc, ns") && !error.contains("sesame"), "{error}");
    }
    let error = read("consul://a?sesame@h").err().expect("no parameter").to_string();
    assert!(error.contains("%3F") && !error.contains("sesame"), "{error}");
}

#[test]
fn a_login_before_the_scheme_is_not_shown() {
    let error = StoreUrl::parse("sesame@consul://h", "consul", 8500, &[]).err().expect("no scheme of ours").to_string();
    assert!(!error.contains("sesame") && error.contains("write consul://host:8500"), "{error}");
}

#[test]
fn servers_login_and_prefix_are_read() {
    let url = StoreUrl::parse("etcd://me:a%40b@one,two:1,[::1]:2/team/x/", "etcd", 2379, &[]).expect("a URL");
    assert_eq!(url.servers, ["http://one:2379", "http://two:1", "http://[::1]:2"]);
    assert_eq!(url.login, Some(("me".into(), Some("a@b".into()))));
    assert_eq!(url.root, "team/x/");
    let url = StoreUrl::parse("etcd://host", "etcd", 2379, &[]).expect("a URL");
    assert_eq!((url.root.as_str(), url.login), (ROOT, None));
}

#[test]
fn a_url_that_encrypts_needs_the_feature() {
    match StoreUrl::parse("etcd+https://host/", "etcd", 2379, &[]) {
        Ok(url) => assert!(cfg!(feature = "tls") && url.servers == ["https://host:2379"]),
        Err(error) => assert!(cfg!(not(feature = "tls")) && error.to_string().contains("`tls`"), "{error}"),
    }
}

#[test]
fn what_is_wrong_is_named_and_no_password_shown() {
    for url in [
        "",
        "host",
        "redis://host",
        "etcd://",
        "etcd://host:0",
        "etcd://host:x",
        "etcd://a,,b",
        "etcd://[::1",
        "etcd://h/a//b",
        "etcd://me:secret@",
        "etcd://me:secret%FF@host",
        "etcd://me:secret@h:p",
        "consul://host",
        "etcd+http://host",
        "etcd://h/?a=b",
        "etcd://h:+80",
        "etcd://.",
        "etcd://-",
        "etcd://@h",
        "etcd://:secret@h",
        "etcd://h?a=b",
    ] {
        let error = StoreUrl::parse(url, "etcd", 2379, &[]).err().expect(url).to_string();
        assert!(error.starts_with("invalid URL") && !error.contains("secret"), "{error}");
    }
}
