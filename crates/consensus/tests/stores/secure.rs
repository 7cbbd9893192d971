//! Connections that are encrypted, and users with and without rights.

use crate::certificates::{authority, certificate, write};
use crate::support::crew::{eventually, spawn};
use crate::support::ports::free_port;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis_dlock::port::{AcquireOutcome, Claim, ExtendOutcome, Limit, LockProcessor, Operations, Outcome, Request};
use redis_dlock::{DLockConfig, DLockGenerator, Error};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Far longer than any of these tests.
const LONG: Duration = Duration::from_secs(120);

/// Certificates of one authority, as files, and as texts for a client.
struct Papers {
    directory: TempDir,
    root: String,
    client: (String, String),
    files: [String; 3],
}

impl Papers {
    fn new() -> Self {
        let (directory, authority) = (tempfile::tempdir().unwrap(), authority("authority"));
        let (chain, key) = certificate(&authority, "localhost");
        let file = |name, text: &str| write(directory.path(), name, text);
        let files = [file("ca.pem", &authority.pem()), file("server.pem", &chain), file("server.key", &key)];
        Self { root: authority.pem(), client: certificate(&authority, "client"), files, directory }
    }
}

/// Waits until a store answers.
fn answers(store: &impl LockProcessor) {
    eventually("the server answers", || store.inspect("k", LONG).is_ok());
}

/// Two clients pass a lock on. The second one hears of it in its inbox.
fn is_handed_over(store: impl Fn() -> Box<dyn LockProcessor>) {
    let clients = [(); 2].map(|()| DLockGenerator::new(store()).unwrap());
    let [one, other] = clients.each_ref().map(|client| {
        client.generate_with(DLockConfig::new("SECURE", "x").with_lease(Duration::from_secs(30))).unwrap()
    });
    let guard = one.lock().unwrap();
    let waiter = spawn(move || other.lock().unwrap().unlock().unwrap());
    let looking = store();
    eventually("it waits", || looking.inspect(one.key(), LONG).unwrap().waiting == 1);
    guard.unlock().unwrap();
    waiter.join();
}

/// An attempt fails with an error that shows no secret. Returns what it says.
fn refusal(store: &impl LockProcessor) -> Error {
    let claim = Claim::new("k", "h-1-c0ffee", "h-1-c0ffee-1", Duration::from_secs(30));
    let error = store.acquire(&claim, Duration::from_secs(20)).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("sesame"), "{error:?}");
    error
}

mod etcd {
    use super::*;
    use crate::consensus::configured::etcd as server;
    use dlock_consensus::EtcdLockProcessor;

    #[cfg(feature = "tls")]
    #[test]
    fn a_lock_over_tls_with_a_client_certificate() {
        let (papers, port) = (Papers::new(), free_port());
        let [root, chain, key] = &papers.files;
        let options = ["--cert-file", chain, "--key-file", key, "--trusted-ca-file", root, "--client-cert-auth"];
        let _server = server(papers.directory.path(), &format!("https://127.0.0.1:{port}"), &options);
        let builder = || EtcdLockProcessor::builder(&format!("etcd+https://localhost:{port}")).unwrap();
        let (chain, key) = &papers.client;
        let trusting = || builder().tls_root_certificates(papers.root.as_str());
        let known = || trusting().tls_client_certificate(chain.as_str(), key.as_str()).build().unwrap();
        answers(&known());
        is_handed_over(|| Box::new(known()));
        let shown = format!("{:?}", known());
        assert!(!shown.contains("KEY"), "{shown}");
        // The server does not know the client, and the client does not know the server.
        assert!(matches!(refusal(&trusting().build().unwrap()), Error::Backend { .. }));
        let fooled = builder().tls_root_certificates(authority("another").pem()).build().unwrap();
        let error = refusal(&fooled);
        assert!(error.is_transient() && error.to_string().contains("certificate"), "{error}");
        let plain = EtcdLockProcessor::builder(&format!("etcd://localhost:{port}")).unwrap();
        let unused = plain.tls_root_certificates(papers.root.as_str()).build().unwrap_err().to_string();
        assert!(unused.contains("+https"), "{unused}");
        let no_pem = builder().tls_root_certificates("sesame").build().unwrap_err().to_string();
        assert!(no_pem.contains("PEM") && !no_pem.contains("sesame"), "{no_pem}");
    }

    /// The gateway knows users by their tokens alone.
    #[cfg(feature = "tls")]
    #[test]
    fn a_client_certificate_with_a_name_is_refused_by_name_while_users_are_enabled() {
        let (papers, port) = (Papers::new(), free_port());
        let [root, chain, key] = &papers.files;
        let options = ["--cert-file", chain, "--key-file", key, "--trusted-ca-file", root, "--client-cert-auth"];
        let _server = server(papers.directory.path(), &format!("https://127.0.0.1:{port}"), &options);
        let (chain, key) = &papers.client;
        let store = |login: &str| {
            let builder = EtcdLockProcessor::builder(&format!("etcd+https://{login}localhost:{port}")).unwrap();
            let trusting = builder.tls_root_certificates(papers.root.as_str());
            trusting.tls_client_certificate(chain.as_str(), key.as_str()).build().unwrap()
        };
        answers(&store(""));
        let files = [
            &papers.files[0],
            &write(papers.directory.path(), "client.pem", chain),
            &write(papers.directory.path(), "client.key", key),
        ];
        let etcdctl = |words: &[&str]| {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &format!("https://localhost:{port}")]);
            command.args(["--cacert", files[0], "--cert", files[1], "--key", files[2]]).args(words);
            let output = command.output().unwrap_or_else(|e| panic!("etcdctl: {e}: tests/run.sh installs it"));
            assert!(output.status.success(), "{words:?}: {output:?}");
        };
        etcdctl(&["user", "add", "root:sesame"]);
        etcdctl(&["auth", "enable"]);
        for login in ["", "root:sesame@"] {
            let error = refusal(&store(login));
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert!(error.to_string().contains("common name"), "{error}");
            // A client that waits is told, too.
            let client = DLockGenerator::new(store(login)).unwrap();
            assert!(matches!(client.generate("SECURE", "z").unwrap().lock(), Err(Error::Unsupported { .. })));
        }
    }

    #[test]
    fn a_server_without_its_gateway_is_told_by_its_option() {
        let (data, port) = (tempfile::tempdir().unwrap(), free_port());
        let address = format!("127.0.0.1:{port}");
        let _server = server(data.path(), &format!("http://{address}"), &["--enable-grpc-gateway=false"]);
        eventually("it listens", || std::net::TcpStream::connect(&address).is_ok());
        let store = || EtcdLockProcessor::new(&format!("etcd://{address}")).unwrap();
        let client = DLockGenerator::new(store()).unwrap();
        for error in [refusal(&store()), client.generate("SECURE", "x").unwrap().lock().unwrap_err()] {
            assert!(error.to_string().contains("--enable-grpc-gateway"), "{error}");
        }
    }

    fn ask(port: u16, path: &str, body: &Value) -> Option<Value> {
        let answer = ureq::post(format!("http://127.0.0.1:{port}/v3/{path}")).send(&body.to_string()).ok()?;
        serde_json::from_str(&answer.into_body().read_to_string().ok()?).ok()
    }

    #[test]
    fn users_have_the_rights_of_their_roles() {
        let (data, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut server = server(data.path(), &format!("http://127.0.0.1:{port}"), &["--bcrypt-cost", "4"]);
        let store = |login: &str| EtcdLockProcessor::new(&format!("etcd://{login}127.0.0.1:{port}/team")).unwrap();
        // While users are not enabled, a login does no harm.
        let early = store("locks:sesame@");
        answers(&early);
        let ask = |path, body: Value| ask(port, path, &body).unwrap_or_else(|| panic!("{path}"));
        for user in ["root", "locks", "other", "fewer"] {
            ask("auth/user/add", json!({ "name": user, "password": "sesame" }));
        }
        ask("auth/role/add", json!({ "name": "root" }));
        ask("auth/user/grant", json!({ "user": "root", "role": "root" }));
        // What the manual says: etcdctl role grant-permission locks readwrite team/ --prefix=true.
        ask("auth/role/add", json!({ "name": "locks" }));
        let [begin, end] = ["team/", "team0"].map(|text| STANDARD.encode(text));
        let right = json!({ "permType": "READWRITE", "key": begin, "range_end": end });
        ask("auth/role/grant", json!({ "name": "locks", "perm": right }));
        ask("auth/user/grant", json!({ "user": "locks", "role": "locks" }));
        ask("auth/role/add", json!({ "name": "fewer" }));
        let [begin, end] = ["team/k4/", "team/k40"].map(|text| STANDARD.encode(text));
        let right = json!({ "permType": "READWRITE", "key": begin, "range_end": end });
        ask("auth/role/grant", json!({ "name": "fewer", "perm": right }));
        for role in ["locks", "fewer"] {
            ask("auth/user/grant", json!({ "user": "fewer", "role": role }));
        }
        ask("auth/enable", json!({}));

        is_handed_over(|| Box::new(store("locks:sesame@")));
        assert!(early.inspect("k", LONG).is_ok());
        assert!(matches!(refusal(&store("other:sesame@")), Error::Denied { .. }));
        assert!(matches!(refusal(&store("locks:wrong@")), Error::Denied { .. }));
        let error = refusal(&store(""));
        assert!(matches!(error, Error::Denied { .. }) && error.to_string().contains("user:password@"), "{error}");
        // Who loses the right to some keys keeps the other ones, whoever is asked about first.
        let fewer = store("fewer:sesame@");
        let names = [0, 1, 2, 3, 4].map(|n| (format!("k{n}"), format!("h-1-c0ffee-{n}")));
        let claims = names.each_ref().map(|(key, locker)| Claim::new(key, "h-1-c0ffee", locker, LONG));
        for claim in &claims {
            assert!(matches!(fewer.acquire(claim, LONG), Ok(AcquireOutcome::Acquired(_))));
        }
        let as_root = |path, body: Value| {
            let token = ask("auth/authenticate", json!({ "name": "root", "password": "sesame" }))["token"].take();
            let request = ureq::post(format!("http://127.0.0.1:{port}/v3/{path}"));
            request.header("authorization", token.as_str().unwrap()).send(&body.to_string()).unwrap();
        };
        as_root("auth/user/revoke", json!({ "name": "fewer", "role": "locks" }));
        let outcomes = fewer.run(&claims.map(Request::Extend), Limit::Call(LONG));
        assert!(outcomes[..4].iter().all(|outcome| matches!(outcome, Err(Error::Denied { .. }))), "{outcomes:?}");
        assert!(matches!(outcomes[4], Ok(Outcome::Extend(ExtendOutcome::Extended(_)))), "{outcomes:?}");
        // A server that was restarted knows those tokens that it finds in its log again.
        let client = DLockGenerator::new(store("locks:sesame@")).unwrap();
        let lock = client.generate_with(DLockConfig::new("SECURE", "y").with_lease(LONG)).unwrap();
        let guard = lock.lock().unwrap();
        let (renewing, claim) = (store("locks:sesame@"), Claim::new("k9", "h-1-c0ffee", "h-1-c0ffee-9", LONG));
        assert!(matches!(renewing.acquire(&claim, LONG), Ok(AcquireOutcome::Acquired(_))));
        let listening = store("locks:sesame@");
        let opens = || listening.queue().unwrap().open_inbox("h-1-c0ffee", LONG).map(drop);
        assert!(opens().is_ok());
        server.restart();
        eventually("it answers again", || lock.is_locked().is_ok());
        guard.unlock().unwrap();
        // It forgets the tokens of a user whose password is set.
        as_root("auth/user/changepw", json!({ "name": "locks", "password": "sesame" }));
        // The first request with the old token is a renewal, whose refusal comes in a stream.
        let outcome = renewing.extend(&claim, LONG);
        assert!(matches!(outcome, Ok(ExtendOutcome::Extended(_))), "{outcome:?}");
        // The same with a watch, whose refusal comes with the status of success.
        let opened = opens();
        assert!(opened.is_ok(), "{opened:?}");
    }
}

mod consul {
    use super::*;
    use crate::consensus::configured::{MANAGER, consul as server, denying};
    use crate::support::journal;
    use dlock_consensus::ConsulLockProcessor;
    use redis_dlock::BackendFailure;

    /// The node of the server whose users have rights.
    const SERVER: &str = "server";

    #[cfg(feature = "tls")]
    #[test]
    fn a_lock_over_tls_with_a_client_certificate() {
        let (papers, port) = (Papers::new(), free_port());
        let [root, chain, key] = &papers.files;
        let https = json!({ "ca_file": root, "cert_file": chain, "key_file": key, "verify_incoming": true });
        let settings = json!({ "tls": { "https": https }, "ports": { "http": -1, "https": port } });
        let _server = server(papers.directory.path(), &settings);
        let builder = || ConsulLockProcessor::builder(&format!("consul+https://localhost:{port}")).unwrap();
        let (chain, key) = &papers.client;
        let trusting = || builder().tls_root_certificates(papers.root.as_str());
        let known = || trusting().tls_client_certificate(chain.as_str(), key.as_str()).build().unwrap();
        answers(&known());
        is_handed_over(|| Box::new(known()));
        assert!(matches!(refusal(&trusting().build().unwrap()), Error::Backend { .. }));
        let fooled = builder().tls_root_certificates(authority("another").pem()).build().unwrap();
        let error = refusal(&fooled);
        assert!(error.is_transient() && error.to_string().contains("certificate"), "{error}");
    }

    /// A token that may not register the node of our sessions, while nobody else has: a session may end while its holder lives, but keeps
    /// others out for the lease, or the lease is refused.
    fn on_the_node_of_a_server(store: &dyn Fn() -> ConsulLockProcessor, ask: &dyn Fn(&str, Value) -> Value) {
        const RIGHT: &str = "node \"dlock\" { policy = \"write\" }";
        journal::keep();
        let [one, other] = [(); 2].map(|()| DLockGenerator::new(store()).unwrap());
        let lock = |client: &DLockGenerator, name: &str, lease| {
            client.generate_with(DLockConfig::new("SECURE", name).with_lease(Duration::from_secs(lease)))
        };
        let held = lock(&one, "agent", 60).unwrap();
        let guard = held.lock().unwrap();
        // Further sessions are not warned of.
        lock(&one, "agent's", 60).unwrap().lock().unwrap().unlock().unwrap();
        assert_eq!(journal::warnings_with(RIGHT).len(), 1);
        // As if the server had been taken out of the catalog.
        let nodes = json!([{ "Node": { "Verb": "get", "Node": { "Node": "dlock" } } }]);
        assert!(ask("txn", nodes)["Errors"].is_array(), "nobody has registered the node");
        let read = json!([{ "KV": { "Verb": "get", "Key": format!("team/{}/.lock", held.key()) } }]);
        let entry = &ask("txn", read)["Results"][0]["KV"];
        ask(&format!("session/destroy/{}", entry["Session"].as_str().unwrap()), Value::Null);
        assert!(lock(&other, "agent", 60).unwrap().try_lock().unwrap().is_none(), "its lease is not over");
        eventually("its holder is told", || !guard.is_valid());
        assert!(lock(&other, "agent", 60).unwrap().try_lock().unwrap().is_none(), "its lease is not over");
        let refused = lock(&other, "longer", 61).unwrap().try_lock().unwrap_err();
        assert!(matches!(refused, Error::Denied { .. }), "{refused:?}");
        assert!(refused.to_string().contains(RIGHT) && refused.to_string().contains("61s"), "{refused}");
        // The server registers its own node again, but not at once.
        ask("catalog/deregister", json!({ "Node": SERVER }));
        let refused = lock(&other, "server's", 60).unwrap().try_lock().unwrap_err();
        assert!(matches!(refused, Error::Backend { failure: BackendFailure::NotExecuted, .. }), "{refused:?}");
        assert!(refused.to_string().contains(RIGHT), "{refused}");
    }

    #[test]
    fn tokens_have_the_rights_of_their_policies() {
        let (data, port) = (tempfile::tempdir().unwrap(), free_port());
        let _server = server(data.path(), &json!({ "acl": denying(), "node_name": SERVER, "ports": { "http": port } }));
        let store = |token: &str| ConsulLockProcessor::new(&format!("consul://{token}127.0.0.1:{port}/team")).unwrap();
        answers(&store(&format!("{MANAGER}@")));
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let ask = |path: &str, body: Value| {
            let request = agent.put(format!("http://127.0.0.1:{port}/v1/{path}")).header("x-consul-token", MANAGER);
            let answer = request.send(&body.to_string()).unwrap().into_body().read_to_string().unwrap();
            serde_json::from_str::<Value>(&answer).unwrap()
        };
        let token = |name: &str, rules: &str| {
            ask("acl/policy", json!({ "Name": name, "Rules": rules }));
            let made = ask("acl/token", json!({ "Policies": [{ "Name": name }] }));
            format!("{}@", made["SecretID"].as_str().unwrap())
        };
        // What the manual says.
        let rights = r#"key_prefix "team/" { policy = "write" } session "dlock" { policy = "write" }"#;
        let right = token("locks", &format!(r#"{rights} node "dlock" {{ policy = "write" }}"#));
        let unregistered = token("guests", &format!(r#"{rights} session_prefix "" {{ policy = "write" }}"#));
        on_the_node_of_a_server(&|| store(&unregistered), &ask);
        let poor =
            token("others", r#"key_prefix "other/" { policy = "write" } session_prefix "" { policy = "write" }"#);
        is_handed_over(|| Box::new(store(&right)));
        // Who may not see all locks is told so, and is given no list that looks whole.
        let [all, some] =
            [r#"key_prefix "team/" { policy = "read" }"#, r#"key_prefix "team/DLOCK_A" { policy = "read" }"#];
        let held = DLockGenerator::new(store(&right)).unwrap().generate("SECURE", "held").unwrap();
        let _guard = held.lock().unwrap();
        let list = |token: &str| DLockGenerator::new(store(token)).unwrap().list("*").next();
        let seen = list(&token("sees", all)).expect("a lock").unwrap();
        assert_eq!(seen.key, held.key());
        for blind in [&*token("sees-some", some), ""] {
            let denied = list(blind);
            assert!(matches!(denied, Some(Err(Error::Denied { .. }))), "{blind}: {denied:?}");
        }
        // Consul does not tell whoever has no token that something is hidden. A URL with such a key would be refused for another reason.
        for key in [held.key(), "DLOCK_a/b c..d"] {
            let denied = store("").inspect(key, LONG);
            assert!(matches!(denied, Err(Error::Denied { .. })), "{key}: {denied:?}");
        }
        let anonymous = json!({ "Policies": [{ "Name": "sees" }] });
        ask("acl/token/00000000-0000-0000-0000-000000000002", anonymous);
        for key in [held.key(), "DLOCK_a/b c..d", "DLOCK_a b /"] {
            assert_eq!(store("").inspect(key, LONG).unwrap().holder.is_some(), key == held.key(), "{key}");
        }
        ask("acl/token/00000000-0000-0000-0000-000000000002", json!({ "Policies": [] }));
        // Who may not read its inbox, or what others say to it, is told so: it would wait for messages in vain.
        let inbox = "h-1-c0ffee";
        let open = |store: &ConsulLockProcessor| store.queue().unwrap().open_inbox(inbox, LONG);
        let locks = r#"key_prefix "team/.inbox/" { policy = "deny" }"#;
        let deaf = store(&token("deaf", &format!("{rights} {locks}")));
        assert!(matches!(open(&deaf).err(), Some(Error::Denied { .. })));
        let half = format!(r#"{rights} {locks} key "team/.inbox/{inbox}" {{ policy = "write" }}"#);
        let mut heard = open(&store(&token("half-deaf", &half))).unwrap();
        assert!(store(&right).directory().unwrap().say(inbox, "k", "describe", LONG).unwrap());
        let told = heard.next(LONG);
        assert!(matches!(told, Err(Error::Denied { .. })), "{told:?}");
        for refused in [&*poor, "", "sesame@"] {
            let error = refusal(&store(refused));
            assert!(matches!(error, Error::Denied { .. }), "{refused}: {error:?}");
        }
    }
}
