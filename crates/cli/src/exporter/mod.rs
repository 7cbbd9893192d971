//! `dlock exporter`: the figures of all locks of a store, for Prometheus.
//!
//! Each scrape lists the locks. The main thread has that done, one scrape at a time, for the threads that serve the scrapers. Whoever asks while the
//! locks are listed gets the same page: else scrapers would wait for one another while the store hangs. Nothing is asked between scrapes. If the
//! store is away, or has not told of its locks in time, the page of that scrape says so.

mod figures;
mod http;

use crate::args::Exporter;
use crate::settings::Settings;
use crate::status::{Failure, UNREACHABLE, say};
use crate::timing;
use figures::{Figures, Named};
use redis_dlock::{DLockGenerator, Error, ListedLock};
use std::io;
use std::iter;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

pub(crate) fn serve(settings: &Settings, wanted: &Exporter) -> Result<u8, Failure> {
    // What is wrong with the URL is said at once.
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
    let thread = thread::Builder::new().name("dlock-serve".to_owned()).spawn(move || http::serve(&listener, page));
    thread.map_err(|error| Failure::system("cannot start a thread", error))?;
    say(&format!("serving http://{address}/metrics"));
    let mut scraper = Scraper::new(settings, wanted);
    while let Ok(give) = asked.recv() {
        let page = scraper.scrape();
        // Who waits is settled before the first one has its page: that one may change something, and ask again.
        let waiting: Vec<_> = iter::once(give).chain(asked.try_iter()).collect();
        for give in waiting {
            let _ = give.send(page.clone());
        }
    }
    Ok(0)
}

/// The locks of a store, and the client that has asked for them.
type Listed = (DLockGenerator, Result<Vec<ListedLock>, Error>);

/// What asks the store.
struct Scraper<'a> {
    settings: &'a Settings,
    generator: Option<DLockGenerator>,
    figures: Figures,
    failures: u64,
    /// The status of what the last scrape has failed with: that is said once.
    failed_with: Option<u8>,
}

impl<'a> Scraper<'a> {
    fn new(settings: &'a Settings, wanted: &Exporter) -> Self {
        let figures = Figures::new(wanted.near, Named::new(wanted.types, wanted.named.clone()));
        Self { settings, generator: None, figures, failures: 0, failed_with: None }
    }

    /// Asks the store, and returns the page.
    fn scrape(&mut self) -> String {
        let begun = Instant::now();
        let listed = self.list();
        let took = begun.elapsed();
        let locks = match listed {
            Ok(locks) => {
                if self.failed_with.take().is_some() {
                    say("the server tells of its locks again");
                }
                Some(locks)
            }
            Err(failure) => {
                self.failures += 1;
                // The words for a server that is away may change from one scrape to the next.
                if self.failed_with.replace(failure.status) != Some(failure.status) {
                    say(&failure.message);
                }
                None
            }
        };
        self.figures.page(locks.as_deref(), begun, took, self.failures)
    }

    /// Lists all locks, on a thread that goes on alone if the store takes too long.
    fn list(&mut self) -> Result<Vec<ListedLock>, Failure> {
        let (tell, told) = mpsc::channel();
        let (settings, generator) = (self.settings.clone(), self.generator.clone());
        let list = move || {
            let _ = tell.send(list(&settings, generator));
        };
        let thread = thread::Builder::new().name("dlock-list".to_owned()).spawn(list);
        thread.map_err(|error| Failure::system("cannot start a thread", error))?;
        let late = |_| {
            let within = timing::LISTED_WITHIN;
            Failure::new(UNREACHABLE, format!("the server has not told of its locks within {within:?}"))
        };
        let (generator, locks) = told.recv_timeout(timing::LISTED_WITHIN).map_err(late)??;
        self.generator = Some(generator);
        Ok(locks?)
    }
}

/// Lists all locks, and connects before that if it must. The locks of a store of which a part does not answer are not whole, so this fails.
fn list(settings: &Settings, generator: Option<DLockGenerator>) -> Result<Listed, Failure> {
    let generator = generator.map_or_else(|| settings.connect(), Ok)?;
    let locks = generator.list("*").collect();
    Ok((generator, locks))
}
