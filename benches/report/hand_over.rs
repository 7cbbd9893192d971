//! Handing the lock over from process to process, against a bare message from process to process.

use crate::Plan;
use crate::support::pin::{Place, SETTINGS};
use crate::support::plot::{Line, Picture};
use crate::support::raw::{Address, Raw};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{median, percentile, ratio};
use crate::support::worker::{Worker, argument, listen, now, say};
use redis_dlock::{DLockGenerator, RedisLockProcessor};
use std::thread;
use std::time::Duration;

/// How long a process has the lock, or the word.
pub(crate) const HOLD: Duration = Duration::from_millis(2);

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Hand-over between two processes");
    section.paragraph(
        "Two processes take turns, each for 2 ms. Ours: microseconds from before the holder's `unlock()` to the return of the other's `lock()`. Message: from before a \
         bare `PUBLISH` to its arrival at the other, which subscribes on a bare connection.",
    );
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (setting, server, clients) in SETTINGS {
        let [messages, ours] = measure(plan, server, clients);
        let medians = [&messages, &ours].map(|rounds| rounds.iter().map(|times| median(times)).collect::<Vec<_>>());
        let all = [messages.concat(), ours.concat()];
        let p99 = [percentile(&all[0], 99.0), percentile(&all[1], 99.0)];
        let relative = [ratio(&medians[1], &medians[0]), p99[1] / p99[0]];
        rows.push(
            [setting.to_owned(), all[1].len().to_string()]
                .into_iter()
                .chain([median(&all[0]), median(&all[1]), relative[0], p99[0], p99[1], relative[1]].map(number))
                .collect(),
        );
        section.target(format!("{setting}: hand-over against a message, median"), Limit::AtMost(1.5), relative[0]);
        section.target(format!("{setting}: hand-over against a message, p99"), Limit::AtMost(3.0), relative[1]);
        lines.extend(
            ["message", "hand-over"].into_iter().zip(&all).map(|(name, times)| distribution(name, setting, times)),
        );
    }
    let header =
        ["", "hand-overs", "message: median", "hand-over", "relative", "message: p99", "hand-over", "relative"];
    section.table(&header, &rows);
    let title = "Hand-over between processes: how many are at most so late";
    let picture = Picture { title, x: "microseconds", y: "share", log_x: true, lines };
    picture.draw(&plan.directory.join("hand-over.svg"));
    section.picture("hand-over.svg", title);
    section
}

fn distribution(name: &str, setting: &str, times: &[f64]) -> Line {
    let points = (0..=200).map(|i| (percentile(times, f64::from(i) / 2.0), f64::from(i) / 200.0));
    Line { name: format!("{name}, {setting}"), points: points.collect() }
}

/// The times of each round, of messages and of hand-overs.
fn measure(plan: &Plan, server: Place, clients: Place) -> [Vec<Vec<f64>>; 2] {
    let server = Server::start(server);
    let port = server.port().to_string();
    let mut talkers = ["0", "1"].map(|n| Worker::start(clients, "talk", &[&port, n]));
    let mut lockers = Taking::begin(clients, &server.tcp().url(), 0);
    let window = plan.size(1_000_000_000, 100_000_000);
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..=plan.rounds {
        rounds[0].push(for_a_while(&mut talkers, window).into_iter().map(micros).collect());
        rounds[1].push(lockers.turns(window));
    }
    // The first is for warming up.
    rounds.map(|rounds| rounds.into_iter().skip(1).collect())
}

/// Lets two workers work until the time is over, and returns what they say.
fn for_a_while(workers: &mut [Worker; 2], window: u64) -> Vec<u64> {
    let until = now() + window;
    workers.iter_mut().for_each(|worker| worker.tell(&[until]));
    workers.iter_mut().map(Worker::hear).collect::<Vec<_>>().concat()
}

/// Two processes that take turns.
pub(crate) struct Taking([Worker; 2]);

impl Taking {
    /// Starts them, with that many acknowledgements by replicas.
    pub(crate) fn begin(clients: Place, url: &str, acks: u32) -> Self {
        Self::begin_job(clients, "hand-over", &[url, &acks.to_string()])
    }

    /// Starts them with another job, and these arguments before the process's number.
    pub(crate) fn begin_job(clients: Place, job: &str, arguments: &[&str]) -> Self {
        Self(["0", "1"].map(|n| Worker::start(clients, job, &[arguments, &[n]].concat())))
    }

    /// Lets them take turns for a while. Returns how many microseconds each hand-over took.
    pub(crate) fn turns(&mut self, window: u64) -> Vec<f64> {
        hand_overs(&for_a_while(&mut self.0, window))
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// From token, process, beginning and end of all holds: the times between holds of different processes.
pub(crate) fn hand_overs(holds: &[u64]) -> Vec<f64> {
    let mut holds: Vec<_> = holds.chunks_exact(4).collect();
    holds.sort_unstable();
    holds.windows(2).filter(|two| two[0][1] != two[1][1]).map(|two| micros(two[1][2] - two[0][3])).collect()
}

/// A client for which that many replicas must acknowledge.
pub(crate) fn generator(url: &str, acks: u32) -> DLockGenerator {
    let builder = RedisLockProcessor::builder(url).unwrap();
    DLockGenerator::new(builder.replica_acks(acks, Duration::from_millis(100)).connect().unwrap()).unwrap()
}

/// A worker that locks and unlocks.
pub(crate) fn lock_in_turn() {
    let acks: u32 = argument(1);
    let generator = generator(&argument::<String>(0), acks);
    // The pairs of processes are not to meet.
    let lock = generator.generate("BENCH", format!("hand-over-{acks}")).unwrap();
    let me: u64 = argument(2);
    loop {
        let until = listen()[0];
        let mut holds = Vec::new();
        while now() < until {
            let guard = lock.lock().unwrap();
            let begin = now();
            thread::sleep(HOLD);
            let (token, end) = (guard.fencing_token(), now());
            guard.unlock().unwrap();
            holds.extend([token, me, begin, end].map(|number| number.to_string()));
        }
        say(&holds.join(" "));
    }
}

/// A worker that sends messages and hears those of the other.
pub(crate) fn talk() {
    let address = Address::Tcp(argument(0));
    let me: usize = argument(1);
    let (mine, others) = (format!("talk-{me}"), format!("talk-{}", 1 - me));
    let (mut subscriber, mut publisher) = (Raw::connect(&address), Raw::connect(&address));
    subscriber.command(&["SUBSCRIBE", &mine]);
    let mut publish = |word: &str| publisher.command(&["PUBLISH", &others, word]);
    loop {
        let until = listen()[0];
        let mut times = Vec::new();
        // Somebody has to begin, when the other listens.
        while me == 0 && publish(&now().to_string()) != ":1\r\n" {
            thread::sleep(HOLD);
        }
        // Who finds that the time is over says 0; the other one says it, too, and both stop.
        let mut is_over = false;
        loop {
            let message = subscriber.reply(|message| String::from_utf8_lossy(message).into_owned());
            let sent: u64 = message.lines().nth(6).unwrap().parse().unwrap();
            if sent == 0 {
                if !is_over {
                    publish("0");
                }
                break;
            }
            times.push((now() - sent).to_string());
            thread::sleep(HOLD);
            is_over = now() >= until;
            publish(&if is_over { 0 } else { now() }.to_string());
        }
        say(&times.join(" "));
    }
}
