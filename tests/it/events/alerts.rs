//! The alerts of the manual, and its dashboard: they ask for what is recorded, each alert fires, and leads to what to do.
//!
//! `promtool` is Prometheus' own: it evaluates the alerts over figures that a generator has recorded in trouble of each kind, and over those that the
//! exporter of the command has counted. `tests/run.sh promtool` builds it, and tests/run.sh leaves the test out where it is missing.

#[allow(dead_code, reason = "a part of the exporter")]
#[path = "../../../crates/cli/src/exporter/figures.rs"]
mod figures;

use super::page::{PAGE, strangers};
use crate::support::crew::{HANG, eventually, spawn_with};
use crate::support::lab::{config, wait_with};
use crate::support::process::alone;
use crate::support::time::Time;
use crossbeam_channel::bounded;
use figures::{Figures, Named};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use redis_dlock::port::LockProcessor;
use redis_dlock::{CancelToken, DLockGenerator, ManualClock, MemoryLockProcessor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

/// How many seconds pass between two scrapes.
const INTERVAL: u64 = 15;

/// How many scrapes there are in good times, and as many in trouble.
const SCRAPES: u64 = 20;

/// The rules of the page.
fn rules() -> &'static str {
    PAGE.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).expect("the rules").0
}

fn alerts_in_order() -> impl Iterator<Item = &'static str> {
    rules().lines().filter_map(|line| line.trim().strip_prefix("- alert: "))
}

fn alerts() -> BTreeSet<&'static str> {
    alerts_in_order().collect()
}

#[test]
fn the_rules_ask_for_figures_that_exist() {
    assert!(alerts().len() >= 6);
    let strange = strangers(rules());
    assert!(strange.is_empty(), "{strange:?}");
}

/// The run book has a chapter of the alerts.
#[test]
fn each_alert_leads_to_its_section_of_the_run_book() {
    const RUN_BOOK: &str = include_str!("../../../src/manual/run_book.md");
    const ADDRESS: &str = "https://docs.rs/redis-dlock/latest/redis_dlock/manual/run_book/index.html#";
    let (_, chapter) = RUN_BOOK.split_once("\n# When an alert rings\n").expect("the chapter");
    let sections: BTreeSet<_> = chapter.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, alerts());
    let addresses = rules().lines().filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    let expected = alerts_in_order().map(|alert| format!("\"{ADDRESS}{}\"", alert.to_lowercase()));
    assert_eq!(addresses.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// The queries of the dashboard.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().expect("a query")).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../../src/manual/dashboard.json")).expect("it is JSON")
}

#[test]
fn the_dashboard_queries_figures_that_exist() {
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() >= 12, "{queries:?}");
    for query in queries {
        let strange = strangers(query);
        assert!(strange.is_empty(), "{query}: {strange:?}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
}

/// What is scraped of one place, scrape by scrape.
struct Scrapes {
    instance: &'static str,
    scrapes: Vec<BTreeMap<String, String>>,
}

impl Scrapes {
    fn of(instance: &'static str) -> Self {
        Self { instance, scrapes: Vec::new() }
    }

    /// Adds as many scrapes of a page as there are in good times, or in trouble.
    fn take(&mut self, page: &str) {
        let samples = page.lines().filter(|line| line.starts_with("dlock_"));
        let scrape: BTreeMap<_, _> = samples
            .map(|line| line.rsplit_once(' ').expect("a sample"))
            .map(|(series, value)| (series.to_owned(), value.to_owned()))
            .collect();
        assert!(!scrape.is_empty(), "nothing is recorded");
        self.scrapes.extend((0..SCRAPES).map(|_| scrape.clone()));
    }

    /// The same as `promtool` reads it.
    fn series(&self) -> String {
        let names: BTreeSet<_> = self.scrapes.iter().flat_map(BTreeMap::keys).collect();
        let mut text = String::new();
        for series in names {
            let values: Vec<_> =
                self.scrapes.iter().map(|scrape| scrape.get(series).map_or("_", |value| value)).collect();
            let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
            let series = format!("{name}{{instance=\"{}\",{labels}}}", self.instance);
            let _ = writeln!(text, "      - series: '{series}'\n        values: '{}'", values.join(" "));
        }
        text
    }
}

/// The buckets of the page's example.
fn buckets() -> Vec<f64> {
    let (_, rest) = PAGE.split_once("const BUCKETS").and_then(|(_, rest)| rest.split_once("= [")).expect("the buckets");
    rest.split(']').next().unwrap().split(',').map(|bucket| bucket.trim().parse().unwrap()).collect()
}

/// A generator in good times, and then in trouble of each kind.
fn recorded() -> Scrapes {
    let matches = Matcher::Prefix("dlock_".to_owned());
    let recorded =
        PrometheusBuilder::new().set_buckets_for_metric(matches, &buckets()).unwrap().install_recorder().unwrap();
    let clock = Arc::new(ManualClock::new());
    let (store, time) = (MemoryLockProcessor::with_clock(clock.clone()), Time::by_hand(clock));
    let (leave, left) = bounded::<()>(0);
    let builder = DLockGenerator::builder().metrics(true).on_event(move |_| left.recv().unwrap_or_default());
    let generator = time.set(builder).build(store.clone()).unwrap();
    let lock = generator.generate_with(config("x", 60_000)).unwrap();
    let mut scrapes = Scrapes::of("program");
    (0..10).for_each(|_| lock.lock().unwrap().unlock().unwrap());
    scrapes.take(&recorded.render());

    // Calls wait in vain, and one waits for long.
    let guard = lock.lock_owned().unwrap();
    for _ in 0..5 {
        let waiter = spawn_with(&lock, move |other| other.try_lock_for(Duration::from_secs(1)).unwrap().is_none());
        assert!(time.join(waiter));
    }
    let waiter = spawn_with(&lock, move |lock| lock.lock().unwrap().unlock().unwrap());
    time.until("it waits", || lock.queue_length() == 1);
    time.pass(Duration::from_secs(20));
    guard.unlock().unwrap();
    waiter.join();
    // The function is too slow.
    let other = generator.generate("OTHER", "x").unwrap();
    (0..4096).for_each(|_| other.lock().unwrap().unlock().unwrap());
    assert!(generator.dropped_events() > 0);
    // The store is away when a lease is to be extended, and the lease is lost. It stays away.
    let guard = lock.lock().unwrap();
    store.set_reachable(false);
    time.until("it is lost", || !guard.is_valid());
    assert!(guard.unlock().is_err());
    assert!(lock.try_lock().is_err());
    scrapes.take(&recorded.render());
    drop(leave);
    scrapes
}

/// Two exporters in good times. Then a process holds a lock of the first one's store for seven hours, while another one waits, and the store of the
/// second one is away.
fn exported() -> [Scrapes; 2] {
    let store = MemoryLockProcessor::new();
    let generator = DLockGenerator::new(store.clone()).unwrap();
    let lock = generator.generate_with(config("x", 60_000)).unwrap();
    let _guard = lock.lock_owned().unwrap();
    let cancel = CancelToken::new();
    let waiter =
        wait_with(&DLockGenerator::new(store.clone()).unwrap().generate_with(config("x", 60_000)).unwrap(), &cancel, 1);
    eventually("it is in the queue", || lock.inspect().unwrap().waiting == 1);
    let locks: Vec<_> = generator.list("*").map(Result::unwrap).collect();
    let ask = |key: &str| Some(store.directory()?.parties(key, HANG).ok()?.waiting);
    let mut figures = Figures::new(Duration::from_secs(3), Named::new(100, Vec::new()));
    let scrapes = ["exporter", "another"].map(|instance| {
        let (mut scrapes, begun) = (Scrapes::of(instance), Instant::now());
        figures.count(&locks, ask, begun);
        scrapes.take(&figures.page(true, Duration::ZERO, 0));
        figures.count(&locks, ask, begun + Duration::from_secs(7 * 3600));
        let is_up = instance == "exporter";
        scrapes.take(&figures.page(is_up, Duration::ZERO, u64::from(!is_up)));
        scrapes
    });
    cancel.cancel();
    assert!(!waiter.join());
    scrapes
}

mod promtool {
    use super::*;

    /// Runs `promtool` with a file in its directory.
    fn promtool(directory: &tempfile::TempDir, arguments: &[&str]) {
        let program = env::var("PROMTOOL_BIN").unwrap_or_else(|_| "promtool".to_owned());
        let output = Command::new(program)
            .args(arguments)
            .current_dir(directory.path())
            .output()
            .expect("promtool: `./tests/run.sh promtool` builds it");
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{out}\n{err}");
    }

    #[test]
    fn every_alert_fires_in_trouble_and_none_does_before() {
        alone("it::events::alerts::promtool::every_alert_fires_in_trouble_and_none_does_before", || {
            let start = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
            let [exporter, another] = exported();
            let series = [recorded(), exporter, another].map(|scrapes| scrapes.series()).concat();
            let (good, bad) = ((SCRAPES - 1) * INTERVAL, (2 * SCRAPES - 1) * INTERVAL);
            let expected: String = alerts()
                .iter()
                .map(|alert| format!("          - labels: '{{alertname=\"{alert}\"}}'\n            value: 1\n"))
                .collect();
            let test = format!(
                "rule_files: [rules.yml]\n\
                 evaluation_interval: {INTERVAL}s\n\
                 tests:\n\
                 \x20 - interval: {INTERVAL}s\n\
                 \x20   start_timestamp: {start}\n\
                 \x20   input_series:\n{series}\
                 \x20   promql_expr_test:\n\
                 \x20     - expr: 'count by (alertname) (ALERTS)'\n\
                 \x20       eval_time: {good}s\n\
                 \x20       exp_samples: []\n\
                 \x20     - expr: 'max by (alertname) (ALERTS{{alertstate=\"firing\"}})'\n\
                 \x20       eval_time: {bad}s\n\
                 \x20       exp_samples:\n{expected}"
            );
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("rules.yml"), rules()).unwrap();
            fs::write(directory.path().join("test.yml"), test).unwrap();
            promtool(&directory, &["check", "rules", "rules.yml"]);
            promtool(&directory, &["test", "rules", "test.yml"]);
        });
    }

    /// A query is an expression of `PromQL`, as the rules of a file are.
    #[test]
    fn the_queries_of_the_dashboard_are_sound() {
        let dashboard = dashboard();
        let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
        for (n, query) in queries(&dashboard).into_iter().enumerate() {
            let query = query.replace("$__rate_interval", "5m").replace("$lock_type", ".*");
            let _ = writeln!(rules, "      - record: query_{n}\n        expr: {}", Value::from(query));
        }
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("rules.yml"), rules).unwrap();
        promtool(&directory, &["check", "rules", "rules.yml"]);
    }
}
