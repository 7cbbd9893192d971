//! A server alone, with what a test says of encryption, users and rights.

use super::{Etcd, LOCAL, Server, program};
use crate::support::ports::free_port;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The token that may do everything where [`denying`] is the setting `acl` of Consul.
pub(crate) const MANAGER: &str = "7e0a5a1b-56f4-4a3f-9a7e-3f1c5d6b7a80";

/// Denies whatever no policy allows.
pub(crate) fn denying() -> Value {
    json!({ "enabled": true, "default_policy": "deny", "tokens": { "initial_management": MANAGER } })
}

fn begun(command: impl Fn() -> Command + Send + Sync + 'static) -> Server {
    let mut server = Server::new(String::new(), 0, |_| true, command);
    server.begin();
    server
}

/// Begins etcd for clients at this URL.
pub(crate) fn etcd(directory: &Path, url: &str, options: &[&str]) -> Server {
    let peers = format!("http://{LOCAL}:{}", free_port());
    let all = format!("s={peers}");
    let words = ["--name", "s", "--log-level", "error", "--listen-client-urls", url, "--advertise-client-urls", url];
    let of_peers = ["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers, "--initial-cluster", &all];
    let words = [&words[..], &of_peers, options].concat();
    let (words, data): (Vec<_>, _) = (words.into_iter().map(str::to_owned).collect(), directory.join("etcd"));
    begun(move || {
        let mut command = Command::new(program::<Etcd>());
        command.args(&words).arg("--data-dir").arg(&data);
        command
    })
}

/// Begins a server of Consul with further settings, which say the ports of its clients.
pub(crate) fn consul(directory: &Path, further: &Value) -> Server {
    let mut settings = json!({
        "server": true, "bootstrap": true, "bind_addr": LOCAL, "client_addr": LOCAL, "data_dir": directory.join("consul"),
        "disable_update_check": true, "log_level": "ERR", "connect": { "enabled": false },
        "performance": { "raft_multiplier": 1 },
    });
    settings.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    for name in ["serf_lan", "server"] {
        settings["ports"][name] = free_port().into();
    }
    for name in ["dns", "grpc", "grpc_tls", "serf_wan"] {
        settings["ports"][name] = (-1).into();
    }
    begun(super::consul::agent(directory, "consul", &settings))
}
