//! [`Store`] for etcd: one server for all cases, a prefix for each.

use crate::support::etcd::Etcd;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis_dlock::EtcdLockProcessor;
use redis_dlock::conformance::Store;
use redis_dlock::processor::LockProcessor;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

pub(crate) struct EtcdStore {
    server: Arc<Etcd>,
    prefix: String,
}

/// The server of the cases that run now.
static SERVER: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
static CASES: AtomicUsize = AtomicUsize::new(0);

impl EtcdStore {
    pub(crate) fn start() -> Self {
        let mut shared = SERVER.lock().unwrap();
        let server = shared.upgrade().unwrap_or_else(|| Arc::new(Etcd::start()));
        *shared = Arc::downgrade(&server);
        Self { server, prefix: format!("case{}", CASES.fetch_add(1, Ordering::SeqCst)) }
    }

    pub(crate) fn call(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}/v3/{path}", self.server.address());
        let answer = ureq::post(url).send(&body.to_string()).unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn range(&self, prefix: &str) -> Value {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end) })
    }

    fn lock(&self, key: &str) -> String {
        let key = key.replace('%', "%25").replace('/', "%2F");
        STANDARD.encode(format!("{}/{key}/.lock", self.prefix))
    }

    fn session(&self, lease: Duration) -> String {
        let answer = self.call("lease/grant", &json!({ "TTL": lease.as_secs().to_string() }));
        answer["ID"].as_str().unwrap().to_owned()
    }
}

impl Store for EtcdStore {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(EtcdLockProcessor::new(&self.server.url(&self.prefix)).unwrap())
    }

    fn delete(&self, key: &str) -> bool {
        self.call("kv/deleterange", &json!({ "key": self.lock(key) }))["deleted"] == "1"
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        let mut put = json!({ "key": self.lock(key), "value": STANDARD.encode(holder) });
        if let Some(lease) = lease {
            put["lease"] = self.session(lease).into();
        }
        self.call("kv/put", &put);
    }

    fn flush(&self) {
        self.call("kv/deleterange", &self.range(&format!("{}/", self.prefix)));
    }

    fn pass_time(&self, time: Duration) {
        // A lease is a quarter longer there, in whole seconds, and etcd looks for those that have ended every half second.
        let quarter = time + time / 4;
        std::thread::sleep(Duration::from_secs(quarter.as_secs() + 2));
    }

    fn leftovers(&self) -> Vec<String> {
        let range = self.call("kv/range", &self.range(&format!("{}/", self.prefix)));
        let keys = range["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let name = |kv: &Value| String::from_utf8(STANDARD.decode(kv["key"].as_str().unwrap()).unwrap()).unwrap();
        keys.iter().map(name).filter(|name| !name.contains("/.inbox/")).collect()
    }

    fn name(&self) -> &'static str {
        "etcd"
    }
}
