//! Settings of a connection to Redis.

use super::RedisLockProcessor;
use crate::error::Error;
use crate::store::redis::cluster::{self, Cluster};
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::endpoint::{Dialer, Endpoint, Finder};
use crate::store::redis::net::handshake::no_database_of_a_cluster;
use crate::store::redis::net::hosts::AddressMap;
#[cfg(feature = "tls")]
use crate::store::redis::net::tls::Tls;
use crate::store::redis::node::{Node, confirming};
use crate::store::redis::plain::GivenUp;
use crate::store::redis::script::acks::ReplicaAcks;
use crate::store::redis::script::scripts::{Form, SLACK};
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::sentinel::url::{self, Service};
use crate::store::redis::timing::{LONGEST_POLLING, SHORTEST_POLLING};
use crate::store::redis::topology::{OneServer, Topology};
use crate::store::redis::transport::{Polling, Transport};
use crate::timing::{LONGEST_TIMEOUT, SHORTEST_COMMAND};
#[cfg(feature = "tls")]
use crate::tls::TlsSettings;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How to reach a Redis server. Made by [`RedisLockProcessor::builder`].
#[derive(Clone, Debug)]
pub struct RedisBuilder {
    address: Address,
    /// Who says where the server is, if the URL names Sentinels.
    service: Option<Service>,
    /// The configured nodes, if the server is a Cluster. The address is that of the first.
    seeds: Option<Vec<Address>>,
    address_map: Option<AddressMap>,
    failover_within: Option<Duration>,
    replica_acks: Option<(u32, Duration)>,
    connect_timeout: Duration,
    io_timeout: Duration,
    polling: Polling,
    #[cfg(feature = "tls")]
    tls: TlsSettings,
}

impl RedisBuilder {
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let service = if url::is_sentinel(url) { Some(url::parse(url)?) } else { None };
        let seeds = if cluster::url::is_cluster(url) { Some(cluster::url::parse(url)?) } else { None };
        let first = seeds.as_ref().and_then(|seeds| seeds.first());
        let address = match (&service, first) {
            (Some(service), _) => service.address.clone(),
            (None, Some(first)) => first.clone(),
            (None, None) => Address::parse(url)?,
        };
        Ok(Self {
            address,
            service,
            seeds,
            address_map: None,
            failover_within: None,
            replica_acks: None,
            connect_timeout: Duration::from_secs(2),
            io_timeout: Duration::from_secs(1),
            polling: Polling::default(),
            #[cfg(feature = "tls")]
            tls: TlsSettings::default(),
        })
    }

    /// Sets how long a connect may take in all: name lookup, all addresses, TLS and login. From 1 ms to one day; defaults to two
    /// seconds.
    ///
    /// A connect may take this long even when the call that needs it has a shorter limit (`try_lock_for(1 ms)`, or any call when
    /// [`io_timeout`](Self::io_timeout) is shorter). Such a call waits until its limit ends and then fails without having been
    /// executed; the connect goes on, on a thread named `dlock-connect`, for the calls that follow.
    /// [`DLockGenerator::close`](crate::DLockGenerator::close) waits at most this time plus `io_timeout` for a subscription that is
    /// being made.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a reply may take before the connection is given up, and how long a command may take when the caller sets no other
    /// limit. From 1 ms to one day; defaults to one second. It may be shorter than a connect. [`replica_acks`](Self::replica_acks) adds to it.
    #[must_use]
    pub fn io_timeout(mut self, timeout: Duration) -> Self {
        self.io_timeout = timeout;
        self
    }

    /// Sets whether a thread that waits for the answer to a command polls for it before it sleeps. Defaults to [`Polling::Automatic`].
    ///
    /// A near server answers sooner than a core that sleeps can be woken, so a thread that polls has its answer sooner, for about the same
    /// processor time. Where polling finds no answers, because the server is far or busy, threads sleep at once; now and then one tries
    /// again. Where other programs keep the cores, no thread polls. A thread that waits for a lock that another holds does not poll. A task that
    /// awaits its answer is polled again at once in the same cases and for the same time, so the thread of its runtime does not sleep. See
    /// [Polling](crate::manual::operations#polling) in the manual.
    ///
    /// The time of [`Polling::AtMost`] may be from 1 µs to 10 ms.
    #[must_use]
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// Sets a function that maps each address that Sentinels or the nodes of a Cluster tell to the one by which this machine reaches it:
    /// host and port to host and port. For networks with address translation, such as containers, where servers announce addresses that
    /// nobody else can reach. If a node tells no host, the function gets the host by which that node was asked. The function must neither
    /// block nor use the store. For a single server it is not used. Defaults to none.
    #[must_use]
    pub fn address_map(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.address_map = Some(AddressMap(Arc::new(map)));
        self
    }

    /// Sets how long the store may be away when its master fails and another one takes over. Leases are then extended early enough to
    /// outlive that ([`DLockConfig::with_renew_at`](crate::DLockConfig::with_renew_at)). From 1 ms to one day. Defaults to what the Sentinels
    /// say (`down-after-milliseconds` and two seconds), to 20 s for a Cluster (its default node time-out is 15 s), and to zero for a single
    /// server: set it where a failover is hidden behind one address.
    #[must_use]
    pub fn failover_within(mut self, outage: Duration) -> Self {
        self.failover_within = Some(outage);
        self
    }

    /// Lets a lock count only when `replicas` replicas of the server have acknowledged it: a hold that begins, and a lease that is extended.
    /// The server waits for them for at most `timeout`. So a hold that all replicas have acknowledged survives a failover, and a grant of a master
    /// without replicas does not count. The page [Failover](crate::manual::failover#acknowledgement-by-replicas) says what this does not cover.
    ///
    /// An attempt that is not acknowledged is undone. It fails as
    /// [`BackendFailure::Unacknowledged`](crate::BackendFailure::Unacknowledged); a `lock()` without a limit goes on trying. An extension that
    /// is not acknowledged leaves the deadline of the hold where it was. A release is not acknowledged by anybody: if it is lost in a
    /// failover, the key is taken until its lease ends.
    ///
    /// `timeout` may be from 1 ms to half of [`io_timeout`](Self::io_timeout); 100 ms is a good choice for the default of a second. The user
    /// needs the right to `WAIT`. Defaults to no replicas, which means no acknowledgement, and no cost.
    ///
    /// # Cost
    ///
    /// A lock takes one replication round trip longer. A hand-over between processes takes one command and one such round trip longer.
    ///
    /// While replicas are missing, each attempt to lock takes `timeout`, and commands of the same connection wait for each other's
    /// acknowledgement. So an attempt may take up to five times `timeout` longer than `io_timeout`, unless its caller sets a limit. Redis looks for
    /// acknowledgements that are overdue ten times a second: a server that has nothing else to do may answer a tenth of a second late.
    #[must_use]
    pub fn replica_acks(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replica_acks = Some((replicas, timeout));
        self
    }

    /// Sets the root certificates, as PEM text, that a `rediss://` server is checked against. Defaults to the platform's.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }

    /// Sets the certificate chain and its private key, as PEM texts, that this client presents to a `rediss://` server. Defaults to
    /// none.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((chain.into(), key.into()));
        self
    }

    /// Makes a processor that connects when it sends its first command. Does not wait for a server. For `rediss://` it reads the
    /// platform's root certificates, unless `tls_root_certificates` set others.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a time-out below 1 ms or above one day, polling below 1 µs or above 10 ms, the time-out of `replica_acks` above
    /// half of `io_timeout`, for certificates that cannot be used, and for certificates together with a URL that is not `rediss://`.
    pub fn build(self) -> Result<RedisLockProcessor, Error> {
        let acks = self.check()?;
        #[cfg(feature = "tls")]
        let tls = self.make_tls()?;
        let dialer = Dialer {
            #[cfg(feature = "tls")]
            tls,
        };
        let mut endpoint = Endpoint {
            address: self.address,
            finder: None,
            dialer,
            connect_timeout: self.connect_timeout,
            servers: Arc::default(),
            in_cluster: self.seeds.is_some(),
        };
        let (map, io_timeout, polling, outage) =
            (self.address_map, self.io_timeout, self.polling, self.failover_within);
        let topology = if let Some(seeds) = self.seeds {
            Topology::Cluster(Cluster::new(seeds, cluster::Reach { endpoint, io_timeout, polling, acks }, map))
        } else {
            let sentinels = self.service.map(|service| Sentinels::new(service, endpoint.clone(), map));
            endpoint.finder = sentinels.map(|sentinels| sentinels as Arc<dyn Finder>);
            let transport = Transport::new(endpoint, io_timeout, polling, SLACK, confirming(acks.as_ref()));
            Topology::One(OneServer::new(Node::new(transport, Form::Server, acks)))
        };
        Ok(RedisLockProcessor { topology, io_timeout, outage, acks, given_up: GivenUp::default() })
    }

    /// Checks the times. Returns how replicas must acknowledge, if some must.
    fn check(&self) -> Result<Option<ReplicaAcks>, Error> {
        let times = [
            ("connect_timeout", Some(self.connect_timeout)),
            ("io_timeout", Some(self.io_timeout)),
            ("failover_within", self.failover_within),
        ];
        for (what, timeout) in times {
            if let Some(timeout) = timeout
                && !(SHORTEST_COMMAND..=LONGEST_TIMEOUT).contains(&timeout)
            {
                return Err(Error::invalid_config(what, format!("{timeout:?}"), "give a time from 1 ms to one day"));
            }
        }
        if let Polling::AtMost(bound) = self.polling
            && !(SHORTEST_POLLING..=LONGEST_POLLING).contains(&bound)
        {
            return Err(Error::invalid_config(
                "polling",
                format!("{bound:?}"),
                "give a time from 1 µs to 10 ms, or Polling::Off",
            ));
        }
        let acks = self.replica_acks.and_then(|(replicas, timeout)| ReplicaAcks::new(replicas, timeout));
        if let Some(ReplicaAcks { timeout, .. }) = acks
            && !(SHORTEST_COMMAND..=self.io_timeout / 2).contains(&timeout)
        {
            let hint = format!("give a time from 1 ms to half of io_timeout, which is {:?}", self.io_timeout);
            return Err(Error::invalid_config("the timeout of replica_acks", format!("{timeout:?}"), hint));
        }
        Ok(acks)
    }

    #[cfg(feature = "tls")]
    fn make_tls(&self) -> Result<Option<Tls>, Error> {
        let host = match &self.address.place {
            // Each node has a name of its own.
            Place::Tcp { tls: true, .. } if self.seeds.is_some() => None,
            Place::Tcp { tls: true, host, .. } => Some(host.as_str()),
            Place::Service { tls: true, .. } => None,
            _ if self.tls.is_default() => return Ok(None),
            _ => {
                let hint =
                    "they would not be used without TLS: write rediss:// in place of redis://, or leave them out";
                return Err(Error::invalid_config("TLS certificates", self.address.to_string(), hint));
            }
        };
        Tls::new(&self.tls, host).map(Some)
    }

    /// Makes a processor and connects at once. Blocks for at most [`connect_timeout`](Self::connect_timeout) plus
    /// [`io_timeout`](Self::io_timeout): three seconds, unless set otherwise.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build), and those of [`RedisLockProcessor::connect`].
    pub fn connect(self) -> Result<RedisLockProcessor, Error> {
        let begun = Instant::now();
        let (connect_timeout, io_timeout) = (self.connect_timeout, self.io_timeout);
        let may_be_cluster = matches!(self.address.place, Place::Tcp { .. });
        let again = may_be_cluster.then(|| self.clone());
        let processor = self.build()?;
        // `build` has checked both, so the sum is in range.
        let limit = connect_timeout + io_timeout;
        match (processor.greet(limit), again) {
            (Ok(()), _) => Ok(processor),
            (Err(_), Some(again)) if processor.has_met_cluster() => {
                let processor = again.for_cluster()?.build()?;
                processor.greet(limit.saturating_sub(begun.elapsed()))?;
                Ok(processor)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The same settings for the Cluster of which the server is a node.
    fn for_cluster(mut self) -> Result<Self, Error> {
        if self.address.db != 0 {
            return Err(no_database_of_a_cluster(self.address.db));
        }
        self.seeds = Some(vec![self.address.clone()]);
        Ok(self)
    }
}
