//! How other programs lock on the same servers, by the HTTP client that this crate uses, on connections that are kept.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis_dlock::UnguardedLock;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use ureq::Agent;
use ureq::http::Request;

/// A lock that is taken and given back.
pub(super) trait Way: Send {
    fn lock(&mut self);
    fn unlock(&mut self);
}

/// Ours.
impl Way for UnguardedLock {
    fn lock(&mut self) {
        Self::lock(self).unwrap();
    }

    fn unlock(&mut self) {
        Self::unlock(self).unwrap();
    }
}

/// `consul lock`, and `api.Lock` of Consul's package for Go: a session for each lock. It looks at the key before it takes it, which is left
/// out here, and so are the renewals of its session.
pub(super) struct ApiLock {
    servers: Servers,
    key: String,
    session: String,
}

/// `etcdctl lock`, and `concurrency.Mutex` of etcd's package for Go: a lease for each lock, and an entry of its own for each who wants it. It
/// renews its lease at once, which is left out here.
pub(super) struct EtcdctlLock {
    servers: Servers,
    prefix: String,
    lease: String,
    key: String,
}

/// A server, and connections to it.
struct Servers {
    agent: Agent,
    address: String,
}

impl Servers {
    fn at(address: &str) -> Self {
        let settings = Agent::config_builder().http_status_as_error(false).proxy(None);
        Self { agent: settings.build().into(), address: address.to_owned() }
    }

    /// Asks, and returns the answer's index and body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u64, String) {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::builder().method(method).uri(uri).body(body.to_owned()).unwrap();
        let mut answer = self.agent.run(request).unwrap();
        let index = answer.headers().get("x-consul-index").and_then(|index| index.to_str().ok()?.parse().ok());
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().unwrap();
        assert!([200, 404].contains(&status), "{path}: {status}: {text}");
        (index.unwrap_or(0), text)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(&self.ask("POST", path, &body.to_string()).1).unwrap()
    }
}

impl ApiLock {
    pub(super) fn new(address: &str, name: &str) -> Self {
        Self { servers: Servers::at(address), key: format!("raw/{name}/.lock"), session: String::new() }
    }
}

impl Way for ApiLock {
    fn lock(&mut self) {
        let (_, made) = self.servers.ask("PUT", "/v1/session/create", r#"{"Name":"Consul API Lock","TTL":"15s"}"#);
        let made: Value = serde_json::from_str(&made).unwrap();
        made["ID"].as_str().unwrap().clone_into(&mut self.session);
        let acquire = format!("/v1/kv/{}?flags=3304740253564472344&acquire={}", self.key, self.session);
        while self.servers.ask("PUT", &acquire, "").1.trim() != "true" {
            let mut index = 0;
            loop {
                let (now, entry) = self.servers.ask("GET", &format!("/v1/kv/{}?index={index}&wait=15s", self.key), "");
                if !entry.contains("\"Session\"") {
                    break;
                }
                index = now;
            }
        }
    }

    fn unlock(&mut self) {
        let release = format!("/v1/kv/{}?flags=3304740253564472344&release={}", self.key, self.session);
        assert_eq!(self.servers.ask("PUT", &release, "").1.trim(), "true");
        self.servers.ask("PUT", &format!("/v1/session/destroy/{}", self.session), "");
    }
}

impl EtcdctlLock {
    pub(super) fn new(address: &str, name: &str) -> Self {
        let prefix = format!("raw/{name}/");
        Self { servers: Servers::at(address), prefix, lease: String::new(), key: String::new() }
    }

    fn end(&self) -> String {
        STANDARD.encode(self.prefix.replace("/", "0").replacen('0', "/", 1))
    }

    /// The entry before this one, if there is one: its key, and a revision at which it was there.
    fn predecessor(&self, own: u64) -> Option<(String, u64)> {
        let range = json!({
            "key": STANDARD.encode(&self.prefix), "range_end": self.end(), "limit": 1,
            "max_create_revision": (own - 1).to_string(), "sort_order": "DESCEND", "sort_target": "CREATE",
        });
        let found = self.servers.post("/v3/kv/range", &range);
        let key = found["kvs"][0]["key"].as_str()?.to_owned();
        Some((key, number(&found["header"]["revision"])))
    }

    /// Waits until an entry that was there at a revision is deleted.
    fn wait_for_end(&self, key: &str, since: u64) {
        let create = json!({ "create_request": { "key": key, "start_revision": (since + 1).to_string() } });
        let uri = format!("http://{}/v3/watch", self.servers.address);
        let request = Request::post(uri).body(create.to_string()).unwrap();
        let events = BufReader::new(self.servers.agent.run(request).unwrap().into_body().into_reader());
        let is_deleted = |line: &String| line.contains("\"DELETE\"");
        assert!(events.lines().map_while(Result::ok).any(|line| is_deleted(&line)), "the watch has ended");
    }
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

impl Way for EtcdctlLock {
    fn lock(&mut self) {
        let granted = self.servers.post("/v3/lease/grant", &json!({ "TTL": "60" }));
        granted["ID"].as_str().unwrap().clone_into(&mut self.lease);
        self.key = STANDARD.encode(format!("{}{:x}", self.prefix, self.lease.parse::<u64>().unwrap()));
        let owner = json!({ "request_range": {
            "key": STANDARD.encode(&self.prefix), "range_end": self.end(), "limit": 1,
            "sort_order": "ASCEND", "sort_target": "CREATE",
        } });
        let put = json!({ "request_put": { "key": self.key, "lease": self.lease } });
        let is_absent = json!({ "key": self.key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" });
        let made = self.servers.post("/v3/kv/txn", &json!({ "compare": [is_absent], "success": [put, owner] }));
        if made["responses"][1]["response_range"]["kvs"][0]["key"] == self.key.as_str() {
            return;
        }
        let own = number(&made["header"]["revision"]);
        while let Some((key, since)) = self.predecessor(own) {
            self.wait_for_end(&key, since);
        }
    }

    fn unlock(&mut self) {
        self.servers.post("/v3/kv/deleterange", &json!({ "key": self.key }));
        self.servers.post("/v3/lease/revoke", &json!({ "ID": self.lease }));
    }
}
