//! `dlock exporter` serves the figures of all locks of a store to Prometheus.
//!
//! Each scrape lists the locks, and asks who waits for them. The main thread runs one scrape at a time, for the threads that serve the scrapers.
//! Scrapers that ask while the locks are listed get the same page: otherwise they would wait for one another while the store hangs. The exporter asks
//! nothing between scrapes. If the store is away, or has not listed its locks in time, the page of that scrape says so.

mod figures;
mod http;

use crate::args::Exporter;
use crate::message::{inform, say};
use crate::settings::Settings;
use crate::status::{Failure, UNREACHABLE};
use crate::store::Store;
use crate::threads;
use crate::timing;
use figures::{Figures, Named};
use redis_dlock::port::LockProcessor;
use redis_dlock::{DLockGenerator, Error, ListedLock};
use std::io;
use std::iter;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

pub(crate) fn serve(settings: &Settings, wanted: &Exporter) -> Result<u8, Failure> {
    // A wrong URL is an error at once.
    settings.builder()?;
    let cannot = |error: io::Error| Failure::system(&format!("cannot listen on {}", wanted.listen), error);
    let listener = TcpListener::bind(&wanted.listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let (ask, asked) = mpsc::channel::<mpsc::Sender<String>>();
    let page = move || {
        let (give, page) = mpsc::channel();
        ask.send(give).ok()?;
        page.recv().ok()
    };
    threads::start("dlock-serve", move || http::serve(&listener, page))?;
    inform(&format!("serving http://{address}/metrics"), None);
    let mut scraper = Scraper::new(settings, wanted);
    while let Ok(give) = asked.recv() {
        let page = scraper.scrape();
        // The set of waiting scrapers is fixed before the first one gets its page, because that one may change something and ask again.
        let waiting: Vec<_> = iter::once(give).chain(asked.try_iter()).collect();
        for give in waiting {
            let _ = give.send(page.clone());
        }
    }
    Ok(0)
}

/// A client that asks questions only, and its store.
#[derive(Clone)]
struct Connection {
    generator: DLockGenerator,
    store: Arc<dyn LockProcessor>,
}

/// The locks of a store, and the connection that listed them.
type Listed = (Connection, Result<Vec<ListedLock>, Error>);

/// Asks the store for its locks.
struct Scraper<'a> {
    settings: &'a Settings,
    connection: Option<Connection>,
    figures: Figures,
    failures: u64,
    /// The status of the last scrape's failure. A failure is reported once.
    failed_with: Option<u8>,
}

impl<'a> Scraper<'a> {
    fn new(settings: &'a Settings, wanted: &Exporter) -> Self {
        let figures = Figures::new(wanted.near, Named::new(wanted.types, wanted.named.clone()));
        Self { settings, connection: None, figures, failures: 0, failed_with: None }
    }

    /// Asks the store, and returns the page.
    fn scrape(&mut self) -> String {
        let begun = Instant::now();
        let is_up = match self.list() {
            Ok(locks) => {
                if self.failed_with.take().is_some() {
                    inform("the server tells of its locks again", None);
                }
                let until = Instant::now() + timing::WAITING_WITHIN;
                let store = self.connection.as_ref().and_then(|connection| connection.store.directory());
                self.figures.count(
                    &locks,
                    |key| {
                        let left = until.saturating_duration_since(Instant::now());
                        let parties = (!left.is_zero()).then(|| store?.parties(key, left).ok());
                        parties.flatten().map(|parties| parties.waiting)
                    },
                    begun,
                );
                true
            }
            Err(failure) => {
                self.failures += 1;
                // The message may differ from one scrape to the next while a server is away.
                if self.failed_with.replace(failure.status) != Some(failure.status) {
                    say(&failure.message);
                }
                false
            }
        };
        self.figures.page(is_up, begun.elapsed(), self.failures)
    }

    /// Lists all locks, on a thread that goes on alone if the store takes too long.
    fn list(&mut self) -> Result<Vec<ListedLock>, Failure> {
        let (tell, told) = mpsc::channel();
        let (settings, connection) = (self.settings.clone(), self.connection.clone());
        let until = Instant::now() + timing::LISTED_WITHIN;
        let list = move || {
            let _ = tell.send(list(&settings, connection, until));
        };
        threads::start("dlock-list", list)?;
        let left = until.saturating_duration_since(Instant::now());
        let (connection, locks) = told.recv_timeout(left).unwrap_or_else(|_| Err(late()))?;
        self.connection = Some(connection);
        Ok(locks?)
    }
}

/// Connects if necessary, and lists all locks. Fails if a part of the store does not answer, because the list would be incomplete, and at `until`,
/// when nobody waits for the list any more.
fn list(settings: &Settings, connection: Option<Connection>, until: Instant) -> Result<Listed, Failure> {
    let connection = connection.map_or_else(|| connect(settings), Ok)?;
    let is_late = || Instant::now() >= until;
    let locks = connection.generator.list("*").take_while(|_| !is_late()).collect();
    if is_late() { Err(late()) } else { Ok((connection, locks)) }
}

fn late() -> Failure {
    let within = timing::LISTED_WITHIN;
    Failure::new(UNREACHABLE, format!("the server has not told of its locks within {within:?}"))
}

fn connect(settings: &Settings) -> Result<Connection, Failure> {
    let store = settings.builder()?.connect()?.shared();
    Ok(Connection { generator: Settings::asking(Store::Other(Arc::clone(&store)))?, store })
}
