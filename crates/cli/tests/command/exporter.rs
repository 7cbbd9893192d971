//! `dlock exporter`, read by a parser of Prometheus' format.

use super::kit::{KEY, Kit, KitOn, Running, Site, Start, on_each_site};
use super::support::Proxy;
use super::support::crew::{HANG, eventually};
use super::support::proxy::Way;
use openmetrics_parser::prometheus::parse_prometheus;
use openmetrics_parser::{MetricNumber, PrometheusValue};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A running exporter.
struct Exporter {
    running: Running,
    address: String,
}

impl Exporter {
    fn start<S: Site>(kit: &KitOn<S>, options: &[&str]) -> Self {
        let words = [&["exporter", "--listen", "127.0.0.1:0"], options].concat();
        let mut command = kit.dlock(&words);
        // The port is on standard error, which is read while it runs.
        command.stderr(fs::File::create(kit.path("said")).unwrap());
        let running = command.start_quietly();
        let line = kit.line_of("said");
        let address = line.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
        Self { running, address }
    }

    /// Sends a request, and returns the status and the body.
    fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn has_thread(&self, name: &str) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.running.pid().as_raw_nonzero())).unwrap();
        // A thread may have ended meanwhile.
        let mut names =
            threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default());
        names.any(|found| found.trim_end() == name)
    }

    /// The figures by name and type: `dlock_store_held_locks JOB`.
    fn scrape(&self) -> BTreeMap<String, f64> {
        let (status, page) = self.ask("GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n");
        assert_eq!(status, 200, "{page}");
        let read = parse_prometheus(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
        let mut figures = BTreeMap::new();
        for (name, family) in &read.families {
            assert!(!family.help.is_empty(), "{name}");
            for sample in family.iter_samples() {
                let number = match &sample.value {
                    PrometheusValue::Gauge(number) => number,
                    PrometheusValue::Counter(counter) => &counter.value,
                    other => panic!("{name}: {other:?}"),
                };
                let value = match number {
                    MetricNumber::Float(value) => *value,
                    MetricNumber::Int(value) => *value as f64,
                };
                let labels = sample.get_labelset().unwrap();
                let of = labels.get_label_value("lock_type").map_or_else(String::new, |of| format!(" {of}"));
                figures.insert(format!("{name}{of}"), value);
            }
        }
        figures
    }
}

#[test]
fn it_serves_what_is_held_and_who_waits_by_type() {
    let kit = Kit::new();
    let exporter = Exporter::start(&kit, &["--near", "5m", "--type", "LONG_NAME"]);
    let none = exporter.scrape();
    assert_eq!((none["dlock_store_up"], none.contains_key("dlock_store_held_locks JOB")), (1.0, false), "{none:?}");
    let _holder = kit.holder(&["--lease", "1h"]);
    let _waiter = kit.queued(&[], "true");
    kit.dlock(&["run", "--at-least", "1h", "KEPT", "x", "--", "true"]).end().expect(0);
    for (key, lease) in [("LONG_NAME_x", "3600000"), ("LONG_NAME_y", "60000"), ("quo\"te\\_x", "3600000")] {
        kit.server.run::<()>(&["SET", &format!("DLOCK_{key}"), "host-1-ff-1", "PX", lease]);
    }
    let first = exporter.scrape();
    for (figure, value) in [
        ("held_locks JOB", 1.0),
        ("waiting_processes JOB", 1.0),
        ("leases_near_end JOB", 0.0),
        ("delayed_locks JOB", 0.0),
        ("held_locks KEPT", 0.0),
        ("delayed_locks KEPT", 1.0),
        ("held_locks LONG_NAME", 2.0),
        ("leases_near_end LONG_NAME", 1.0),
        ("oldest_wait_seconds LONG_NAME", 0.0),
        ("held_locks quo\"te\\", 1.0),
        ("up", 1.0),
        ("scrape_failures_total", 0.0),
    ] {
        assert_eq!(first.get(&format!("dlock_store_{figure}")), Some(&value), "{figure}: {first:?}");
    }
    let least = first["dlock_store_least_lease_left_seconds LONG_NAME"];
    assert!(least > 0.0 && least <= 60.0, "{least}");
    assert!(!first.contains_key("dlock_store_least_lease_left_seconds KEPT"), "nobody holds it: {first:?}");
    // A type that has been seen stays.
    kit.server.run::<()>(&["DEL", "DLOCK_LONG_NAME_x", "DLOCK_LONG_NAME_y"]);
    let last = exporter.scrape();
    assert_eq!(last["dlock_store_held_locks LONG_NAME"], 0.0);
    assert_eq!(served(&last), in_the_table(), "the manual names what is served");
}

on_each_site!(
    a_wait_goes_on_when_the_holder_changes,
    a_lease_of_which_nobody_knows_the_rest_is_not_counted_as_far_from_its_end,
);

fn a_wait_goes_on_when_the_holder_changes<S: Site>(kit: &mut KitOn<S>) {
    let exporter = Exporter::start(kit, &[]);
    kit.server.hold(KEY, "host-1-ff-1");
    let _waiter = kit.queued(&[], "true");
    let ages = |figures: &BTreeMap<String, f64>| {
        assert_eq!(figures["dlock_store_waiting_processes JOB"], 1.0, "{figures:?}");
        ["hold", "wait"].map(|of| figures[&format!("dlock_store_oldest_{of}_seconds JOB")])
    };
    let [held, waited] = ages(&exporter.scrape());
    thread::sleep(Duration::from_millis(50));
    let later = ages(&exporter.scrape());
    assert!(later[0] >= held + 0.05 && later[1] >= waited + 0.05, "{later:?}");
    // The same lock, held by somebody else.
    kit.server.hold(KEY, "host-1-ff-2");
    let [held, waited] = ages(&exporter.scrape());
    assert!(held == 0.0 && waited > later[1], "{held} {waited}");
}

/// The names of the figures.
fn served(figures: &BTreeMap<String, f64>) -> BTreeSet<String> {
    figures.keys().map(|figure| figure.split(' ').next().unwrap().to_owned()).collect()
}

fn in_the_table() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/manual/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, of_a_store) = page.split_once("\n# The figures of a store\n").unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `dlock_store_")?.split('`').next()?.to_owned());
    of_a_store.lines().filter_map(name).map(|name| format!("dlock_store_{name}")).collect()
}

#[test]
fn the_number_of_types_is_bounded() {
    let kit = Kit::new();
    let fill = "for n = 1, 1000 do redis.call('SET', 'DLOCK_T' .. n .. '_x', 'host-1-ff-' .. n, 'PX', 600000) end";
    kit.server.run::<()>(&["EVAL", fill, "0"]);
    let exporter = Exporter::start(&kit, &["--types", "10"]);
    for _ in 0..2 {
        let figures = exporter.scrape();
        let held: Vec<_> = figures.iter().filter(|(name, _)| name.starts_with("dlock_store_held_locks ")).collect();
        assert_eq!(held.len(), 11, "{held:?}");
        assert_eq!(figures["dlock_store_held_locks other"], 990.0);
        assert_eq!(held.iter().map(|(_, count)| **count).sum::<f64>(), 1000.0);
    }
}

#[test]
fn a_server_that_is_away_is_a_figure_and_is_said_once() {
    let mut kit = Kit::new();
    kit.server.kill();
    let exporter = Exporter::start(&kit, &[]);
    for failures in [1.0, 2.0] {
        let figures = exporter.scrape();
        assert_eq!(figures["dlock_store_up"], 0.0);
        assert_eq!(figures["dlock_store_scrape_failures_total"], failures);
        assert_eq!(figures.len(), 3, "nothing is known of the locks: {figures:?}");
    }
    let path = kit.path("said");
    let said = || fs::read_to_string(&path).unwrap();
    assert_eq!(said().lines().count(), 2);
    kit.server.restart();
    kit.server.run::<()>(&["SET", KEY, "host-1-ff-1", "PX", "60000"]);
    // It fails in other words.
    kit.server.signal(Signal::STOP);
    assert_eq!(exporter.scrape()["dlock_store_up"], 0.0);
    assert_eq!(said().lines().count(), 2, "{}", said());
    kit.server.signal(Signal::CONT);
    let figures = exporter.scrape();
    assert!(said().lines().count() == 3 && said().ends_with(" again\n"), "{}", said());
    assert_eq!((figures["dlock_store_up"], figures["dlock_store_held_locks JOB"]), (1.0, 1.0));
    kit.server.kill();
    assert_eq!(exporter.scrape()["dlock_store_up"], 0.0);
    kit.server.restart();
    assert_eq!(exporter.scrape()["dlock_store_up"], 1.0);
}

#[test]
fn each_request_has_an_answer() {
    let kit = Kit::new();
    let exporter = Exporter::start(&kit, &[]);
    // What a client sends that begins with TLS.
    let hello = "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{7c}";
    let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(100_000));
    let body = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n{}", "x".repeat(4_000_000));
    for (request, status) in [
        (hello, 400),
        (&long, 400),
        (&body, 405),
        ("GET /metrics HTTP/1.0\n\n", 200),
        ("GET http://host:9810/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET http://host/else HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        ("GET http://host HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET /else HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        ("nonsense\r\n\r\n", 400),
        ("GET /metrics?name=x HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ] {
        assert_eq!(exporter.ask(request).0, status, "{}", &request[..request.len().min(60)]);
    }
    let (status, body) = exporter.ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(exporter.scrape()["dlock_store_up"], 1.0);
}

/// Port scanners and browsers open connections and say nothing.
#[test]
fn scrapers_that_say_nothing_keep_nobody_waiting() {
    let kit = Kit::new();
    let exporter = Exporter::start(&kit, &[]);
    // Of many, those that came first are sent away, and not waited for. Otherwise the scrape would come after the time of all but the last ones.
    for (connections, kept) in [(20, 20), (200, 60)] {
        eventually("a scrape is answered before those that came last are sent away", || {
            let mut silent: Vec<_> = (0..connections).map(|_| TcpStream::connect(&exporter.address).unwrap()).collect();
            exporter.scrape();
            silent[connections - kept..].iter_mut().all(|stream| {
                stream.set_nonblocking(true).unwrap();
                stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            })
        });
    }
}

/// A listing has a limit of its own, and whoever asks meanwhile gets the same answer.
#[test]
fn a_server_that_hangs_is_a_figure_for_all_who_ask_meanwhile() {
    let kit = Kit::new();
    let exporter = Exporter::start(&kit, &["--io-timeout", "1h"]);
    assert_eq!(exporter.scrape()["dlock_store_up"], 1.0);
    kit.server.signal(Signal::STOP);
    let failures: Vec<_> = thread::scope(|scope| {
        let scrapers: Vec<_> = (0..6).map(|_| scope.spawn(|| exporter.scrape())).collect();
        scrapers
            .into_iter()
            .map(|scraper| {
                let figures = scraper.join().unwrap();
                assert_eq!(figures["dlock_store_up"], 0.0);
                figures["dlock_store_scrape_failures_total"]
            })
            .collect()
    });
    assert!(failures.iter().all(|count| *count < 6.0), "each has listed the locks for itself: {failures:?}");
    assert!(fs::read_to_string(kit.path("said")).unwrap().contains("within 5s"));
    kit.server.signal(Signal::CONT);
    eventually("it answers", || exporter.scrape()["dlock_store_up"] == 1.0);
}

/// Otherwise each scrape of a slow server would leave it one more listing to answer.
#[test]
fn a_listing_that_is_too_late_ends() {
    let kit = Kit::new();
    let fill = "for n = 1, 10000 do redis.call('SET', 'DLOCK_JOB_' .. n, 'host-1-ff-' .. n, 'PX', 6000000) end";
    kit.server.run::<()>(&["EVAL", fill, "0"]);
    let scans = || {
        let stats: String = kit.server.run(&["INFO", "commandstats"]);
        let of_scan = stats.split("cmdstat_scan:calls=").nth(1).and_then(|rest| rest.split(',').next());
        of_scan.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    kit.dlock(&["ls"]).end().expect(0);
    let whole = scans();
    let network = Proxy::to(kit.server.port(), Duration::ZERO);
    // A whole listing takes longer than it may, however fast the machine is: each page takes two answers.
    network.delay(Way::ToClient, Duration::from_millis(700));
    let exporter = Exporter::start(&kit, &["--io-timeout", "1m", "--url", &network.url()]);
    assert_eq!(exporter.scrape()["dlock_store_up"], 0.0);
    eventually("the listing has ended", || !exporter.has_thread("dlock-list"));
    let late = scans() - whole;
    assert!((1..whole).contains(&late), "the late listing went on: {late} SCANs, and {whole} in a whole one");
}

fn a_lease_of_which_nobody_knows_the_rest_is_not_counted_as_far_from_its_end<S: Site>(kit: &mut KitOn<S>) {
    let exporter = Exporter::start(kit, &["--near", "1h"]);
    kit.server.hold(KEY, "host-1-ff-1");
    let figures = exporter.scrape();
    assert_eq!(figures["dlock_store_held_locks JOB"], 1.0);
    let is_told = kit.server.processor().limits().remaining_known;
    for (figure, value) in [("leases_near_end", 1.0), ("least_lease_left_seconds", 600.0)] {
        let found = figures.get(&format!("dlock_store_{figure} JOB"));
        assert_eq!(found.is_some(), is_told, "{figures:?}");
        assert!(found.is_none_or(|found| (found - value).abs() < 300.0), "{figure}: {figures:?}");
    }
}

#[test]
fn what_it_cannot_do_is_said_at_once() {
    let kit = Kit::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    kit.dlock(&["exporter", "--listen", &address]).end().expect(70).says(["cannot listen on"]);
    kit.dlock(&["exporter", "--url", "nonsense://x"]).end().expect(64);
    for address in ["9810", "localhost", ":9810", "127.0.0.1:99999"] {
        kit.dlock(&["exporter", "--listen", address]).end().expect(64).says(["HOST:PORT"]);
    }
}
