//! TLS, with a certificate authority, a server and a client certificate made for the test.
#![cfg(feature = "tls")]

use crate::support::RedisServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redis_dlock::{DLockGenerator, Error, RedisLockProcessor};
use std::fs;
use std::net::TcpListener;
use std::path::Path;

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A certificate signed by the authority, and its key, in PEM.
fn certificate(authority: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (named(name).signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn locks_work_over_tls_and_strangers_are_refused() {
    let mut params = named("authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let (server_certificate, server_key) = certificate(&authority, "localhost");
    let (client_certificate, client_key) = certificate(&authority, "client");
    let dir = tempfile::tempdir().unwrap();
    let tls_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let _server = RedisServer::start_with(&[
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &write(dir.path(), "server.pem", &server_certificate),
        "--tls-key-file",
        &write(dir.path(), "server.key", &server_key),
        "--tls-ca-cert-file",
        &write(dir.path(), "ca.pem", &authority.pem()),
    ]);
    let url = format!("rediss://localhost:{tls_port}/");
    let builder = || RedisLockProcessor::builder(&url).unwrap();

    let processor = builder()
        .tls_root_certificates(authority.pem())
        .tls_client_certificate(client_certificate, client_key)
        .connect()
        .unwrap();
    let generator = DLockGenerator::new(processor).unwrap();
    let lock = generator.generate("TLS", "x").unwrap();
    let tokens: Vec<_> = (0..100).map(|_| lock.lock().unwrap().fencing_token()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| drop(lock.lock().unwrap())));
        }
    });

    // The server asks for a client certificate, and the platform's roots do not know its own.
    for stranger in [builder().tls_root_certificates(authority.pem()), builder()] {
        let error = stranger.connect().unwrap_err();
        assert!(matches!(error, Error::Backend { .. }), "{error}");
        assert!(error.to_string().contains(&tls_port), "{error}");
    }
}
