//! TLS to the Sentinels and to the servers, by `rediss+sentinel://`.

use crate::support::certificates::{authority, certificate, write};
use crate::support::crew::{HANG, eventually, queue_by};
use crate::support::sentinels::{Plan, SERVICE, Service, TlsFiles};
use rcgen::{CertifiedIssuer, KeyPair};
use redis_dlock::{DLockGenerator, RedisBuilder, RedisLockProcessor};
use tempfile::TempDir;

/// A service whose processes show each other, and their clients, certificates of one authority, and ask for such.
struct TlsService {
    service: Service,
    authority: CertifiedIssuer<'static, KeyPair>,
    _dir: TempDir,
}

impl TlsService {
    /// With certificates for this host.
    fn start(host: &str, plan: Plan) -> Self {
        let authority = authority("authority");
        let (shown, key) = certificate(&authority, host);
        let dir = tempfile::tempdir().unwrap();
        let file = |name, text: &str| write(dir.path(), name, text);
        let files = TlsFiles {
            certificate: file("server.pem", &shown),
            key: file("server.key", &key),
            authority: file("ca.pem", &authority.pem()),
        };
        let service = Service::start_as(&Plan { tls: Some(files), ..plan });
        Self { service, authority, _dir: dir }
    }

    /// A client with a certificate of the authority.
    fn client(&self, url: &str) -> RedisBuilder {
        let (chain, key) = certificate(&self.authority, "client");
        let builder = RedisLockProcessor::builder(url).unwrap();
        builder.tls_root_certificates(self.authority.pem()).tls_client_certificate(chain, key)
    }

    fn generator(&self) -> DLockGenerator {
        DLockGenerator::new(self.client(&self.service.url()).connect().unwrap()).unwrap()
    }

    /// By which ports of a server our connections come.
    fn ports(&self, server: usize) -> Vec<u16> {
        let list: String = self.service.servers[server].run(&["CLIENT", "LIST"]);
        let ours = list.lines().filter(|line| line.contains("name=redis-dlock "));
        let local = ours.filter_map(|line| line.split_once("laddr=")?.1.split(' ').next()?.rsplit_once(':'));
        local.map(|(_, port)| port.parse().unwrap()).collect()
    }
}

/// Certificates name the address that the Sentinels tell.
/// Shows: G7.
#[test]
fn sentinels_and_servers_are_asked_over_tls_alone_and_a_failover_is_followed() {
    let scene = TlsService::start("127.0.0.1", Plan::default());
    let [generator, other] = [(); 2].map(|()| scene.generator());
    let lock = generator.generate("TLS", "x").unwrap();
    let guard = lock.lock_owned().unwrap();
    let first = guard.fencing_token();
    let waits = queue_by(&other.generate("TLS", "x").unwrap(), |lock| {
        lock.try_lock_for(HANG).unwrap().expect("handed over").fencing_token()
    });
    guard.unlock().unwrap();
    let second = waits.join();
    assert!(second > first, "{second} after {first}");
    let ports = scene.ports(0);
    assert!(!ports.is_empty() && ports.iter().all(|port| *port == scene.service.port_of(0)), "{ports:?}");

    scene.service.wait_for_replicas(scene.service.servers[0].port());
    scene.service.sentinels[0].run::<String>(&["SENTINEL", "FAILOVER", SERVICE]).unwrap();
    let new = scene.service.wait_for_promotion(0);
    eventually("the old master is left", || scene.ports(0).is_empty());
    let third = lock.lock().unwrap().fencing_token();
    assert!(third > second, "{third} after {second}");
    let ports = scene.ports(new);
    assert!(!ports.is_empty() && ports.iter().all(|port| *port == scene.service.port_of(new)), "{ports:?}");
}

/// Sentinels tell addresses, and the certificates name a host: the client refuses, unless it is told which host that is.
#[test]
fn a_told_address_that_the_certificate_does_not_name_is_refused_unless_it_is_mapped() {
    let scene = TlsService::start("localhost", Plan { replicas: 0, sentinels: 1, ..Plan::default() });
    let url = scene.service.url_by("localhost", &[scene.service.sentinels[0].public_port()]);
    let error = scene.client(&url).connect().unwrap_err().to_string();
    assert!(error.contains("certificate") && error.contains("127.0.0.1"), "{error}");
    let named = scene.client(&url).address_map(|_, port| ("localhost".to_owned(), port));
    let generator = DLockGenerator::new(named.connect().unwrap()).unwrap();
    generator.generate("TLS", "mapped").unwrap().lock().unwrap().unlock().unwrap();
    // The Sentinel itself is checked, too.
    let told = scene.client(&scene.service.url()).address_map(|_, port| ("localhost".to_owned(), port));
    let error = told.connect().unwrap_err().to_string();
    assert!(error.contains("certificate") && error.contains("no Sentinel"), "{error}");
}
