//! The recipes of the manual's page that the tests of the command do not run: manifests of Kubernetes, and programs that moved here from another
//! lock, each before and after. A test that lacks a tool names it, and shows nothing.
//!
//! `tests/run.sh recipes` builds the command `dlock` and sets `DLOCK`.

mod page;

use dlock_consensus::ConsulLockProcessor;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use page::file;
use redis_dlock::DLockGenerator;
use redlock::RedLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};
use tempfile::TempDir;

/// A wait that lasts so long hangs.
const HANG: Duration = Duration::from_secs(25);

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that listens on a port of the loopback interface.
struct Server {
    port: u16,
    _process: Killed,
    _directory: TempDir,
}

impl Server {
    /// Starts one, or says that its program is not there.
    fn start(program: &str, words: impl Fn(u16) -> Vec<String>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(words(port)).current_dir(directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(process) = command.spawn() else {
            skipped(program);
            return None;
        };
        let server = Self { port, _process: Killed(process), _directory: directory };
        eventually("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(server)
    }

    fn redis() -> Self {
        let program = env::var("REDIS_SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned());
        let words = |port: u16| ["--port", &port.to_string(), "--save", ""].map(str::to_owned).into();
        Self::start(&program, words).expect("a redis-server")
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Carries out a command of Redis.
    fn tell(&self, command: &str) {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        connection.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(connection).read_line(&mut answer).unwrap();
        assert!(answer.starts_with(['+', ':']), "{command}: {answer}");
    }
}

#[track_caller]
fn printed(output: Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// Runs a program, and returns what it has printed.
fn run(program: &str, argument: &str) -> String {
    printed(Command::new(program).arg(argument).output().unwrap())
}

/// Names a tool that is not there. Not by `eprintln!`: what a test that passes has printed is not shown.
fn skipped(tool: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {tool} is not there");
}

/// Whether all tools are there. Names those that are not.
fn are_there(tools: &[&str]) -> bool {
    let is_there = |tool: &&str| {
        let words = if *tool == "go" { "version" } else { "--version" };
        Command::new(tool).arg(words).output().is_ok()
    };
    let missing: Vec<_> = tools.iter().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        missing.iter().for_each(|tool| skipped(tool));
    }
    missing.is_empty()
}

/// Reads a manifest as Kubernetes' type, and writes it again: a field that the schema does not have is gone then, and one that it requires is new.
fn through<T: DeserializeOwned + Serialize>(manifest: &str) -> (Value, Option<Value>) {
    let written: Value = serde_saphyr::from_str(manifest).unwrap();
    let read = serde_json::from_value::<T>(written.clone()).ok().map(|read| serde_json::to_value(read).unwrap());
    (written, read)
}

#[test]
fn the_manifests_fit_the_schema() {
    let (job, as_read) = through::<CronJob>(file("# cronjob.yaml"));
    assert_eq!(Some(&job), as_read.as_ref());
    let (deployment, as_read) = through::<Deployment>(file("# deployment.yaml"));
    assert_eq!(Some(&deployment), as_read.as_ref());

    // What the API server refuses beyond the schema.
    assert_eq!(job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"], "Never");
    let spec = &deployment["spec"];
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);

    // The schema sees mistakes.
    for (right, wrong) in [
        ("restartPolicy:", "restartPolcy:"),
        ("backoffLimit: 2", "backoffLimit: two"),
        ("      name: dlock", "      nam: dlock"),
        ("  schedule: \"0 3 * * *\"\n", ""),
    ] {
        let manifest = file("# cronjob.yaml");
        assert!(manifest.contains(right), "{right}");
        let (written, read) = through::<CronJob>(&manifest.replacen(right, wrong, 1));
        assert_ne!(Some(written), read, "{wrong}");
    }
}

/// A machine with `dlock` and a program.
struct Machine {
    server: Server,
    home: TempDir,
}

impl Machine {
    fn new(name: &str, program: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let dlock = env::var("DLOCK").expect("the command: run tests/run.sh recipes");
        symlink(dlock, home.path().join("dlock")).unwrap();
        let path = home.path().join(name);
        fs::write(&path, program).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { server: Server::redis(), home }
    }

    /// The command of a manifest's only container, as Kubernetes starts it.
    fn container(&self, spec: &Value) -> Command {
        let container = &spec["template"]["spec"]["containers"][0];
        let words: Vec<_> =
            container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(container["env"][0]["name"], "DLOCK_URL");
        let path = format!("{}:{}", self.home.path().display(), env::var("PATH").unwrap());
        let mut command = Command::new("env");
        command.arg("--default-signal").args(words).env("PATH", path).env("DLOCK_URL", self.server.url());
        command.env("HOME", self.home.path()).current_dir(self.home.path());
        command
    }

    fn lines_of(&self, name: &str) -> usize {
        fs::read_to_string(self.home.path().join(name)).unwrap_or_default().lines().count()
    }
}

#[test]
fn two_pods_of_the_cronjob_do_the_export_once() {
    let machine = Machine::new("export-orders", "#!/bin/sh\necho \"exported $DLOCK_KEY $*\"\n");
    let (job, _) = through::<CronJob>(file("# cronjob.yaml"));
    let pod = || printed(machine.container(&job["spec"]["jobTemplate"]["spec"]).output().unwrap());
    assert_eq!(pod(), "exported DLOCK_EXPORT_nightly --all\n");
    assert_eq!(pod(), "");
}

#[test]
fn the_pod_in_reserve_begins_when_the_other_one_ends() {
    let machine = Machine::new("import-orders", "#!/bin/sh\necho in >>begun\nexec sleep 100\n");
    let (deployment, _) = through::<Deployment>(file("# deployment.yaml"));
    let pod = |log: &str| {
        let log = fs::File::create(machine.home.path().join(log)).unwrap();
        Killed(machine.container(&deployment["spec"]).stderr(log).spawn().unwrap())
    };
    let first = pod("first");
    eventually("the first pod begins", || machine.lines_of("begun") == 1);
    let second = pod("second");
    eventually("the second pod says that it waits", || machine.lines_of("second") >= 1);
    assert_eq!(machine.lines_of("begun"), 1);
    // As the kubelet does.
    let end = |mut pod: Killed| {
        assert!(Command::new("kill").args(["-TERM", &pod.0.id().to_string()]).status().unwrap().success());
        assert!(!pod.0.wait().unwrap().success());
    };
    end(first);
    eventually("the second pod begins", || machine.lines_of("begun") == 2);
    end(second);
}

#[test]
fn the_program_that_used_redisson() {
    let server = Server::redis();
    let after = || run(env!("CARGO_BIN_EXE_orders"), &server.url());
    assert!(after().starts_with("shipped, with token "));
    server.tell("SET DLOCK_ORDER_4711 other PX 60000");
    assert_eq!(after(), "somebody else ships it\n");

    if !are_there(&["mvn", "java"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let class_path = directory.path().join("class_path");
    let mut maven = Command::new("mvn");
    maven.current_dir(benches("java")).args(["-q", "-B", "dependency:build-classpath"]);
    printed(maven.arg(format!("-Dmdep.outputFile={}", class_path.display())).output().unwrap());
    let program = directory.path().join("Orders.java");
    fs::write(&program, file("// Orders.java")).unwrap();
    let before = || {
        let mut java = Command::new("java");
        java.args(["-cp", fs::read_to_string(&class_path).unwrap().trim()]).arg(&program);
        printed(java.arg(server.url()).output().unwrap())
    };
    // The new lock is taken: the two do not exclude each other.
    assert!(before().ends_with("shipped\n"));
    server.tell("HSET order-4711 other:1 1");
    server.tell("PEXPIRE order-4711 60000");
    assert!(before().ends_with("somebody else ships it\n"));
}

/// The folder of the programs of other languages, which have the same lock.
fn benches(language: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers").join(language)
}

#[test]
fn the_program_that_used_rslock() {
    let server = Server::redis();
    for program in [env!("CARGO_BIN_EXE_report_before"), env!("CARGO_BIN_EXE_report_after")] {
        assert_eq!(run(program, &server.url()), "page 1\npage 2\npage 3\n");
    }
}

#[test]
fn the_program_that_used_redlock() {
    let server = Server::redis();
    let before = || run(env!("CARGO_BIN_EXE_stock_before"), &server.url());
    let after = || run(env!("CARGO_BIN_EXE_stock_after"), &server.url());
    assert_eq!((before(), after()), ("counted\n".to_owned(), "counted\n".to_owned()));
    // Each is kept out by its own key alone.
    server.tell("SET stock other PX 60000");
    assert_eq!((before(), after()), ("somebody else counts\n".to_owned(), "counted\n".to_owned()));
    server.tell("DEL stock");
    server.tell("SET DLOCK_STOCK_all other PX 60000");
    assert_eq!((before(), after()), ("counted\n".to_owned(), "somebody else counts\n".to_owned()));
}

/// Rows of the table about redlock.
#[test]
fn redlock_loses_in_silence_and_needs_all_servers_to_answer() {
    let server = Server::redis();
    let redlock = RedLock::new(vec![server.url()]);
    let lock = redlock.lock(b"stock", 2_000).unwrap().unwrap();
    eventually("its time is over", || redlock.lock(b"stock", 60_000).unwrap().is_some());
    redlock.unlock(&lock);
    assert!(redlock.lock(b"stock", 60_000).unwrap().is_none());
    // The key of a lock that is dropped stays.
    drop(redlock.lock(b"other", 60_000).unwrap().unwrap());
    assert!(redlock.lock(b"other", 60_000).unwrap().is_none());

    let others = [Server::redis(), Server::redis()];
    let [first, second] = [&others[0], &others[1]].map(Server::url);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let with_one_away = RedLock::new(vec![first, second, format!("redis://{nobody}")]);
    assert!(with_one_away.lock(b"stock", 60_000).is_err());
}

/// A server of Consul with its own leader, and its address.
fn consul() -> Option<(Server, String)> {
    let program = env::var("CONSUL_BIN").unwrap_or_else(|_| "consul".to_owned());
    let words = |port: u16| {
        let mut words: Vec<_> =
            ["agent", "-dev", "-bind=127.0.0.1", "-log-level=error", "-dns-port=-1", "-grpc-port=-1"]
                .map(str::to_owned)
                .into();
        words.push(format!("-http-port={port}"));
        for option in ["server", "serf-lan", "serf-wan"] {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            words.push(format!("-{option}-port={free}"));
        }
        words
    };
    let server = Server::start(&program, words)?;
    let address = format!("127.0.0.1:{}", server.port);
    let peers = ["operator", "raft", "list-peers", &format!("-http-addr={address}")];
    let leader = || {
        let told = Command::new(&program).args(peers).output();
        told.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("leader"))
    };
    eventually("Consul has a leader", leader);
    Some((server, address))
}

/// Builds programs in Go, which are in files of these names.
fn build_in_go(directory: &Path, files: &[(&str, &str)]) {
    for name in ["go.mod", "go.sum"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(name);
        fs::copy(from, directory.join(name)).unwrap();
    }
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
        printed(Command::new("go").current_dir(directory).args(["build", name]).output().unwrap());
    }
}

/// A program that was started with an address, and what it has printed so far.
struct Started {
    process: Killed,
    lines: Receiver<String>,
}

impl Started {
    fn with(program: impl AsRef<OsStr>, address: &str) -> Self {
        let mut command = Command::new(program);
        let mut process = command.arg(address).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (line, lines) = channel();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        thread::spawn(move || said.map_while(Result::ok).try_for_each(|said| line.send(said)));
        Self { process: Killed(process), lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(HANG).expect("a line")
    }

    /// Closes its input, and waits for its end. Returns the rest.
    fn rest(mut self) -> Vec<String> {
        drop(self.process.0.stdin.take());
        assert!(self.process.0.wait().unwrap().success());
        self.lines.iter().collect()
    }
}

#[test]
fn the_program_that_used_consuls_api_lock() {
    let Some((_server, address)) = consul() else { return };
    let steps = ["step 1", "step 2", "step 3"];
    let after = env!("CARGO_BIN_EXE_export");
    assert_eq!(Started::with(after, &address).rest(), steps);
    if !are_there(&["go"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    build_in_go(directory.path(), &[("export.go", file("// export.go")), ("holder.go", include_str!("go/holder.go"))]);
    let [before, go_holder] = ["export", "holder"].map(|name| directory.path().join(name));
    assert_eq!(Started::with(&before, &address).rest(), steps);

    // While one of them holds, the other one waits. Whoever waits has a session.
    let generator = DLockGenerator::new(ConsulLockProcessor::new(&format!("consul://{address}")).unwrap()).unwrap();
    let lock = generator.generate("EXPORT", "nightly").unwrap();
    let guard = lock.lock().unwrap();
    let waiting = Started::with(&before, &address);
    eventually("the Go program has a session", || sessions(&address) == 2);
    thread::sleep(Duration::from_millis(300));
    assert!(waiting.lines.try_recv().is_err(), "the Go program is inside, too");
    guard.unlock().unwrap();
    assert_eq!(waiting.rest(), steps);

    let holder = Started::with(&go_holder, &address);
    assert_eq!(holder.line(), "held");
    assert!(lock.try_lock().unwrap().is_none());
    let waiting = Started::with(after, &address);
    eventually("the program waits", || lock.inspect().unwrap().waiting == 1);
    assert!(waiting.lines.try_recv().is_err(), "the new program is inside, too");
    assert_eq!(holder.rest(), [""; 0]);
    assert_eq!(waiting.rest(), steps);
}

/// How many sessions Consul has.
fn sessions(address: &str) -> usize {
    let mut connection = TcpStream::connect(address).unwrap();
    let request = format!("GET /v1/session/list HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer.matches("\"ID\":").count()
}
