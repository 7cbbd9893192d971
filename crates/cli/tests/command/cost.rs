//! What `dlock run` costs beside the bare command.

use super::kit::{Kit, Start};
use std::env;
use std::fs;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

/// Forwards one connection after another, and tells when each began to send after the other side had sent: a turn of the conversation.
fn count_turns(server: u16, turns: &Sender<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let turns = turns.clone();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (turns, mut client) = (turns.clone(), client.unwrap());
            thread::spawn(move || {
                let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (mut request, mut reply) = ([0; 65_536], [0; 65_536]);
                let (mut replies, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    while let Ok(n @ 1..) = replies.read(&mut reply) {
                        let _ = to_client.write_all(&reply[..n]);
                    }
                });
                while let Ok(n @ 1..) = client.read(&mut request) {
                    let _ = turns.send(());
                    let _ = server.write_all(&request[..n]);
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

/// The most round trips of a run.
const MOST: usize = 5;

/// How many runs a slow machine has to show one that is in time.
const RUNS: usize = 40;

/// Each time that the client writes is one round trip at most. What comes later than 100 ms after the start, on a slow machine, is no part of the
/// start: so it is enough if one of some runs has no more.
#[test]
fn a_free_lock_costs_five_round_trips_at_most() {
    let kit = Kit::new();
    // The server has seen the scripts.
    kit.run(&[], "true").end().expect(0);
    let (sender, turns) = channel();
    let url = format!("redis://127.0.0.1:{}/", count_turns(kit.server.port(), &sender));
    for options in [&[][..], &["--reason", "export"]] {
        let until_the_command = || {
            let running = kit.run(options, "echo > begun; while ! test -e go; do sleep 0.01; done");
            let running = { running }.env("DLOCK_URL", &url).start();
            kit.line_of("begun");
            let count = turns.try_iter().count();
            fs::write(kit.path("go"), "").unwrap();
            running.end().expect(0);
            ["begun", "go"].iter().for_each(|name| fs::remove_file(kit.path(name)).unwrap());
            turns.try_iter().for_each(drop);
            count
        };
        let all = || {
            kit.run(options, "true").env("DLOCK_URL", &url).end().expect(0);
            turns.try_iter().count()
        };
        let least = |count: &dyn Fn() -> usize| (0..RUNS).map(|_| count()).find(|&count| count <= MOST);
        let (Some(until_the_command), Some(all)) = (least(&until_the_command), least(&all)) else {
            panic!("each of {RUNS} runs makes more than {MOST} round trips")
        };
        eprintln!("{until_the_command} round trips until the command begins, {all} in all");
        assert!(until_the_command >= 2, "not all are counted");
    }
    kit.expect_free();
}

/// Prints how many milliseconds `dlock run … -- true` and `flock … true` take more than `true`, by turns, so that all have the same machine. For a
/// release build: `cargo test --release -p dlock-cli --test command -- cost::milliseconds --ignored --nocapture`. `DLOCK` names another program,
/// such as that of `crates/cli/package.sh`.
#[test]
#[ignore = "measures"]
fn milliseconds() {
    let kit = Kit::new();
    let time = |command: &mut Command| {
        let start = Instant::now();
        let status = command.stdin(Stdio::null()).status().unwrap();
        assert!(black_box(status).success());
        start.elapsed().as_secs_f64() * 1e3
    };
    let program = env::var_os("DLOCK").unwrap_or_else(|| env!("CARGO_BIN_EXE_dlock").into());
    let (mut dlock, mut flock, mut bare) = (Command::new(program), Command::new("flock"), Command::new("true"));
    dlock.args(["run", "JOB", "x", "--", "true"]).env("DLOCK_URL", kit.server.url());
    flock.arg(kit.path("file")).arg("true");
    time(&mut dlock);
    let (mut of_dlock, mut of_flock, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..300 {
        let bare = time(&mut bare);
        of_dlock.push(time(&mut dlock) - bare);
        of_flock.push(time(&mut flock) - bare);
        without.push(bare);
    }
    for (name, times) in [
        ("true", &mut without),
        ("flock … true, more than that", &mut of_flock),
        ("dlock run … -- true", &mut of_dlock),
    ] {
        times.sort_by(f64::total_cmp);
        let (fast, median, slow) = (times[times.len() / 10], times[times.len() / 2], times[times.len() / 10 * 9]);
        eprintln!("{name}: {median:.2} ms (a tenth {fast:.2} at most, another {slow:.2} at least)");
    }
}
