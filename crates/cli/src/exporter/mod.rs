//! `dlock exporter`: the figures of all locks of a store, for Prometheus.
//!
//! Each scrape lists the locks. The main thread does that, one scrape at a time, for the threads that serve the scrapers. Nothing is asked
//! between scrapes. If the store is away, the page of that scrape says so.

mod figures;
mod http;

use crate::args::Exporter;
use crate::settings::Settings;
use crate::status::{Failure, say};
use figures::{Figures, Named};
use redis_dlock::{DLockGenerator, Error, ListedLock};
use std::io;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// How many scrapers are served at once. One that says nothing keeps one of these threads for a while.
const SERVED: usize = 4;

pub(crate) fn serve(settings: &Settings, wanted: &Exporter) -> Result<u8, Failure> {
    // What is wrong with the URL is said at once.
    settings.builder()?;
    let cannot = |error: io::Error| Failure::system(&format!("cannot listen on {}", wanted.listen), error);
    let listener = TcpListener::bind(&wanted.listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let (ask, asked) = mpsc::channel::<mpsc::Sender<String>>();
    for _ in 0..SERVED {
        let (listener, ask) = (listener.try_clone().map_err(cannot)?, ask.clone());
        let page = move || {
            let (give, page) = mpsc::channel();
            ask.send(give).ok()?;
            page.recv().ok()
        };
        thread::spawn(move || http::serve(&listener, page));
    }
    say(&format!("serving http://{address}/metrics"));
    let mut scraper = Scraper::new(settings, wanted);
    for give in asked {
        // Whoever has asked waits for the page.
        let _ = give.send(scraper.scrape());
    }
    Ok(0)
}

/// What asks the store.
struct Scraper<'a> {
    settings: &'a Settings,
    generator: Option<DLockGenerator>,
    figures: Figures,
    failures: u64,
    /// What the last scrape has failed with: it is said once.
    failed_with: Option<String>,
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
                self.failed_with = None;
                Some(locks)
            }
            Err(failure) => {
                self.failures += 1;
                if self.failed_with.as_ref() != Some(&failure.message) {
                    say(&failure.message);
                    self.failed_with = Some(failure.message);
                }
                None
            }
        };
        self.figures.page(locks.as_deref(), begun, took, self.failures)
    }

    /// Lists all locks. The locks of a store of which a part does not answer are not whole, so this fails.
    fn list(&mut self) -> Result<Vec<ListedLock>, Failure> {
        let generator = match self.generator.take() {
            Some(generator) => generator,
            None => self.settings.connect()?,
        };
        let locks = generator.list("*").collect::<Result<Vec<_>, Error>>();
        self.generator = Some(generator);
        Ok(locks?)
    }
}
