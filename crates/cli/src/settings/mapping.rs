//! Addresses that servers tell, and those by which they are reached from here.

use std::str::FromStr;

/// An address that servers tell, and the one by which they are reached from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    told: (String, Option<u16>),
    here: (String, Option<u16>),
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give the address that is told and the one from here: 172.17.0.2:6379=127.0.0.1:7001".to_owned();
        let (told, here) = text.split_once('=').ok_or_else(wrong)?;
        Ok(Self { told: place(told).ok_or_else(wrong)?, here: place(here).ok_or_else(wrong)? })
    }
}

/// Reads `host`, `host:port`, `[::1]` or `[::1]:port`.
fn place(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.trim().strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':').or(port.is_empty().then_some(""))))?
        }
        None => text.trim().split_once(':').map_or((text.trim(), Some("")), |(host, port)| (host, Some(port))),
    };
    let port = match port? {
        "" if !text.ends_with(':') => None,
        port => Some(port.parse().ok().filter(|port| *port != 0)?),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// The address by which a server with this told address is reached from here.
pub(crate) fn mapped(map: &[Mapping], host: &str, port: u16) -> (String, u16) {
    let is_meant = |mapping: &&Mapping| mapping.told.0 == host && mapping.told.1.is_none_or(|told| told == port);
    match map.iter().find(is_meant) {
        Some(Mapping { here: (host, here), .. }) => (host.clone(), here.unwrap_or(port)),
        None => (host.to_owned(), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_mapped_with_its_port_or_all_ports() {
        let map: Vec<Mapping> =
            ["a:1=b:2", "a=c", "[::1]:3=d", "e=[::2]:4"].map(|text| text.parse().expect(text)).into();
        for (told, here) in [
            (("a", 1), ("b", 2)),
            (("a", 9), ("c", 9)),
            (("::1", 3), ("d", 3)),
            (("::1", 4), ("::1", 4)),
            (("e", 1), ("::2", 4)),
            (("x", 1), ("x", 1)),
        ] {
            assert_eq!(mapped(&map, told.0, told.1), (here.0.to_owned(), here.1), "{told:?}");
        }
        for wrong in ["a", "=b", "a=", "a:0=b", "a:x=b", "a:=b", "[::1=b", "a=b:70000"] {
            assert!(wrong.parse::<Mapping>().is_err(), "{wrong}");
        }
    }
}
