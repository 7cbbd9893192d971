//! Environment variables of the programs `consul` and `etcdctl` that `dlock` reads, too.
//!
//! | variable | meaning |
//! |---|---|
//! | `CONSUL_HTTP_ADDR` | the agent, in a URL `consul://` that names none: `host:port`, or a URL, also `unix:///path`. Without it `127.0.0.1:8500` |
//! | `CONSUL_HTTP_SSL` | whether this agent is reached by TLS, if the address has no scheme |
//! | `CONSUL_HTTP_TOKEN_FILE`, `CONSUL_HTTP_TOKEN` | the token, where the URL has none. The file counts first, unless it is empty |
//! | `CONSUL_CACERT` | the root certificates of `consul+https://`, without `--ca` |
//! | `ETCDCTL_ENDPOINTS` | the servers, in a URL `etcd://` that names none. Without it `127.0.0.1:2379` |
//!
//! A variable with an address does not change a URL that names a host, as it does not change `-http-addr` and `--endpoints`. The token is used for
//! any host of the URL, as by `consul`.

use std::env;
use std::fs;

/// The value of a variable, if it is set and not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the URL with the servers of the environment, if it names a store and no host.
pub(super) fn completed(url: &str, get: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let Some((scheme, rest)) =
        url.split_once("://").filter(|(_, rest)| rest.is_empty() || rest.starts_with(['/', '?']))
    else {
        return Ok(url.to_owned());
    };
    let (store, is_encrypted) = scheme.strip_suffix("+https").map_or((scheme, false), |store| (store, true));
    let (name, usual) = match store {
        "consul" => ("CONSUL_HTTP_ADDR", "127.0.0.1:8500"),
        "etcd" => ("ETCDCTL_ENDPOINTS", "127.0.0.1:2379"),
        _ => return Ok(url.to_owned()),
    };
    let given = get(name).unwrap_or_else(|| usual.to_owned());
    let mut by_tls = Vec::new();
    let mut hosts = Vec::new();
    for address in given.split(',') {
        let (by, host) = address.trim().split_once("://").unwrap_or(("", address.trim()));
        let is_https = match by {
            "https" => true,
            "http" => false,
            "unix" if store == "consul" => false,
            "" => is_encrypted || store == "consul" && get("CONSUL_HTTP_SSL").is_some_and(|text| is_true(&text)),
            _ => return Err(format!("{name} has an address that is neither http:// nor https://: give --url")),
        };
        by_tls.push(is_https);
        hosts.push(if by == "unix" {
            host.replace('%', "%25").replace('/', "%2F")
        } else {
            host.trim_end_matches('/').into()
        });
    }
    let is_https = by_tls.contains(&true);
    if is_https && by_tls.contains(&false) {
        return Err(format!("{name} has addresses with https:// and others without: give --url"));
    }
    Ok(format!("{store}{}://{}{rest}", if is_https { "+https" } else { "" }, hosts.join(",")))
}

/// Reads a boolean as Go does.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&text)
}

/// Returns the token for a URL of Consul that has none.
#[cfg(feature = "consul")]
pub(super) fn token(url: &str, get: impl Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Ok(None);
    }
    if let Some(path) = get("CONSUL_HTTP_TOKEN_FILE") {
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {path:?} of CONSUL_HTTP_TOKEN_FILE: {error}"))?;
        if !text.trim().is_empty() {
            return Ok(Some(text.trim().to_owned()));
        }
    }
    Ok(get("CONSUL_HTTP_TOKEN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(set: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_url_without_a_host_has_that_of_the_environment() {
        let (http, ssl, etcd) = ("CONSUL_HTTP_ADDR", ("CONSUL_HTTP_SSL", "true"), "ETCDCTL_ENDPOINTS");
        for (url, set, completed_url) in [
            ("consul://", &[][..], "consul://127.0.0.1:8500"),
            ("consul:///team?dc=east", &[(http, "h:1")], "consul://h:1/team?dc=east"),
            ("consul://?dc=east", &[(http, "http://h:1/")], "consul://h:1?dc=east"),
            ("consul://", &[(http, "h:1"), ssl], "consul+https://h:1"),
            ("consul://", &[(http, "http://h:1"), ssl], "consul://h:1"),
            ("consul://", &[(http, "https://h:1")], "consul+https://h:1"),
            ("consul+https://", &[(http, "h:1")], "consul+https://h:1"),
            ("consul:///team", &[(http, "unix:///run/consul.sock")], "consul://%2Frun%2Fconsul.sock/team"),
            ("consul://x", &[(http, "h:1")], "consul://x"),
            ("etcd://", &[], "etcd://127.0.0.1:2379"),
            ("etcd:///team", &[(etcd, "a:1, http://b:2"), ssl], "etcd://a:1,b:2/team"),
            ("etcd://", &[(etcd, "https://a:1,https://b:2")], "etcd+https://a:1,b:2"),
            ("redis://", &[(http, "h:1")], "redis://"),
            ("h", &[(http, "h:1")], "h"),
        ] {
            assert_eq!(completed(url, of(set)).as_deref(), Ok(completed_url), "{url} {set:?}");
        }
        for set in [[(etcd, "https://a,http://b")], [(etcd, "unixs://a")]] {
            assert!(completed("etcd://", of(&set)).expect_err("an error").contains("give --url"));
        }
    }

    #[cfg(feature = "consul")]
    #[test]
    fn a_token_comes_from_the_url_the_file_or_the_variable() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (full, empty) = (file("full", " from-file\n"), file("empty", "\n"));
        let (from_file, plain) = ("CONSUL_HTTP_TOKEN_FILE", ("CONSUL_HTTP_TOKEN", "plain"));
        for (url, set, expected) in [
            ("consul://h", &[][..], None),
            ("consul://h", &[plain], Some("plain")),
            ("consul://own@h", &[plain], None),
            ("consul://h/a@b", &[plain], Some("plain")),
            ("consul://h", &[plain, (from_file, &full)], Some("from-file")),
            ("consul://h", &[plain, (from_file, &empty)], Some("plain")),
        ] {
            assert_eq!(token(url, of(set)).expect("a readable file").as_deref(), expected, "{url} {set:?}");
        }
        assert!(token("consul://h", of(&[(from_file, "/nowhere")])).expect_err("an error").contains("/nowhere"));
    }
}
