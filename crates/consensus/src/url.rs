//! URLs of consensus stores: `etcd://[user:password@]host[:port][,host[:port]…][/prefix]`, and `etcd+https://…`. A URL of Consul may end with
//! parameters: `?dc=east&ns=team&partition=blue`.
//!
//! | part | may be | reason |
//! |---|---|---|
//! | login | anything, with `%XX` for what a URL cannot have | the servers decide |
//! | host | a name, an IPv4 address, an IPv6 address in brackets; in Consul's URLs the path of a socket, with `%2F` for each `/` | errors show the host, so it must not be a part of a password |
//! | prefix | parts other than `.` and `..`, without the characters that a path of a request must not have | it is the beginning of every path |
//! | parameter | letters, digits, `-` and `_`, once each, of those that the store knows | it stands in each request; one that is not known would be dropped without a word |
//!
//! Errors show only the scheme of a wrong URL: where its password begins and ends is known only once the URL can be read.

use percent_encoding::percent_decode_str;
use redis_dlock::Error;
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// A parsed URL. It contains a secret.
#[derive(Clone)]
pub(super) struct StoreUrl {
    /// The servers, each as `http://host:port` or `https://host:port`.
    pub(super) servers: Vec<String>,
    /// The socket of the server, if the URL names one.
    pub(super) socket: Option<PathBuf>,
    /// The text before the `@`: a user, and the password if there is one.
    pub(super) login: Option<(String, Option<String>)>,
    /// The prefix of all paths: empty, or ends with a slash.
    pub(super) root: String,
    /// The parameters, with their names. Only URLs of Consul may have some.
    #[cfg_attr(not(feature = "consul"), expect(dead_code))]
    pub(super) parameters: Vec<(String, String)>,
}

/// The prefix of a URL that names none.
const ROOT: &str = "dlock/";

/// The host in requests to a server on a socket, because HTTP needs one. The name is not looked up. Errors of the connect name the path of the
/// socket.
const ON_A_SOCKET: &str = "http://unix-socket";

impl StoreUrl {
    /// Reads a URL with this scheme.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`], which shows no more of the URL than its scheme.
    pub(super) fn parse(
        url: &str,
        scheme: &'static str,
        port: u16,
        parameters: &'static [&'static str],
    ) -> Result<Self, Error> {
        let (found, rest) = url.split_once("://").unwrap_or(("", url));
        Reader { found, scheme, port, parameters }.read(rest)
    }

    /// Returns whether the servers are reached by TLS. One URL has one protocol.
    #[cfg(feature = "tls")]
    pub(super) fn is_encrypted(&self) -> bool {
        self.servers.iter().all(|server| server.starts_with("https://"))
    }
}

/// Reads a URL after its scheme, part by part. Each part has a hint of its own, because errors never show the URL: it may contain a password, and a
/// typing error can move the password into another part.
struct Reader<'a> {
    /// The text before `://`.
    found: &'a str,
    /// The scheme that should stand there, and the port of servers that name none.
    scheme: &'static str,
    port: u16,
    /// The names of the parameters that it may have.
    parameters: &'static [&'static str],
}

impl Reader<'_> {
    /// Reads the URL after its scheme from the outside to the inside: the parameters behind the question mark, the prefix behind the first slash, the
    /// login before the last `@`, the hosts.
    fn read(&self, rest: &str) -> Result<StoreUrl, Error> {
        let http = self.protocol()?;
        let (rest, parameters) = match rest.split_once('?') {
            // The question mark belongs to a login, so the rest may be a secret.
            Some((_, behind)) if behind.contains('@') => (rest, Vec::new()),
            Some((before, behind)) if !self.parameters.is_empty() => (before, self.parameters(behind)?),
            _ => (rest, Vec::new()),
        };
        let (authority, root) = rest.split_once('/').unwrap_or((rest, ""));
        // A password may contain an `@`, a host does not.
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        if authority.contains(['?', '#']) {
            let hint = "leave out what begins with ? or #: there are no parameters; in a login write %3F and %23";
            return Err(self.wrong(hint));
        }
        let login = login.map(|login| self.login(login)).transpose()?;
        if hosts.is_empty() {
            return Err(self.wrong(format!("a host is missing: {}", self.form())));
        }
        let root = self.root(root)?;
        if let Some(socket) = self.socket(http, hosts)? {
            return Ok(StoreUrl {
                servers: vec![ON_A_SOCKET.to_owned()],
                socket: Some(socket),
                login,
                root,
                parameters,
            });
        }
        let servers: Result<_, _> = hosts.split(',').map(|host| self.server(http, host)).collect();
        Ok(StoreUrl { servers: servers?, socket: None, login, root, parameters })
    }

    /// Reads the parameters, each of them once. A value needs no decoding: a character that needs encoding is refused, because no name in Consul has
    /// it.
    fn parameters(&self, text: &str) -> Result<Vec<(String, String)>, Error> {
        let hint =
            || format!("of parameters there are {}, such as ?{}=…", self.parameters.join(", "), self.parameters[0]);
        let mut parameters = Vec::<(String, String)>::new();
        for parameter in text.split('&') {
            let (name, value) = parameter.split_once('=').ok_or_else(|| self.wrong(hint()))?;
            let is_known = self.parameters.contains(&name) && parameters.iter().all(|(other, _)| other != name);
            if !is_known || !is_name(value) {
                return Err(self.wrong(hint()));
            }
            parameters.push((name.to_owned(), value.to_owned()));
        }
        Ok(parameters)
    }

    /// The error of a part.
    fn wrong(&self, hint: impl Into<String>) -> Error {
        Error::invalid_config("URL", shown(self.found), hint)
    }

    /// How a URL is written, for hints.
    fn form(&self) -> String {
        let Self { scheme, port, .. } = self;
        format!("write {scheme}://host:{port}, or several as {scheme}://host:{port},host:{port}")
    }

    /// The protocol below the store's own.
    fn protocol(&self) -> Result<&'static str, Error> {
        match self.found.strip_prefix(self.scheme) {
            Some("") => Ok("http"),
            Some("+https") if cfg!(feature = "tls") => Ok("https"),
            Some("+https") => Err(self.wrong("this program was built without the feature `tls` of dlock-consensus")),
            _ => Err(self.wrong(self.form())),
        }
    }

    /// A user, and the password if there is one.
    fn login(&self, login: &str) -> Result<(String, Option<String>), Error> {
        if login.is_empty() || login.starts_with(':') {
            return Err(self.wrong("write a user or token before the @, or leave the @ out"));
        }
        let decoded = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(self.wrong("write what is no letter or digit of a user or password as %XX, in UTF-8")),
        };
        match login.split_once(':') {
            Some((user, password)) => Ok((decoded(user)?, Some(decoded(password)?))),
            None => Ok((decoded(login)?, None)),
        }
    }

    /// The path of a Unix socket, if that stands in place of a host. Its slashes are written as `%2F`: those of a URL begin the prefix.
    fn socket(&self, http: &str, host: &str) -> Result<Option<PathBuf>, Error> {
        if self.scheme != "consul" || !host.to_ascii_lowercase().starts_with("%2f") {
            return Ok(None);
        }
        let path = percent_decode_str(host).decode_utf8().ok().filter(|path| !path.contains(['\0', ',']));
        match path {
            Some(path) if cfg!(unix) && http == "http" => Ok(Some(PathBuf::from(path.into_owned()))),
            _ => Err(self.wrong("a Unix socket is one path, with each / as %2F, on a Unix system and without TLS")),
        }
    }

    /// The address of a server, as requests to it begin.
    fn server(&self, http: &str, host: &str) -> Result<String, Error> {
        // The colons of an address of IPv6 stand in brackets.
        let (name, given) = match host.rsplit_once(':') {
            Some((name, given)) if !given.ends_with(']') => (name, Some(given)),
            _ => (host, None),
        };
        let Some(port) = given.map_or(Some(self.port), port_number) else {
            return Err(self.wrong(format!("a port is a number from 1 to 65535: {}", self.form())));
        };
        if !is_host(name) {
            let hint = format!("a host is a name or an address, in brackets if it is of IPv6: {}", self.form());
            return Err(self.wrong(hint));
        }
        Ok(format!("{http}://{name}:{port}"))
    }

    /// The prefix of all paths, with a slash at its end.
    fn root(&self, root: &str) -> Result<String, Error> {
        match root.trim_end_matches('/') {
            "" => Ok(ROOT.to_owned()),
            root if root.split('/').all(is_part) => Ok(format!("{root}/")),
            // The error does not show it, because it may be the rest of a password with a slash.
            _ => Err(self.wrong(
                "write the prefix as words separated by single slashes, without any of ?#@% and not . or .., and a slash in a login as %2F",
            )),
        }
    }
}

/// Reads a port. `u16` would also read a sign.
fn port_number(given: &str) -> Option<u16> {
    let is_number = given.bytes().all(|byte| byte.is_ascii_digit());
    given.parse().ok().filter(|port| is_number && *port != 0)
}

/// Whether this names a host. Other characters would end up in the path of a request, or in its login.
fn is_host(name: &str) -> bool {
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    if let Some(address) = bracketed {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    name.contains(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain)
}

/// Whether this may name a datacenter, a namespace or a partition of Consul.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Whether a part of a prefix may stand in the path of a request, where `.` and `..` are directories.
fn is_part(part: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !"?#@%".contains(c);
    !matches!(part, "" | "." | "..") && part.chars().all(is_plain)
}

/// The part of a URL that may be shown. The text before `://` may be a login.
fn shown(scheme: &str) -> String {
    match scheme {
        "" => "(no scheme)".into(),
        "consul" | "consul+https" | "etcd" | "etcd+https" => format!("{scheme}://…"),
        _ => "…://…".into(),
    }
}

#[cfg(test)]
#[path = "../tests/white_box/url.rs"]
mod tests;
