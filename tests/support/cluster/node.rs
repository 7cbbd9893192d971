//! One node.

use super::super::{Proxy, RedisServer, free_port};
use super::ports::{self, BUS};
use super::view;
use super::{Plan, Seen};
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

/// One node. Killed when dropped.
pub(crate) struct Node {
    server: RedisServer,
    /// The network by which clients and replicas reach it, if the plan wants one. The bus does not go by it.
    pub(crate) way: Option<Proxy>,
    id: String,
    /// The port that it listens on for clients and replicas: with TLS if the plan wants that.
    listens_on: u16,
    is_stopped: bool,
    /// Whether it belongs to the cluster.
    pub(super) is_member: bool,
}

/// A node announces its loopback address, so none has to learn it. Replicas do not wait for others that might come.
const ARGS: [&str; 6] =
    ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--repl-diskless-sync-delay", "0"];

impl Node {
    /// Starts a node that knows no other.
    pub(super) fn start(plan: &Plan) -> Self {
        // Its port is announced, so it is there before the server.
        let way = plan.networked.then(|| Proxy::to(0, Duration::ZERO));
        let mut listens_on = 0;
        let server = RedisServer::start_by(&[], || {
            let port = ports::free_pair();
            let mut args: Vec<_> = ARGS.map(str::to_owned).to_vec();
            let mut add = |name: &str, value: String| args.extend([format!("--{name}"), value]);
            add("cluster-node-timeout", plan.node_timeout_ms.to_string());
            add("cluster-port", (port + BUS).to_string());
            listens_on = plan.tls.as_ref().map_or(port, |_| free_port());
            for (name, value) in plan.tls.iter().flat_map(|files| files.settings(listens_on)) {
                add(name, value);
            }
            if plan.tls.is_some() {
                add("tls-cluster", "yes".to_owned());
            }
            if let Some(way) = &way {
                let name = if plan.tls.is_some() { "cluster-announce-tls-port" } else { "cluster-announce-port" };
                add(name, way.port().to_string());
                add("cluster-announce-bus-port", (port + BUS).to_string());
            }
            args.extend(plan.args.iter().cloned());
            (port, args)
        });
        if let Some(way) = &way {
            way.lead_to(listens_on);
        }
        let id = server.run(&["CLUSTER", "MYID"]);
        Self { server, way, id, listens_on, is_stopped: false, is_member: false }
    }

    /// Its server, without the network and without TLS.
    pub(crate) fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Its id in the cluster.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Reads its id anew, after it was made to forget it.
    pub(super) fn learn_id(&mut self) {
        self.id = self.server.run(&["CLUSTER", "MYID"]);
    }

    /// The port that the cluster names to clients: of its network if it has one.
    pub(crate) fn port(&self) -> u16 {
        self.way.as_ref().map_or(self.listens_on, Proxy::port)
    }

    /// The port by which other nodes send it keys: with TLS if the plan wants that, past its network.
    pub(super) fn port_past_the_network(&self) -> u16 {
        self.listens_on
    }

    pub(super) fn bus_port(&self) -> u16 {
        self.server.port() + BUS
    }

    /// A new connection for plain commands, past its network.
    pub(crate) fn connection(&self) -> redis::Connection {
        self.server.connection()
    }

    /// Runs one command on a connection of its own.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.server.run(words)
    }

    /// Runs one command; `None` if the node is down or stopped, refuses it, or does not answer within a second.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        if self.is_up() { self.server.ask(words) } else { None }
    }

    /// Whether it was neither killed nor stopped.
    pub(crate) fn is_up(&self) -> bool {
        self.server.is_running() && !self.is_stopped
    }

    /// Ends it as a power cut does.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
        self.is_stopped = false;
    }

    /// Lets it stand still (SIGSTOP). Its sockets stay open.
    pub(crate) fn stop(&mut self) {
        self.server.signal(Signal::STOP);
        self.is_stopped = true;
    }

    /// Lets it go on after it stood still (SIGCONT).
    pub(crate) fn go_on(&mut self) {
        self.server.signal(Signal::CONT);
        self.is_stopped = false;
    }

    /// Starts it again with what it knew of the cluster (`nodes.conf`), and waits until it answers. Its keys are gone, unless the
    /// arguments of the plan ask for persistence.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.server.restart();
    }

    /// Starts it again with empty hands: without keys, with a new id, and it knows no other node. The others still look for the old
    /// id. See [`join`](super::Cluster::join).
    pub(crate) fn restart_as_a_stranger(&mut self) {
        self.kill();
        let dir = self.server.file("");
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { fs::remove_dir_all(entry).unwrap() } else { fs::remove_file(entry).unwrap() }
        }
        self.server.restart();
        self.is_member = false;
        self.learn_id();
    }

    /// What it wrote down of itself last; for nodes that do not answer.
    pub(super) fn last_words(&self) -> Seen {
        let text = fs::read_to_string(self.server.file("nodes.conf")).expect("a node of a cluster has this file");
        view::parse(&text).into_iter().find(|seen| seen.is("myself")).expect("itself")
    }

    /// A field of `INFO replication`. `None` if it does not answer, or has none of this name.
    pub(super) fn replication(&self, name: &str) -> Option<String> {
        let info: String = self.ask(&["INFO", "replication"])?;
        info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned()))
    }

    /// Whether it is a replica, and has what its master had when they met.
    pub(super) fn is_synced(&self) -> bool {
        self.replication("master_link_status").as_deref() == Some("up")
    }

    /// How many replicas the master has that get what it executes.
    pub(super) fn replicas_online(&self) -> Option<usize> {
        Some(self.ask::<String>(&["INFO", "replication"])?.matches("state=online").count())
    }

    /// Forgets all scripts, on this node alone.
    pub(crate) fn flush_scripts(&self) {
        self.run::<()>(&["SCRIPT", "FLUSH", "SYNC"]);
    }
}
