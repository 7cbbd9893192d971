//! Hosts and ports, as URLs and servers name them.
//!
//! Servers behind address translation, such as in containers, name addresses that only they can reach. The program may give a function that
//! maps these addresses to addresses that the client can reach ([`AddressMap`]). That function is the program's code, and may panic: its
//! callers here must catch that.

use std::fmt;
use std::sync::Arc;

/// Maps the addresses that servers tell to those by which this machine reaches them.
#[derive(Clone)]
pub(crate) struct AddressMap(pub(crate) Arc<Mapping>);

pub(crate) type Mapping = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressMap")
    }
}

/// Returns the address by which this machine reaches what a server tells.
pub(crate) fn mapped(map: Option<&AddressMap>, host: String, port: u16) -> (String, u16) {
    match map {
        Some(map) => (map.0)(&host, port),
        None => (host, port),
    }
}

/// Reads `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(crate) fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        // Only brackets tell where an IPv6 address ends and a port begins.
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        // Without brackets, the rest of an IPv6 address stands in the port, which is then no number. So the address is refused, and not cut in two.
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        // There is only a host. Anything else behind the brackets is a mistake.
        None if port.is_empty() => default_port,
        None => return None,
    };
    // A host is shown in errors and in the log. A text that may be the rest of a login (`@`, `%`), or that may break a line, is refused.
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '%' | '[' | ']' | '@');
    (!host.is_empty() && host.chars().all(is_plain)).then(|| (host.to_owned(), port))
}
