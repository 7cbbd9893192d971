//! What locks cost that are held: memory, threads, renewals; and whether they are renewed in time.

use crate::Plan;
use crate::support::pin::Place;
use crate::support::plot::{Line, Picture};
use crate::support::proxy::Proxy;
use crate::support::raw::Address;
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::worker::{Worker, argument, cpu, listen, say};
use redis_dlock::{DLockConfig, DLockGenerator};
use rustix::time::ClockId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What came of so many locks, held for some leases.
struct Figures {
    count: u64,
    lease: Duration,
    bytes_per_lock: f64,
    threads: u64,
    renewals_per_second: f64,
    probes_per_second: f64,
    /// Of one core.
    client_cpu: f64,
    server_cpu: f64,
    /// The least that was left of a lease, as a part of it.
    least_left: f64,
    lost: u64,
}

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Held locks");
    section.paragraph(
        "A process holds so many locks for a lease and more. Memory: resident, per lock, with its name, handle and guard. Threads: those of this crate. Renewals and probes: as the server \
         counts them. CPU: of one core. Least left: how much of a lease was left, at the least, when it was renewed (looked at 128 times a lease).",
    );
    let (counts, lease) =
        plan.size((&[1, 1000, 10_000, 100_000][..], Duration::from_secs(30)), (&[1, 200], Duration::from_secs(1)));
    let near: Vec<_> = counts.iter().map(|count| measure(*count, lease, Duration::ZERO)).collect();
    let (count, lease) = plan.size((10_000, Duration::from_secs(10)), (200, Duration::from_secs(1)));
    let far = measure(count, lease, Duration::from_millis(25));
    let row = |place: &str, figures: &Figures| {
        let each =
            [figures.bytes_per_lock, figures.threads as f64, figures.renewals_per_second, figures.probes_per_second];
        let shares =
            [figures.client_cpu, figures.server_cpu, figures.least_left].map(|share| format!("{:.2} %", 100.0 * share));
        let mut row = vec![figures.count.to_string(), place.to_owned(), format!("{} s", figures.lease.as_secs())];
        row.extend(each.map(number).into_iter().chain(shares).chain([figures.lost.to_string()]));
        row
    };
    let mut rows: Vec<_> = near.iter().map(|figures| row("loopback", figures)).collect();
    rows.push(row("50 ms away", &far));
    let header = [
        "locks",
        "server",
        "lease",
        "bytes a lock",
        "threads",
        "renewals/s",
        "probes/s",
        "client's CPU",
        "server's CPU",
        "least left",
        "lost",
    ];
    section.table(&header, &rows);
    for figures in &near {
        // The first page of everything counts for one lock alone.
        if figures.count >= 1000 {
            section.target(
                format!("{} locks: bytes a lock", figures.count),
                Limit::AtMost(1024.0),
                figures.bytes_per_lock,
            );
        }
        section.target(format!("{} locks: threads", figures.count), Limit::AtMost(4.0), figures.threads as f64);
        section.target(format!("{} locks: lost", figures.count), Limit::AtMost(0.0), figures.lost as f64);
    }
    section.target(format!("{count} locks, 50 ms away: lost"), Limit::AtMost(0.0), far.lost as f64);
    let lines = vec![
        line("memory a lock, bytes", &near, |figures| figures.bytes_per_lock),
        line("client's CPU a lock, µs each second", &near, |figures| 1e6 * figures.client_cpu / figures.count as f64),
        line("server's CPU a lock, µs each second", &near, |figures| 1e6 * figures.server_cpu / figures.count as f64),
    ];
    let title = "What a held lock costs";
    let picture = Picture { title, x: "locks held", y: "each", log_x: true, lines };
    picture.draw(&plan.directory.join("held.svg"));
    section.picture("held.svg", title);
    section
}

fn line(name: &str, all: &[Figures], what: fn(&Figures) -> f64) -> Line {
    let points = all.iter().filter(|figures| figures.count > 1).map(|figures| (figures.count as f64, what(figures)));
    Line { name: name.to_owned(), points: points.collect() }
}

fn measure(count: u64, lease: Duration, each_way: Duration) -> Figures {
    let server = Server::start(Place::Anywhere);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let port = if each_way.is_zero() { server.port() } else { proxy.port() };
    let arguments = [u64::from(port), count, lease.as_millis() as u64].map(|number| number.to_string());
    let mut worker = Worker::start(Place::Anywhere, "hold", &arguments.each_ref().map(String::as_str));
    let bytes = worker.hear()[0];
    // Taking them one after the other so far away would take longer than holding them.
    proxy.delay(each_way);
    let mut admin = server.admin();
    admin.forget_stats();
    let (begin, before) = (Instant::now(), admin.cpu());
    worker.tell(&[]);
    let [threads, cpu, least_left, lost] = worker.hear().try_into().unwrap();
    let (seconds, server_cpu) = (begin.elapsed().as_secs_f64(), admin.cpu().saturating_sub(before));
    // Only extensions set an expiry, while nobody waits.
    let (scripts, renewals) = (admin.stats("evalsha").0, admin.stats("pexpire").0);
    Figures {
        count,
        lease,
        bytes_per_lock: bytes as f64 / count as f64,
        threads,
        renewals_per_second: renewals as f64 / seconds,
        probes_per_second: (scripts - renewals) as f64 / seconds,
        client_cpu: cpu as f64 / 1e9 / seconds,
        server_cpu: server_cpu.as_secs_f64() / seconds,
        least_left: least_left as f64 / lease.as_nanos() as f64,
        lost,
    }
}

/// A worker that holds locks, and tells what came of them.
pub(crate) fn hold() {
    let (count, lease): (u64, u64) = (argument(1), argument(2));
    let lease = Duration::from_millis(lease);
    let lost = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&lost);
    let builder = DLockGenerator::builder().on_lost(move |_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    let url = Address::Tcp(argument(0)).url();
    let generator = builder.build(redis_dlock::RedisLockProcessor::connect(&url).unwrap()).unwrap();
    let lock = |n: u64| generator.generate_with(DLockConfig::new("HELD", n.to_string()).with_lease(lease)).unwrap();
    let first = lock(count);
    let one = first.lock().unwrap();
    let before = resident();
    let locks: Vec<_> = (0..count).map(lock).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let bytes = resident().saturating_sub(before);
    one.unlock().unwrap();
    say(&bytes.to_string());
    listen();

    let (begin, start) = (Instant::now(), cpu_of_others());
    let mut least = lease;
    while begin.elapsed() < lease.mul_f64(1.2) {
        thread::sleep(lease / 128);
        least = guards.iter().map(|guard| guard.remaining()).min().unwrap_or_default().min(least);
    }
    // Without this thread, which only looks.
    let used = cpu_of_others().saturating_sub(start);
    let lost = lost.load(Ordering::Relaxed).max(guards.iter().filter(|guard| !guard.is_valid()).count() as u64);
    say(&format!("{} {} {} {lost}", threads(), used.as_nanos(), least.as_nanos()));
    // Giving all back takes long, and shows nothing.
    std::process::exit(0);
}

/// The processor time of the other threads. The two clocks are not read at the same moment, so it may fall by a little.
fn cpu_of_others() -> Duration {
    let own = cpu(ClockId::ThreadCPUTime);
    cpu(ClockId::ProcessCPUTime).saturating_sub(own)
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kilobytes.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    names.filter(|name| name.starts_with("dlock")).count()
}
