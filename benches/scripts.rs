//! What the scripts cost the server, beside the least that a lock can cost: `SET NX PX` and a compare-and-delete script.
//!
//! Starts a redis-server of its own and prints two Markdown tables. `--smoke` runs a short round.
#![allow(missing_docs, dead_code, unused_imports, clippy::unwrap_used, clippy::print_stdout)]

#[path = "../src/redis/frame.rs"]
mod frame;
#[path = "../src/redis/script.rs"]
mod script;
/// What the scripts' module asks of the library's: whether a mistake is built in.
mod sync {
    macro_rules! mutant {
        ($name:ident) => {
            false
        };
    }
    pub(crate) use mutant;
}

use frame::Framer;
use script::{ACQUIRE, Call, EXTEND, POLL, PROBE, Packed, RELEASE, Script};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pairs in one write.
const BATCH: usize = 64;
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

struct Server(Child, u16);

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = ["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"];
        let child = Command::new("redis-server").args(arguments).stdout(Stdio::null()).spawn().unwrap();
        let server = Self(child, port);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection that counts replies and looks at none, after the first round.
struct Client {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn run(&mut self, packed: &Packed) {
        self.socket.write_all(&packed.bytes).unwrap();
        let (mut left, mut framer) = (packed.replies, Framer::default());
        let (mut start, mut chunk) = (0, [0u8; 65_536]);
        while left > 0 {
            match framer.end(&self.buffer[start..]).unwrap() {
                Some(end) => {
                    assert_ne!(
                        self.buffer[start],
                        b'-',
                        "{}",
                        String::from_utf8_lossy(&self.buffer[start..start + end])
                    );
                    start += end;
                    left -= 1;
                }
                None => {
                    self.buffer.drain(..start);
                    start = 0;
                    let n = self.socket.read(&mut chunk).unwrap();
                    assert!(n > 0);
                    self.buffer.extend_from_slice(&chunk[..n]);
                }
            }
        }
        self.buffer.drain(..start);
    }

    fn words(&mut self, words: &[&str]) {
        let mut packed = Packed::default();
        packed.words(words);
        self.run(&packed);
    }
}

const KEYS: [&str; 4] = ["DLOCK_bench_key", "DLOCK:1:{7}:queue:DLOCK_bench_key", "DLOCK:1:fence", ""];
const LOCKER: &str = "bench-host-4242-0123456789abcdef01234567-1";

fn call(script: &'static Script, key_count: usize, args: [&'static str; 4], arg_count: usize) -> Call<'static> {
    let args = [args[0], args[1], args[2], args[3], "", ""];
    Call { script, keys: KEYS, key_count, args, arg_count, slack: (key_count == 3).then_some(arg_count) }
}

fn acquire() -> Call<'static> {
    call(&ACQUIRE, 3, [LOCKER, "30000", "1", ""], 3)
}

fn release() -> Call<'static> {
    call(&RELEASE, 3, [LOCKER, "30000", "", ""], 2)
}

/// The calls again and again in one write, with the slack of a connection that has had its first number.
fn repeat(calls: &[Call<'_>]) -> Packed {
    let mut packed = Packed::default();
    for _ in 0..BATCH {
        calls.iter().for_each(|call| packed.push(call, false));
    }
    for at in packed.slack_at.clone() {
        packed.bytes[at..at + 5].copy_from_slice(b"10000");
    }
    packed
}

/// The plain attempt in place of the script, as `src/redis/plain.rs` has it.
fn plain_attempts() -> Packed {
    let mut packed = Packed::default();
    for _ in 0..BATCH {
        packed.words(&["SET", KEYS[0], LOCKER, "NX", "PX", "30000"]);
        packed.words(&["LLEN", KEYS[1]]);
        packed.words(&["INCR", KEYS[2]]);
        packed.words(&["GET", KEYS[0]]);
        packed.push(&release(), false);
    }
    for at in packed.slack_at.clone() {
        packed.bytes[at..at + 5].copy_from_slice(b"10000");
    }
    packed
}

/// Microseconds of processor time that the server's main thread has used.
fn server_cpu(admin: &mut redis::Connection) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query(admin).unwrap();
    let value =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse::<f64>().unwrap();
    (value("used_cpu_user_main_thread:") + value("used_cpu_sys_main_thread:")) * 1e6
}

fn plain_pairs(sha: &str) -> Packed {
    let mut packed = Packed::default();
    for _ in 0..BATCH {
        packed.words(&["SET", KEYS[0], LOCKER, "NX", "PX", "30000"]);
        packed.words(&["EVALSHA", sha, "1", KEYS[0], LOCKER]);
    }
    packed
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds a call of a command since the last RESETSTAT, as the server counts them.
fn usec_per_call(admin: &mut redis::Connection, command: &str) -> f64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(admin).unwrap();
    let line = stats.lines().find(|l| l.starts_with(&format!("cmdstat_{command}:"))).unwrap();
    line.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let (rounds, batches) = if smoke { (5, 5) } else { (41, 60) };
    let server = Server::start();
    let socket = TcpStream::connect(("127.0.0.1", server.1)).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut client = Client { socket, buffer: Vec::new() };
    let mut admin = redis::Client::open(format!("redis://127.0.0.1:{}", server.1)).unwrap().get_connection().unwrap();
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(COMPARE_AND_DELETE).query(&mut admin).unwrap();

    let extend = call(&EXTEND, 3, [LOCKER, "30000", "0", ""], 3);
    let poll = call(&POLL, 3, [LOCKER, "30000", "", ""], 2);
    let probe = call(&PROBE, 1, [LOCKER, "", "", ""], 1);
    // Load all, then one pair: the fence is there.
    let mut load = Packed::default();
    [acquire(), poll, extend, probe, release()].iter().for_each(|call| load.push(call, true));
    client.run(&load);

    // Each script alone: what surrounds it is run in writes of its own, and not counted.
    let (mut set, mut delete) = (Vec::new(), Vec::new());
    let mut scripts: Vec<(&str, Vec<f64>)> =
        ["acquire", "poll", "extend", "probe", "release"].map(|name| (name, Vec::new())).into();
    for _ in 0..rounds {
        let mut pairs = [Vec::new(), Vec::new()];
        // One free key after another, so that an acquire and a release are each on their common path.
        let names: Vec<String> = (0..BATCH * 8).map(|n| format!("DLOCK_bench_{n}")).collect();
        let queues: Vec<String> = names.iter().map(|name| format!("DLOCK:1:{{7}}:queue:{name}")).collect();
        let each = |call: Call<'static>| {
            let mut packed = Packed::default();
            for (name, queue) in names.iter().zip(&queues) {
                packed.push(&Call { keys: [name, queue, KEYS[2], ""], ..call }, false);
            }
            for at in packed.slack_at.clone() {
                packed.bytes[at..at + 5].copy_from_slice(b"10000");
            }
            packed
        };
        for (i, call) in [acquire(), poll, extend, probe, release()].into_iter().enumerate() {
            client.words(&["CONFIG", "RESETSTAT"]);
            client.run(&each(call));
            scripts[i].1.push(usec_per_call(&mut admin, "evalsha"));
        }
        let mut plain = [Packed::default(), Packed::default()];
        for name in &names {
            plain[0].words(&["SET", name, LOCKER, "NX", "PX", "30000"]);
            plain[1].words(&["EVALSHA", &sha, "1", name, LOCKER]);
        }
        for ((packed, command), pairs) in plain.iter().zip(["set", "evalsha"]).zip(&mut pairs) {
            client.words(&["CONFIG", "RESETSTAT"]);
            client.run(packed);
            pairs.push(usec_per_call(&mut admin, command));
        }
        set.extend(&pairs[0]);
        delete.extend(&pairs[1]);
    }
    println!("| command, common path | µs a call in the server |\n|---|---|");
    println!("| `SET NX PX` | {:.2} |\n| get-compare-del script | {:.2} |", median(set), median(delete));
    for (name, values) in scripts {
        println!("| {name}.lua | {:.2} |", median(values));
    }

    let variants = [plain_pairs(&sha), repeat(&[acquire(), release()]), plain_attempts()];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (packed, times) in variants.iter().zip(&mut times) {
            let start = server_cpu(&mut admin);
            for _ in 0..batches {
                client.run(packed);
            }
            times.push((server_cpu(&mut admin) - start) / (batches * BATCH) as f64);
        }
    }
    let [floor, script, plain] = times.map(median);
    println!(
        "\n| acquire + release, {BATCH} pairs in one write | µs of the server's processor a pair | relative |\n|---|---|---|"
    );
    for (name, time) in [
        ("`SET NX PX` + get-compare-del", floor),
        ("acquire.lua + release.lua", script),
        ("`SET NX PX`, `LLEN`, `INCR`, `GET` + release.lua", plain),
    ] {
        println!("| {name} | {time:.2} | {:.2} |", time / floor);
    }
}
