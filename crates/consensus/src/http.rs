//! Requests over HTTP to one of several servers.
//!
//! A request asks one server after another. The first server has at most half of the time. If it hangs, later requests begin with another server. So
//! a renewal reaches a healthy server in time. A request that may have been executed goes to the next server only if it does no harm twice; any other
//! fails with an unknown outcome, and the [session](super::sessions) that it names is ended.
//!
//! | result of one server | outcome | is the next server asked? |
//! |---|---|---|
//! | no connection, no address, a certificate that is not trusted | not executed | yes |
//! | a refusal by the server before it did anything | not executed | yes |
//! | no answer in time, a broken connection, an answer that cannot be read | unknown | if the request may be repeated |
//! | any answer of the store | what it says | no |
//! | an answer of something else | not executed where HTTP says so, else unknown | as above |
//!
//! One limit covers all steps of a request, from the look-up of a name to the end of the body.

use super::deadline::Deadline;
use super::resolver::Addresses;
#[cfg(unix)]
use super::resolver::NoAddress;
#[cfg(unix)]
use super::socket::SocketConnector;
use super::timing::{CONNECTING, PATIENCE};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use redis_dlock::{BackendFailure, Error};
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
#[cfg(feature = "tls")]
use ureq::tls::TlsConfig;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Timeout, http};

/// The servers of a store, and the connections to them.
pub(super) struct Http {
    agent: Agent,
    /// The connections of streams that end their connection.
    streams: Agent,
    /// The socket that the connections go to, if they do not go to a host and port.
    socket: Option<PathBuf>,
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
    /// Their addresses: `http://host:port`, or `https://host:port`.
    pub(super) servers: Vec<String>,
    /// The server to ask first. It is a hint: a thread that finds that this server fails sets the next one.
    pub(super) preferred: AtomicUsize,
    /// Whether an answer has ever shown that a server of the store gave it.
    has_answered: AtomicBool,
    pub(super) is_closed: AtomicBool,
}

/// A request.
#[derive(Debug)]
pub(super) struct HttpCall<'a> {
    pub(super) method: http::Method,
    /// The path and the query.
    pub(super) path: &'a str,
    pub(super) body: &'a str,
    /// A header with a secret.
    pub(super) secret: Option<(&'static str, &'a str)>,
    /// Whether it does no harm to send it again after a request without an answer.
    pub(super) is_repeatable: bool,
    /// Whether request and answer are streams, with a line for each part. The lines that have come when its time is over count.
    pub(super) is_stream: bool,
}

/// The longest stream that leaves its connection open. Go's decoder of JSON reads this many bytes at once.
const SHORT_STREAM: usize = 512;

impl HttpCall<'_> {
    /// Whether its connection ends with the answer. A server that is written in Go throws away what it has not read of a request when it begins to
    /// answer, unless it closes the connection. Such a stream has a connection of its own. If it took one of the others, the next request would have
    /// to open one. That takes several round trips, for which there is no time if the servers are distant.
    fn ends_connection(&self) -> bool {
        self.is_stream && self.body.len() > SHORT_STREAM
    }
}

/// What a server answered.
#[derive(Debug)]
pub(super) struct HttpAnswer<'a> {
    /// The address of the server. Only etcd's servers say of which cluster they are.
    #[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "others do not"))]
    pub(super) server: &'a str,
    pub(super) status: u16,
    /// The store's index at the time of the answer. Only Consul sends it.
    #[cfg_attr(not(feature = "consul"), expect(dead_code, reason = "others do not"))]
    pub(super) index: Option<u64>,
    /// Whether a header has a name that begins with `x-consul-`: no other server sends one.
    #[cfg_attr(not(feature = "consul"), expect(dead_code, reason = "others do not"))]
    pub(super) is_of_consul: bool,
    /// Whether the answer lacks entries that the user may not see. Only Consul says so.
    #[cfg_attr(not(feature = "consul"), expect(dead_code, reason = "others do not"))]
    pub(super) is_filtered: bool,
    pub(super) body: String,
}

impl HttpAnswer<'_> {
    /// Makes an error of an answer that the store's servers do not give. `hint` says what may be wrong.
    pub(super) fn foreign(&self, hint: &str) -> Error {
        let failure = match self.status {
            // The request was not passed on.
            300..=399 | 400 | 404..=407 => BackendFailure::NotExecuted,
            // A server in between may have passed it on.
            _ => BackendFailure::Unknown,
        };
        Error::backend(failure, format!("the server answered {}, but not as {hint}", self.status))
    }
}

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: u64 = 64 * 1024 * 1024;

impl Http {
    /// Keeps the servers, and connects to none of them yet: a program may make its store before the servers are up.
    pub(super) fn new(
        servers: Vec<String>,
        socket: Option<PathBuf>,
        #[cfg(feature = "tls")] tls: Option<TlsConfig>,
    ) -> Self {
        let connections = || {
            agent(
                socket.as_deref(),
                #[cfg(feature = "tls")]
                tls.as_ref(),
            )
        };
        Self {
            agent: connections(),
            streams: connections(),
            socket,
            #[cfg(feature = "tls")]
            tls,
            servers,
            preferred: AtomicUsize::new(0),
            has_answered: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns whether a server of the store has ever answered. Once true, it stays true.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::SeqCst)
    }

    /// Notes an answer that only a server of the store gives. Before the first one, `lock()` returns each error at once: the URL may lead to another
    /// kind of server, and waiting would not help.
    pub(super) fn prove(&self) {
        self.has_answered.store(true, Ordering::SeqCst);
    }

    /// Sends a request to one server after another, until one has executed it. `read` makes an outcome of an answer.
    pub(super) fn send<T>(
        &self,
        call: &HttpCall<'_>,
        deadline: Deadline,
        read: impl Fn(HttpAnswer<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let agent = if call.ends_connection() { &self.streams } else { &self.agent };
        self.send_by(agent, None, call, deadline, read)
    }

    /// Does the same as [`send`](Self::send) with another agent. A request that is answered late on purpose, such as a blocking query, has all of the
    /// time `patience`.
    ///
    /// The order of the servers begins with the preferred one, so all requests of a process go to one server while it answers, and its
    /// connections serve them. If a request has failed at a server before it was executed, or had no answer, that server is not preferred any more:
    /// the next request must not wait for it again.
    pub(super) fn send_by<T>(
        &self,
        agent: &Agent,
        patience: Option<Duration>,
        call: &HttpCall<'_>,
        deadline: Deadline,
        read: impl Fn(HttpAnswer<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let first = self.preferred.load(Ordering::SeqCst);
        let mut failed = None;
        for n in 0..self.servers.len() {
            let place = (first + n) % self.servers.len();
            if self.is_closed.load(Ordering::SeqCst) {
                return Err(Error::ShutDown);
            }
            let limit = match deadline.left() {
                // The limit leaves time for the next server if this one hangs. A request that may not be repeated has no next server once it was
                // sent.
                Ok(left) if n + 1 < self.servers.len() && call.is_repeatable => {
                    left.min(patience.unwrap_or(PATIENCE.min(left / 2)))
                }
                Ok(left) => left,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            let answer = ask(agent, &self.servers[place], call, limit).and_then(&read);
            if answer.as_ref().is_err_and(|error| goes_on(error, true)) {
                let next = (place + 1) % self.servers.len();
                // If another thread has changed the hint already, its choice stands.
                let _ = self.preferred.compare_exchange(place, next, Ordering::SeqCst, Ordering::SeqCst);
            }
            match answer {
                Err(error) if goes_on(&error, call.is_repeatable) => failed = Some(error),
                outcome => {
                    // A refusal by this server does not show that it works for other requests, so the hint stays.
                    if n > 0 && outcome.is_ok() {
                        self.preferred.store(place, Ordering::SeqCst);
                    }
                    return outcome;
                }
            }
        }
        Err(failed.unwrap_or(Error::ShutDown))
    }

    /// Makes an agent with connections of its own, which its owner can end without ending others.
    pub(super) fn own_agent(&self) -> Agent {
        agent(
            self.socket.as_deref(),
            #[cfg(feature = "tls")]
            self.tls.as_ref(),
        )
    }

    /// Ends all connections. A request that is under way fails; a later one is not sent.
    pub(super) fn close(&self) {
        // This comes first, so that a request whose connection ends is not sent to the next server.
        self.is_closed.store(true, Ordering::SeqCst);
        self.agent.clone().shutdown();
        self.streams.clone().shutdown();
    }
}

/// Shows no certificates.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Makes an agent. A status is an answer here, not an error, because the stores report results by it. The agent follows no redirection, because that
/// might lead a secret elsewhere. It uses no proxy of the environment: a proxy would stand between the process and servers that it talks to all the
/// time.
fn agent(socket: Option<&Path>, #[cfg(feature = "tls")] tls: Option<&TlsConfig>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_resolve(Some(CONNECTING))
        .timeout_connect(Some(CONNECTING))
        .max_idle_connections(64)
        .max_idle_connections_per_host(32);
    #[cfg(feature = "tls")]
    let config = match tls {
        Some(tls) => config.https_only(true).tls_config(tls.clone()),
        None => config,
    };
    #[cfg(unix)]
    if let Some(path) = socket {
        return Agent::with_parts(config.build(), SocketConnector(path.to_owned()), NoAddress);
    }
    #[cfg(not(unix))]
    let _ = socket;
    Agent::with_parts(config.build(), DefaultConnector::default(), <Addresses>::default())
}

/// Makes the request for one server. It marks the secret as such, so that no log of the HTTP client shows it.
pub(super) fn request(server: &str, call: &HttpCall<'_>) -> Result<http::Request<String>, Error> {
    let mut request = http::Request::builder().method(call.method.clone()).uri(format!("{server}{}", call.path));
    if !call.body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    if call.ends_connection() {
        request = request.header("connection", "close");
    }
    if let Some((name, secret)) = call.secret {
        let mut secret = http::HeaderValue::from_str(secret)
            .map_err(|_| Error::denied("the token has characters that no header may have"))?;
        secret.set_sensitive(true);
        request = request.header(name, secret);
    }
    request.body(call.body.to_owned()).map_err(|e| {
        Error::backend(BackendFailure::NotExecuted, format!("the request to {server} cannot be formed: {e}"))
    })
}

/// Sends a request to one server, and reads the whole answer.
fn ask<'a>(agent: &Agent, server: &'a str, call: &HttpCall<'_>, limit: Duration) -> Result<HttpAnswer<'a>, Error> {
    // One limit for all steps, from the look-up of the name to the end of the body. A connect that was given up has certainly sent nothing.
    let request = agent.configure_request(request(server, call)?);
    let connect = limit.mul_f64(0.9).min(CONNECTING);
    let request = request.timeout_global(Some(limit)).timeout_connect(Some(connect)).build();
    let mut response = agent.run(request).map_err(|e| failure(server, e))?;
    // The headers are read before the body: the reader of the body takes the answer apart.
    let status = response.status().as_u16();
    let index = response.headers().get("x-consul-index").and_then(|index| index.to_str().ok()?.parse().ok());
    let is_of_consul = response.headers().keys().any(|name| name.as_str().starts_with("x-consul-"));
    let is_filtered = response.headers().contains_key("x-consul-results-filtered-by-acls");
    let body = response.body_mut().with_config().limit(LONGEST_ANSWER);
    let body = if call.is_stream { lines(body.reader()) } else { body.read_to_string() };
    // Without its body the answer counts as not read, whatever its status.
    Ok(HttpAnswer { server, status, index, is_of_consul, is_filtered, body: body.map_err(|e| failure(server, e))? })
}

/// Reads the lines of a stream until it ends or breaks. Each whole line is an answer of its own.
fn lines(mut stream: impl Read) -> Result<String, ureq::Error> {
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    // An unfinished line is no answer, although its beginning may look like one.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    match read {
        Err(error) if whole == 0 => return Err(ureq::Error::from(error)),
        Err(_) => text.truncate(whole),
        Ok(_) => {}
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns whether the next server is asked after this error. It would return the same error if the store names a reason.
fn goes_on(error: &Error, is_repeatable: bool) -> bool {
    match error {
        Error::Backend { failure: BackendFailure::NotExecuted, .. } => true,
        Error::Backend { failure: BackendFailure::Unknown, .. } => is_repeatable,
        _ => false,
    }
}

/// Converts an error of a connection. The new error tells whether the request may have been executed.
pub(super) fn failure(server: &str, error: ureq::Error) -> Error {
    let is_before = match &error {
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(e) => is_before(e),
        // Nothing was sent: the server was not found or not reached, or the URL is wrong.
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => true,
        // Any other error may have come after the last byte of the request.
        _ => false,
    };
    let failure = if is_before { BackendFailure::NotExecuted } else { BackendFailure::Unknown };
    let words = match &error {
        ureq::Error::Timeout(_) if !is_before => String::from("no answer in time"),
        other => other.to_string(),
    };
    Error::backend_caused_by(failure, format!("no answer from {server}: {words}"), io_error(error))
}

/// Whether an error came before the request was sent. If so, the request was certainly not executed, and no tenure is given up for it.
fn is_before(error: &io::Error) -> bool {
    // The handshake comes before the request.
    #[cfg(feature = "tls")]
    if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref())
        && matches!(error, rustls::Error::InvalidCertificate(_))
    {
        return true;
    }
    // A reset is not among them: it may come after the request.
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::NotConnected
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable
    )
}

/// The cause that an error of the store keeps, as an `io::Error`: programs expect this type from a connection.
fn io_error(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => error,
        ureq::Error::Timeout(timeout) => io::Error::new(ErrorKind::TimedOut, timeout.to_string()),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that breaks off after this text.
    struct Broken(&'static [u8]);

    impl Read for Broken {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(ErrorKind::TimedOut.into()),
                count => Ok(count),
            }
        }
    }

    /// A file with a token often ends with a line break.
    #[test]
    fn a_token_that_no_header_may_have_is_told_and_not_shown() {
        for token in ["sesame\n", "\u{7f}sesame"] {
            let secret = Some(("x-consul-token", token));
            let (method, path) = (http::Method::GET, "/v1/kv/");
            let call = HttpCall { method, path, body: "", secret, is_repeatable: true, is_stream: false };
            let told = request("http://h", &call).expect_err("no such header").to_string();
            assert!(told.contains("without a line break") && !told.contains("ses"), "{told}");
        }
    }

    #[test]
    fn whole_lines_of_a_stream_count_whatever_comes_after_them() {
        assert_eq!(lines("a\nb".as_bytes()).expect("an end"), "a\nb");
        assert_eq!(lines(Broken(b"a\nb\nc")).expect("two lines"), "a\nb\n");
        assert!(lines(Broken(b"a")).is_err());
    }
}
