//! Things that an operator, or bad luck, does to a server.

use crate::support::RedisServer;
use crate::support::crew::eventually;
use std::time::Duration;

/// Replication.
impl RedisServer {
    /// Starts a replica, and waits until it has all data.
    pub(crate) fn start_replica(&self) -> Self {
        let replica = Self::start_with(&["--replicaof", "127.0.0.1", &self.port().to_string()]);
        eventually("the replica is in step", || replica.info("replication").contains("master_link_status:up"));
        replica
    }

    /// The replica misses what its master does from now on.
    pub(crate) fn pause_replication(&self) {
        self.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    }

    /// Makes a replica a master.
    pub(crate) fn promote(&self) {
        self.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Makes a master the replica of another: it answers READONLY from now on.
    pub(crate) fn demote(&self, master: &Self) {
        self.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    }
}

/// Slowness, limits and rights.
impl RedisServer {
    /// `CLIENT PAUSE`: `ALL` commands, or `WRITE`.
    pub(crate) fn pause(&self, mode: &str, time: Duration) {
        self.run::<()>(&["CLIENT", "PAUSE", &time.as_millis().to_string(), mode]);
    }

    /// Lets the server do nothing at all for that time. It must have been started with `--enable-debug-command local`.
    pub(crate) fn sleep(&self, time: Duration) {
        self.run::<()>(&["DEBUG", "SLEEP", &time.as_secs_f64().to_string()]);
    }

    /// Makes the server answer BUSY, by a script that runs until [`kill_script`](Self::kill_script). Returns when the script runs.
    pub(crate) fn run_endless_script(&self) {
        self.config("busy-reply-threshold", "1");
        let mut connection = self.connection();
        std::thread::spawn(move || {
            let _ = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection);
        });
        let mut looking = self.connection();
        eventually("the script runs", || {
            redis::cmd("PING").exec(&mut looking).is_err_and(|error| error.code() == Some("BUSY"))
        });
    }

    pub(crate) fn kill_script(&self) {
        // This does not use `run`, because a busy server answers no handshake.
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        redis::cmd("SCRIPT").arg("KILL").exec(&mut connection).unwrap();
    }

    pub(crate) fn forget_scripts(&self) {
        self.run::<()>(&["SCRIPT", "FLUSH"]);
    }

    /// Closes the connections of all subscribers. Returns how many there were.
    pub(crate) fn close_inboxes(&self) -> u64 {
        self.run(&["CLIENT", "KILL", "TYPE", "pubsub"])
    }

    /// `CONFIG SET`.
    pub(crate) fn config(&self, name: &str, value: &str) {
        self.run::<()>(&["CONFIG", "SET", name, value]);
    }

    /// `ACL SETUSER`.
    pub(crate) fn set_user(&self, name: &str, rules: &[&str]) {
        self.run::<()>(&[&["ACL", "SETUSER", name], rules].concat());
    }

    pub(crate) fn pid(&self) -> u32 {
        let info = self.info("server");
        info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().parse().unwrap()
    }

    /// A section of `INFO`.
    pub(crate) fn info(&self, section: &str) -> String {
        self.run(&["INFO", section])
    }
}

#[test]
fn a_replica_that_misses_a_write_can_be_promoted() {
    let master = RedisServer::start();
    let replica = master.start_replica();
    master.run::<()>(&["SET", "a", "1"]);
    eventually("the write is there", || replica.run::<Option<String>>(&["GET", "a"]).is_some());
    replica.pause_replication();
    master.run::<()>(&["SET", "b", "1"]);
    replica.promote();
    replica.run::<()>(&["SET", "c", "1"]);
    assert_eq!(replica.run::<Option<String>>(&["GET", "b"]), None);
    master.demote(&replica);
    let refused = redis::cmd("SET").arg("d").arg("1").exec(&mut master.connection()).unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"));
}

#[test]
fn a_busy_script_can_be_killed() {
    let server = RedisServer::start();
    server.run_endless_script();
    server.kill_script();
    eventually("the script is over", || redis::cmd("PING").exec(&mut server.connection()).is_ok());
}

#[test]
fn users_and_limits_are_set_while_the_server_runs() {
    let server = RedisServer::start();
    server.set_user("dlock", &["on", ">secret", "~DLOCK*", "+@all"]);
    let denied = |words: &[&str]| {
        let url = server.url().replace("//", "//dlock:secret@");
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd(words[0])
            .arg(&words[1..])
            .exec(&mut connection)
            .err()
            .and_then(|error| error.code().map(str::to_owned))
    };
    assert_eq!(denied(&["SET", "DLOCK_x", "1"]), None);
    assert_eq!(denied(&["SET", "other", "1"]).as_deref(), Some("NOPERM"));
    server.config("maxmemory", "1");
    assert_eq!(denied(&["SET", "DLOCK_x", "1"]).as_deref(), Some("OOM"));
}
