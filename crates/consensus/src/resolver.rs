//! The addresses of the servers.
//!
//! The HTTP client asks for the address of a server before each request, even if the request uses an open connection. For a name, and with a limit on
//! the whole request, it would begin a thread each time. So this module keeps the addresses of a name for a moment. It does not keep them longer,
//! because a name may lead to another server after a failover. A server that is named by its address needs no look-up.

use super::timing::NAMES;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Resolves an address without a look-up, and remembers a name for a moment.
#[derive(Debug, Default)]
pub(super) struct Addresses<R = DefaultResolver> {
    /// The addresses of each name, and the time of the look-up. There are as many names as the URL has.
    known: Mutex<HashMap<String, (Instant, Vec<SocketAddr>)>>,
    resolver: R,
}

impl<R: Resolver> Addresses<R> {
    /// Returns the addresses of a server, if they are known without a look-up.
    fn known(&self, authority: &str) -> Option<Vec<SocketAddr>> {
        if let Ok(address) = authority.parse() {
            return Some(vec![address]);
        }
        let known = self.known.lock();
        let (since, addresses) = known.get(authority)?;
        (since.elapsed() < NAMES).then(|| addresses.clone())
    }
}

impl<R: Resolver> Resolver for Addresses<R> {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        if let Some(addresses) = self.known(authority) {
            let mut found = self.empty();
            addresses.into_iter().for_each(|address| found.push(address));
            return Ok(found);
        }
        // Several threads may look the same name up at once. None of them waits for another one, whose deadline may be later.
        let found = self.resolver.resolve(uri, config, timeout).map_err(not_reached)?;
        self.known.lock().insert(authority.to_owned(), (Instant::now(), found.to_vec()));
        Ok(found)
    }
}

/// Gives the error of a failed look-up the kind `HostUnreachable`. The system's error has no known kind, and an error without one counts as one that
/// may have come after the request was sent.
fn not_reached(error: ureq::Error) -> ureq::Error {
    match error {
        ureq::Error::Io(error) => ureq::Error::Io(io::Error::new(io::ErrorKind::HostUnreachable, error)),
        error => error,
    }
}

/// Looks nothing up: a socket has a path and no address. The host in the URL of a request to it is a name that no server has. It only stands in the
/// request's header.
#[cfg(unix)]
#[derive(Debug)]
pub(super) struct NoAddress;

#[cfg(unix)]
impl Resolver for NoAddress {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the look-ups.
    #[derive(Debug, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl Resolver for Counting {
        fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
            let mut found = self.empty();
            found.push(SocketAddr::from((
                [127, 0, 0, 1],
                u16::try_from(self.0.fetch_add(1, Ordering::SeqCst)).unwrap_or(0),
            )));
            Ok(found)
        }
    }

    #[test]
    fn a_name_is_looked_up_once_and_an_address_never() {
        // The mutex is that of the model.
        shuttle::check_random(
            || {
                let count = Arc::new(AtomicUsize::new(0));
                let addresses = Addresses { known: Mutex::default(), resolver: Counting(count.clone()) };
                let resolve = |uri: &'static str| {
                    let timeout = NextTimeout::default();
                    addresses.resolve(&Uri::from_static(uri), &Config::default(), timeout).expect("an address").to_vec()
                };
                for _ in 0..3 {
                    assert_eq!(resolve("http://one:1/a"), resolve("http://one:1/b"));
                    assert_eq!(resolve("http://[::1]:2/"), [SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 2))]);
                }
                assert_ne!(resolve("http://two:1/"), resolve("http://one:1/"));
                assert_eq!(count.load(Ordering::SeqCst), 2);
            },
            1,
        );
    }
}
