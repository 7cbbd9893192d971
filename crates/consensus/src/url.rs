//! URLs of stores that vote: `etcd://[user:password@]host[:port][,host[:port]…][/prefix]`, and `etcd+https://…`.

use percent_encoding::percent_decode_str;
use redis_dlock::Error;

/// A parsed URL. It contains a secret.
#[derive(Clone)]
pub(super) struct StoreUrl {
    /// `http://host:port` each, or `https://host:port`.
    pub(super) servers: Vec<String>,
    /// What stands before the `@`: a user, and the password if there is one.
    pub(super) login: Option<(String, Option<String>)>,
    /// The prefix of all paths: empty, or ends with a slash.
    pub(super) root: String,
}

/// The prefix of a URL that names none.
const ROOT: &str = "dlock/";

impl StoreUrl {
    /// Reads a URL with this scheme.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which shows no more of the URL than its scheme.
    pub(super) fn parse(url: &str, scheme: &str, port: u16) -> Result<Self, Error> {
        let (found, rest) = url.split_once("://").unwrap_or(("", url));
        let wrong = |hint: String| Error::invalid_config("URL", shown(found), hint);
        let form = || format!("write {scheme}://host:{port}, or several as {scheme}://host:{port},host:{port}");
        let is_encrypted = match found.strip_prefix(scheme) {
            Some("") => false,
            Some("+https") if cfg!(feature = "tls") => true,
            Some("+https") => return Err(wrong("this program was built without the feature `tls`".into())),
            _ => return Err(wrong(form())),
        };
        let http = if is_encrypted { "https" } else { "http" };
        let (authority, root) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        if authority.contains(['?', '#']) {
            return Err(wrong(
                "leave out what begins with ? or #: there are no parameters; in a login write %3F and %23".into(),
            ));
        }
        if login.is_some_and(|login| login.is_empty() || login.starts_with(':')) {
            return Err(wrong("write a user or token before the @, or leave the @ out".into()));
        }
        if hosts.is_empty() {
            return Err(wrong(format!("a host is missing: {}", form())));
        }
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(std::borrow::Cow::into_owned)
                .map_err(|_| wrong("write what is no letter or digit of a user or password as %XX, in UTF-8".into()))
        };
        let login =
            match login.map(|login| login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)))) {
                Some((user, password)) => Some((decoded(user)?, password.map(decoded).transpose()?)),
                None => None,
            };
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            let (name, given) = match host.rsplit_once(':') {
                Some((name, given)) if !given.ends_with(']') => (name, Some(given)),
                _ => (host, None),
            };
            let number = |given: &str| {
                let is_number = given.bytes().all(|byte| byte.is_ascii_digit());
                given.parse().ok().filter(|port| is_number && *port != 0)
            };
            let port = given.map_or(Some(port), number);
            let is_name = |name: &str| {
                name.contains(|c: char| c.is_ascii_alphanumeric())
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
            };
            let is_v6 = name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'))
                .is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
            match port {
                Some(port) if is_v6 || is_name(name) => servers.push(format!("{http}://{name}:{port}")),
                None => return Err(wrong(format!("a port is a number from 1 to 65535: {}", form()))),
                _ => {
                    return Err(wrong(format!(
                        "a host is a name or an address, in brackets if it is of IPv6: {}",
                        form()
                    )));
                }
            }
        }
        let root = match root.trim_end_matches('/') {
            "" => ROOT.to_owned(),
            root if root.split('/').all(is_part) => format!("{root}/"),
            // It may be the rest of a password with a slash in it, so it is not shown.
            _ => {
                let hint = "write the prefix as words separated by single slashes, without any of ?#@% and not . or .., and a slash in a \
                            login as %2F";
                return Err(wrong(hint.into()));
            }
        };
        Ok(Self { servers, login, root })
    }
}

impl StoreUrl {
    #[cfg(feature = "tls")]
    pub(super) fn is_encrypted(&self) -> bool {
        self.servers.iter().all(|server| server.starts_with("https://"))
    }
}

/// Whether a store can have a part of a prefix in the path of a request, which knows `.` and `..` as directories.
fn is_part(part: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !"?#@%".contains(c);
    !matches!(part, "" | "." | "..") && part.chars().all(is_plain)
}

/// A URL as far as it may be shown. What stands before `://` may be a login.
fn shown(scheme: &str) -> String {
    match scheme {
        "" => "(no scheme)".into(),
        "consul" | "consul+https" | "etcd" | "etcd+https" => format!("{scheme}://…"),
        _ => "…://…".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_a_path_cannot_have_is_refused_and_not_shown() {
        for root in ["a/b@host", ".", "..", "a/../b", "a%20b", "a//b", "a\nb", "a?b", "a#b", "b:sesame@host"] {
            let error = StoreUrl::parse(&format!("consul://h/{root}"), "consul", 8500).err().expect(root).to_string();
            assert!(error.contains("consul://…") && error.contains("prefix") && !error.contains("sesame"), "{error}");
        }
        for root in ["a", "a.b/..c", "ä b/c:d"] {
            assert!(StoreUrl::parse(&format!("consul://h/{root}/"), "consul", 8500).is_ok(), "{root}");
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
                let error = StoreUrl::parse(&format!("{scheme}://{rest}"), scheme, port).err().expect(rest).to_string();
                assert!(error.contains(hint), "{rest}: {error}");
            }
        }
    }

    #[test]
    fn a_login_before_the_scheme_is_not_shown() {
        let error = StoreUrl::parse("sesame@consul://h", "consul", 8500).err().expect("no scheme of ours").to_string();
        assert!(!error.contains("sesame") && error.contains("write consul://host:8500"), "{error}");
    }

    #[test]
    fn servers_login_and_prefix_are_read() {
        let url = StoreUrl::parse("etcd://me:a%40b@one,two:1,[::1]:2/team/x/", "etcd", 2379).expect("a URL");
        assert_eq!(url.servers, ["http://one:2379", "http://two:1", "http://[::1]:2"]);
        assert_eq!(url.login, Some(("me".into(), Some("a@b".into()))));
        assert_eq!(url.root, "team/x/");
        let url = StoreUrl::parse("etcd://host", "etcd", 2379).expect("a URL");
        assert_eq!((url.root.as_str(), url.login), (ROOT, None));
    }

    #[test]
    fn a_url_that_encrypts_needs_the_feature() {
        match StoreUrl::parse("etcd+https://host/", "etcd", 2379) {
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
            let error = StoreUrl::parse(url, "etcd", 2379).err().expect(url).to_string();
            assert!(error.starts_with("invalid URL") && !error.contains("secret"), "{error}");
        }
    }
}
