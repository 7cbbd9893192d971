//! TLS, with a certificate authority, a server and a client certificate made for the test.
#![cfg(feature = "tls")]

use crate::connecting::heals_within_one_connect;
use crate::support::certificates::{authority, certificate, write};
use crate::support::crew::{HANG, eventually};
use crate::support::{Proxy, RedisServer};
use rcgen::{CertifiedIssuer, KeyPair};
use redis_dlock::{DLockGenerator, Error, RedisBuilder, RedisLockProcessor};
use std::error::Error as _;
use std::net::TcpListener;
use std::time::Duration;
use tempfile::TempDir;

fn at(port: &str) -> RedisBuilder {
    RedisLockProcessor::builder(&format!("rediss://localhost:{port}/")).unwrap()
}

/// A server that asks its clients for a certificate of the authority, and has one for this host name.
pub(crate) struct TlsServer {
    server: RedisServer,
    port: String,
    authority: CertifiedIssuer<'static, KeyPair>,
    _dir: TempDir,
}

impl TlsServer {
    pub(crate) fn start(host: &str) -> Self {
        let authority = authority("authority");
        let (server_certificate, server_key) = certificate(&authority, host);
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let server = RedisServer::start_with(&[
            "--tls-port",
            &port,
            "--tls-cert-file",
            &write(dir.path(), "server.pem", &server_certificate),
            "--tls-key-file",
            &write(dir.path(), "server.key", &server_key),
            "--tls-ca-cert-file",
            &write(dir.path(), "ca.pem", &authority.pem()),
        ]);
        Self { server, port, authority, _dir: dir }
    }

    fn builder(&self) -> RedisBuilder {
        at(&self.port)
    }

    /// A client that trusts the server, and shows it a certificate of this authority.
    fn client_of(&self, issuer: &CertifiedIssuer<'static, KeyPair>) -> RedisBuilder {
        self.client_at(&self.port, issuer)
    }

    /// The same, by another port.
    fn client_at(&self, port: &str, issuer: &CertifiedIssuer<'static, KeyPair>) -> RedisBuilder {
        let (chain, key) = certificate(issuer, "client");
        at(port).tls_root_certificates(self.authority.pem()).tls_client_certificate(chain, key)
    }

    pub(crate) fn client_of_its_authority(&self) -> RedisBuilder {
        self.client_of(&self.authority)
    }

    fn refuses(&self, client: RedisBuilder) -> String {
        let error = client.connect().expect_err("must be refused");
        assert!(matches!(error, Error::Backend { .. }), "{error}");
        assert!(error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>), "{error:?}");
        assert!(error.to_string().contains(&self.port), "{error}");
        error.to_string()
    }
}

/// Shows: G7.
#[test]
fn locks_work_over_tls_and_are_handed_over() {
    let server = TlsServer::start("localhost");
    let [generator, other] =
        [(); 2].map(|()| DLockGenerator::new(server.client_of(&server.authority).connect().unwrap()).unwrap());
    let lock = generator.generate("TLS", "x").unwrap();
    let tokens: Vec<_> = (0..100).map(|_| lock.lock().unwrap().fencing_token()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| drop(lock.lock().unwrap())));
        }
    });

    let other = other.generate("TLS", "x").unwrap();
    let guard = lock.lock().unwrap();
    let first = guard.fencing_token();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.try_lock_for(HANG).unwrap().expect("handed over").fencing_token());
        eventually("the other waits", || server.server.run::<Vec<String>>(&["KEYS", "*:queue:*"]).len() == 1);
        guard.unlock().unwrap();
        assert!(first < waiting.join().unwrap());
    });
}

#[test]
fn a_cut_heals_within_one_connect_over_tls() {
    let server = TlsServer::start("localhost");
    let proxy = Proxy::to(server.port.parse().unwrap(), Duration::ZERO);
    let client = server.client_at(&proxy.port().to_string(), &server.authority);
    heals_within_one_connect(&proxy, client);
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let server = TlsServer::start("localhost");
    // The server asks for a certificate, and for one of its own authority.
    server.refuses(server.builder().tls_root_certificates(server.authority.pem()));
    server.refuses(server.client_of(&authority("authority")));
    // The client trusts the platform's authorities, or those it is given, and no others of the same name.
    assert!(server.refuses(server.builder()).contains("certificate"));
    let fooled = server.client_of(&server.authority).tls_root_certificates(authority("authority").pem());
    assert!(server.refuses(fooled).contains("certificate"));
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let server = TlsServer::start("elsewhere.example");
    let text = server.refuses(server.client_of(&server.authority));
    assert!(text.contains("certificate") && text.contains("elsewhere.example"), "{text}");
}
