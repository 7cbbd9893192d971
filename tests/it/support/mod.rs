//! What the tests of several topics share. What other binaries use, too, is in the kit.

pub(crate) mod allocations;
mod asking;
pub(crate) mod clock_shim;
pub(crate) mod commands;
pub(crate) mod fork;
pub(crate) mod holder;
pub(crate) mod journal;
mod jvm;
#[path = "../../support/mod.rs"]
mod kit;
pub(crate) mod lab;
pub(crate) mod owned;
pub(crate) mod resolver_shim;
pub(crate) mod stalls;
pub(crate) mod time;
pub(crate) mod twin_shim;
pub(crate) mod watched;

pub(crate) use asking::{Asking, claim, last_server};
pub(crate) use crew::is_long;
pub(crate) use jvm::Jvm;
pub(crate) use kit::{
    Proxy, RedisServer, certificates, cluster, crew, dice, free_port, history, monitor, process, proxy, queue,
    sentinels, worker,
};
use redis_dlock::{Error, LossCause, port};
use std::time::Duration;

/// Files of a server with a certificate of this authority for a host, and that certificate and its key, in PEM.
#[cfg(feature = "tls")]
pub(crate) fn tls_files(
    authority: &rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
    host: &str,
) -> (tempfile::TempDir, sentinels::TlsFiles, [String; 2]) {
    let (shown, secret) = certificates::certificate(authority, host);
    let dir = tempfile::tempdir().unwrap();
    let file = |name, text: &str| certificates::write(dir.path(), name, text);
    let (certificate, key) = (file("server.pem", &shown), file("server.key", &secret));
    let files = sentinels::TlsFiles { certificate, key, authority: file("ca.pem", &authority.pem()) };
    (dir, files, [shown, secret])
}

/// Far more than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Why the lease was lost that this call tells of.
#[track_caller]
pub(crate) fn cause<T>(result: Result<T, Error>) -> LossCause {
    match result {
        Err(Error::LeaseLost(loss)) => loss.cause,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no error"),
    }
}
