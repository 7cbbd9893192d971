//! The arguments about the server and its locks, which may also stand in the configuration file.

#![allow(clippy::doc_markdown, reason = "the comments are what `--help` prints")]

mod environment;
mod file;
mod mapping;

use crate::status::{Failure, USAGE};
use crate::store::{self, Builder, Secret, Store};
use crate::timing;
use clap::Args;
#[cfg(feature = "consul")]
use dlock_consensus::ConsulLockProcessor;
#[cfg(feature = "etcd")]
use dlock_consensus::EtcdLockProcessor;
use file::FileSettings;
use mapping::Mapping;
pub(crate) use mapping::mapped;
use redis_dlock::{DLockConfig, DLockGenerator, Error, RedisBuilder, RedisLockProcessor};
use std::env;
use std::ffi::OsString;
#[cfg(feature = "tls")]
use std::fs;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

const VARIABLE: &str = "DLOCK_URL";

/// Reads `500ms`, `30s`, `1h 30m`, and seconds: `30`, `0.5`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = text.parse().ok().filter(|_| is_number).map(Duration::try_from_secs_f64);
    let read = seconds.and_then(Result::ok).or_else(|| humantime::parse_duration(text).ok());
    read.ok_or_else(|| "give a number of seconds, or a time such as 500ms, 30s, 5m or 1h 30m".to_owned())
}

/// How the server is reached, and what a lock there counts for.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The server (also in the configuration file)")]
pub(crate) struct Reach {
    /// The server: redis://[user][:password@]host[:port][/db], unix:///path, redis+sentinel://host[,host…]/service, redis+cluster://host[,host…], etcd://host[,host…] or consul://host[,host…]. Other users of this machine can see arguments: a URL with a password belongs in the configuration file
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<Secret>,
    /// How many replicas must acknowledge a lock before it counts, so that it survives a failover. The user needs the right +wait
    #[arg(long, global = true, value_name = "COUNT")]
    replica_acks: Option<u32>,
    /// How long they have for that: at most half of --io-timeout [default: 100ms]
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    replica_acks_within: Option<Duration>,
    /// How long a connect may take in all [default: 2s]
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    connect_timeout: Option<Duration>,
    /// How long a reply may take [default: 1s]
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    io_timeout: Option<Duration>,
    /// How long the server may be away in a failover; leases are renewed early enough for that [default: what Sentinels say, 20s for a Cluster, else none]
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    failover_within: Option<Duration>,
    /// The addresses of servers from here, where Sentinels or nodes tell others, such as those of containers. Without a port all ports are meant
    #[arg(long, global = true, value_name = "HOST[:PORT]=HOST[:PORT],…", value_delimiter = ',')]
    pub(crate) address_map: Vec<Mapping>,
    /// A file with the root certificates, as PEM, by which a rediss:// server is known [default: those of the system]
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A file with the certificate chain of this client, as PEM; with --key
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// A file with the private key of --cert, as PEM
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// What holds for the lock itself, and must be the same wherever it is taken.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "The lock (also in the configuration file)")]
pub(crate) struct Rules {
    /// Leaves the lock free for a moment so often, where JVM processes poll for it
    #[arg(long, value_name = "TIME", value_parser = time)]
    poller_gap: Option<Duration>,
    /// How much longer than the lease nobody else gets the lock if its holder has died
    #[arg(long, value_name = "TIME", value_parser = time)]
    lock_delay: Option<Duration>,
    /// Counts the lock as lost after this time, however alive the command is, and tells the command to stop before: by the grace, but by a sixth
    /// of this time or of the lease at most
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) max_hold: Option<Duration>,
}

impl Rules {
    /// Returns these settings, with the file's where one is missing.
    fn or(self, file: Self) -> Self {
        Self {
            poller_gap: self.poller_gap.or(file.poller_gap),
            lock_delay: self.lock_delay.or(file.lock_delay),
            max_hold: self.max_hold.or(file.max_hold),
        }
    }

    pub(crate) fn apply(self, mut config: DLockConfig) -> DLockConfig {
        if let Some(every) = self.poller_gap {
            config = config.with_poller_gap(every);
        }
        if let Some(delay) = self.lock_delay {
            config = config.with_lock_delay(delay);
        }
        if let Some(limit) = self.max_hold {
            config = config.with_max_hold(limit);
        }
        config
    }
}

/// The roots, and the chain with its key.
#[cfg(feature = "tls")]
type Certificates = (Option<Vec<u8>>, Option<(Vec<u8>, Vec<u8>)>);

/// A builder of a store with the certificates. The builders have these methods in common, and no trait.
#[cfg(feature = "tls")]
macro_rules! with_certificates {
    ($settings:expr, $builder:expr) => {{
        let (roots, own) = $settings.certificates()?;
        let builder = match roots {
            Some(roots) => $builder.tls_root_certificates(roots),
            None => $builder,
        };
        match own {
            Some((chain, key)) => builder.tls_client_certificate(chain, key),
            None => builder,
        }
    }};
}

/// All settings, from arguments, environment and file.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    url: Secret,
    /// The source of the URL, if it is not an argument.
    place: Option<String>,
    /// The arguments alone.
    given: Reach,
    reach: Reach,
    pub(crate) rules: Rules,
}

impl Settings {
    /// Returns the arguments, completed by the configuration file. The URL comes from the argument, else from the environment variable, else from the
    /// file. No message of a failure contains it.
    pub(crate) fn of(arguments: &Reach, rules: Rules) -> Result<Self, Failure> {
        let place = file::place(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
        let told = place.as_deref().map_or_else(|| Ok(FileSettings::default()), file::read)?;
        let variable = match env::var_os(VARIABLE).filter(|url| !url.is_empty()).map(OsString::into_string) {
            Some(Err(_)) if arguments.url.is_none() => {
                return Err(Failure::new(USAGE, format!("{VARIABLE} is no UTF-8: give a URL")));
            }
            variable => variable.and_then(Result::ok),
        };
        let of_variable = variable.is_some();
        let reach = arguments.clone().or(told.reach, variable);
        let file = place.map_or_else(|| "~/.config/dlock/config".to_owned(), |place| place.display().to_string());
        let url = reach.url.clone().ok_or_else(|| {
            let message =
                format!("no server: give --url, set {VARIABLE}, or write a line `url = redis://…` into {file}");
            Failure::new(USAGE, message)
        })?;
        let place = match arguments.url {
            Some(_) => None,
            None if of_variable => Some(VARIABLE.to_owned()),
            None => Some(file),
        };
        let wrong = |message| Failure::new(USAGE, message);
        let url = environment::completed(&url, environment::variable).map_err(wrong)?.into();
        Ok(Self { url, place, given: arguments.clone(), reach, rules: rules.or(told.rules) })
    }

    /// Connects to ask questions only.
    pub(crate) fn connect(&self) -> Result<DLockGenerator, Failure> {
        Self::asking(self.builder()?.connect()?)
    }

    /// Does the same as [`connect`](Self::connect), but waits until the server answers.
    pub(crate) fn connect_when_there(&self) -> Result<DLockGenerator, Failure> {
        Self::asking(self.builder()?.wait(None)?)
    }

    /// A client that asks questions only, and leaves no record of itself in the store.
    pub(crate) fn asking(store: Store) -> Result<DLockGenerator, Failure> {
        Ok(store.generator(DLockGenerator::builder().client_record(false))?)
    }

    /// Returns the builder for the store of the URL.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let scheme = self.url.split(['+', ':']).next().unwrap_or_default();
        match (scheme, store::other(scheme)) {
            ("etcd" | "consul", _) => {
                self.refuse_those_of_redis()?;
                self.consensus()
            }
            (_, Some(other)) => {
                self.refuse_those_of_redis()?;
                let Reach { ca, cert, key, .. } = &self.reach;
                if ca.is_some() || cert.is_some() || key.is_some() {
                    let message = "--ca, --cert and --key are not for this store: its URL has options of its own";
                    return Err(Failure::new(USAGE, message));
                }
                Ok(Builder::Other(other, self.url.clone()))
            }
            _ => self.redis().map(|builder| Builder::Redis(Box::new(builder))),
        }
    }

    /// Refuses arguments that the store would not follow. Ignores such lines of the file: they are for URLs of Redis.
    fn refuse_those_of_redis(&self) -> Result<(), Failure> {
        let Reach {
            replica_acks, replica_acks_within, connect_timeout, io_timeout, failover_within, address_map, ..
        } = &self.given;
        let times = [
            ("--replica-acks-within", replica_acks_within),
            ("--connect-timeout", connect_timeout),
            ("--io-timeout", io_timeout),
            ("--failover-within", failover_within),
        ];
        let time = times.iter().find(|(_, time)| time.is_some()).map(|(name, _)| *name);
        let other = replica_acks.map(|_| "--replica-acks").or((!address_map.is_empty()).then_some("--address-map"));
        match time.or(other) {
            Some(name) => Err(Failure::new(USAGE, format!("{name} is for Redis alone: leave it out for other stores"))),
            None => Ok(()),
        }
    }

    /// Returns the builder for the URL. An error about the URL names its source.
    fn read<B>(&self, builder: Result<B, Error>) -> Result<B, Failure> {
        builder.map_err(|error| match &self.place {
            Some(place) => Failure::from(error).read_in(place),
            None => error.into(),
        })
    }

    #[cfg_attr(not(any(feature = "consul", feature = "etcd")), expect(clippy::unused_self, reason = "there is none"))]
    fn consensus(&self) -> Result<Builder, Failure> {
        #[cfg(feature = "etcd")]
        if self.url.starts_with("etcd") {
            let builder = self.read(EtcdLockProcessor::builder(&self.url))?;
            #[cfg(feature = "tls")]
            let builder = with_certificates!(self, builder);
            #[cfg(not(feature = "tls"))]
            self.refuse_certificates()?;
            return Ok(Builder::Etcd(builder));
        }
        #[cfg(feature = "consul")]
        if self.url.starts_with("consul") {
            let builder = self.read(ConsulLockProcessor::builder(&self.url))?;
            let token = environment::token(&self.url, environment::variable);
            let builder = match token.map_err(|message| Failure::new(USAGE, message))? {
                Some(token) => builder.token(token),
                None => builder,
            };
            #[cfg(feature = "tls")]
            let builder = with_certificates!(self, builder);
            #[cfg(not(feature = "tls"))]
            self.refuse_certificates()?;
            return Ok(Builder::Consul(builder));
        }
        let message = "this dlock is built for Redis alone: cargo install --path crates/cli --features etcd,consul";
        Err(Failure::new(USAGE, message))
    }

    /// The settings of a connection to Redis.
    pub(crate) fn redis(&self) -> Result<RedisBuilder, Failure> {
        let Reach {
            replica_acks, replica_acks_within, connect_timeout, io_timeout, failover_within, address_map, ..
        } = &self.reach;
        let mut builder = self.read(RedisLockProcessor::builder(&self.url))?;
        if let Some(time) = connect_timeout {
            builder = builder.connect_timeout(*time);
        }
        if let Some(time) = io_timeout {
            builder = builder.io_timeout(*time);
        }
        if let Some(time) = failover_within {
            builder = builder.failover_within(*time);
        }
        match (replica_acks, replica_acks_within) {
            (None, Some(_)) => {
                return Err(Failure::new(
                    USAGE,
                    "--replica-acks-within does nothing without --replica-acks: give a count",
                ));
            }
            (None, None) => {}
            (Some(count), within) => {
                let half = io_timeout.map_or(timing::ACKNOWLEDGED_WITHIN, |time| time / 2);
                builder = builder.replica_acks(*count, within.unwrap_or(timing::ACKNOWLEDGED_WITHIN.min(half)));
            }
        }
        if !address_map.is_empty() {
            let map = address_map.clone();
            builder = builder.address_map(move |host, port| mapped(&map, host, port));
        }
        #[cfg(feature = "tls")]
        let builder = with_certificates!(self, builder);
        #[cfg(not(feature = "tls"))]
        self.refuse_certificates()?;
        Ok(builder)
    }

    /// Reads the certificates: the roots, and the chain with its key.
    #[cfg(feature = "tls")]
    fn certificates(&self) -> Result<Certificates, Failure> {
        let read = |option: &str, path: &Path| {
            fs::read(path).map_err(|error| {
                Failure::new(USAGE, format!("cannot read {:?} of {option}: {error}: name a PEM file", path.display()))
            })
        };
        // As in `consul`, the variable only counts for encrypted servers.
        let is_of_consul = self.reach.ca.is_none() && self.url.starts_with("consul+https:");
        let roots = match environment::variable("CONSUL_CACERT").filter(|_| is_of_consul) {
            Some(ca) => Some(read("CONSUL_CACERT", Path::new(&ca))?),
            None => self.reach.ca.as_deref().map(|ca| read("--ca", ca)).transpose()?,
        };
        match (&self.reach.cert, &self.reach.key) {
            (Some(cert), Some(key)) => Ok((roots, Some((read("--cert", cert)?, read("--key", key)?)))),
            (None, None) => Ok((roots, None)),
            (Some(_), None) => Err(Failure::new(USAGE, "--cert without --key: name the file with its private key")),
            (None, Some(_)) => Err(Failure::new(USAGE, "--key without --cert: name the file with its certificate")),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn refuse_certificates(&self) -> Result<(), Failure> {
        let Reach { ca, cert, key, .. } = &self.reach;
        if ca.is_some() || cert.is_some() || key.is_some() {
            let message =
                "--ca, --cert and --key need a dlock with TLS: cargo install --path crates/cli --features tls";
            return Err(Failure::new(USAGE, message));
        }
        Ok(())
    }

    /// How many replicas must acknowledge a lock.
    pub(crate) fn acks(&self) -> u32 {
        self.reach.replica_acks.unwrap_or(0)
    }

    pub(crate) fn address_map(&self) -> &[Mapping] {
        &self.reach.address_map
    }
}

impl Reach {
    /// Returns these settings, with the file's where one is missing. The variable counts before the file.
    fn or(self, file: Self, variable: Option<String>) -> Self {
        Self {
            url: self.url.or(variable.map(Secret::from)).or(file.url),
            replica_acks: self.replica_acks.or(file.replica_acks),
            replica_acks_within: self.replica_acks_within.or(file.replica_acks_within),
            connect_timeout: self.connect_timeout.or(file.connect_timeout),
            io_timeout: self.io_timeout.or(file.io_timeout),
            failover_within: self.failover_within.or(file.failover_within),
            address_map: if self.address_map.is_empty() { file.address_map } else { self.address_map },
            ca: self.ca.or(file.ca),
            cert: self.cert.or(file.cert),
            key: self.key.or(file.key),
        }
    }
}
