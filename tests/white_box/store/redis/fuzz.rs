//! The fuzz targets for whatever comes from a server, or leads to one: see [`crate::check::fuzz`].

use super::RedisLockProcessor;
use super::cluster;
use super::inbox::payload;
use super::net::address::{Address, NOT_SHOWN, Place, SCHEMES};
use super::net::classify::{classify, is_no_master, is_noscript};
use super::net::handshake::check_hello;
use super::net::identity::Identity;
use super::net::resp::{Malformed, NO_TEXT, Parser};
use super::script::message;
use super::script::reply::{HIGHEST_NUMBER, outcome};
use super::sentinel;
use crate::check::fuzz::target::{Target, assert_plain, assert_plain_error};
use crate::check::fuzz::trees::{encode, grow};
use crate::error::{BackendFailure, Error};
use crate::one_line::OneLine;
use crate::port::{
    AcquireOutcome, Break, BreakOutcome, Broken, Busy, Claim, DelayReleaseOutcome, ExtendOutcome, Extension, Grant,
    Message, NotOurs, Outcome, PollOutcome, ProbeOutcome, ReleaseDelay, ReleaseOutcome, Request,
};
use ::redis::Value;
use std::time::Duration;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "url", check: url },
    Target { name: "message", check: published },
    Target { name: "reply", check: reply },
    Target { name: "resp", check: resp },
    Target { name: "error", check: error },
    Target { name: "hello", check: hello },
];

/// Stands in the place of a password, where it must never be shown.
const SECRET: &str = "s3crt";

/// A URL that can be read can be written down again, and shows no password. Of any other URL only a scheme that means Redis is shown.
fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if sentinel::url::is_sentinel(&text) {
        return service(&text);
    }
    if cluster::url::is_cluster(&text) {
        return seeds(&text);
    }
    match Address::parse(&text) {
        Ok(address) => {
            let shown =
                format!("{address} {address:?} {:?}", RedisLockProcessor::builder(&text).expect("the same URL"));
            assert_plain(&shown);
            let again = Address::parse(&printed(&address)).expect("what was printed is read");
            let parts = |a: &Address| (a.place.clone(), a.user.clone(), a.password.clone(), a.db);
            assert_eq!(parts(&again), parts(&address));
            let place = match &address.place {
                Place::Tcp { host, .. } => host.clone(),
                Place::Unix(path) => path.to_string_lossy().into_owned(),
                Place::Service { .. } => panic!("{address:?} is read elsewhere"),
            };
            assert!(place.contains(SECRET) || !shown.contains(SECRET), "{shown}");
        }
        Err(error) => {
            let value = refused(&error);
            let scheme = value.strip_suffix(NOT_SHOWN).expect("it is not shown");
            let is_known = |known: &&str| scheme.strip_prefix(*known) == Some("://… ") && text.starts_with(*known);
            assert!(scheme.is_empty() || SCHEMES.iter().any(is_known), "{value}");
        }
    }
}

/// Returns what the error for a URL shows of it, which is no password.
fn refused(error: &Error) -> &str {
    assert_plain_error(error);
    let Error::InvalidConfig { what: "URL", value, .. } = error else { panic!("{error:?}") };
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    value
}

/// A URL of Sentinels that can be read has a service and hosts, and shows no password. Of any other one only the scheme is shown.
fn service(text: &str) {
    match sentinel::url::parse(text) {
        Ok(service) => {
            let builder = RedisLockProcessor::builder(text).expect("the same URL");
            let shown = format!("{} {service:?} {builder:?}", service.address);
            assert_plain(&shown);
            let Place::Service { name, .. } = &service.address.place else { panic!("{:?}", service.address) };
            assert!(!name.is_empty() && !service.sentinels.is_empty());
            let hosts: String = service.sentinels.iter().map(|sentinel| sentinel.to_string()).collect();
            assert!(name.contains(SECRET) || hosts.contains(SECRET) || !shown.contains(SECRET), "{shown}");
        }
        Err(error) => assert!(refused(&error).ends_with(NOT_SHOWN), "{error}"),
    }
}

/// A URL of a Cluster that can be read has nodes, and shows no password. Of any other one only the scheme is shown.
fn seeds(text: &str) {
    match cluster::url::parse(text) {
        Ok(seeds) => {
            let shown = format!("{seeds:?} {:?}", RedisLockProcessor::builder(text).expect("the same URL"));
            assert_plain(&shown);
            let hosts: String = seeds.iter().map(|seed| seed.to_string()).collect();
            assert!(!seeds.is_empty() && (hosts.contains(SECRET) || !shown.contains(SECRET)), "{shown}");
        }
        Err(error) => assert!(refused(&error).ends_with(NOT_SHOWN), "{error}"),
    }
}

/// Writes an equivalent URL. Everything is percent-encoded except letters, digits and the slashes of a path.
fn printed(address: &Address) -> String {
    let encoded = |bytes: &[u8], plain: &[u8]| -> String {
        let one = |b: &u8| match b {
            b if b.is_ascii_alphanumeric() || plain.contains(b) => char::from(*b).to_string(),
            b => format!("%{b:02x}"),
        };
        bytes.iter().map(one).collect()
    };
    let part = |text: &str| encoded(text.as_bytes(), b"");
    let Address { place, user, password, db } = address;
    match place {
        Place::Tcp { host, port, tls } => {
            let scheme = if *tls { "rediss" } else { "redis" };
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let password = password.as_deref().map_or(String::new(), |password| format!(":{}", part(password)));
            format!("{scheme}://{}{password}@{host}:{port}/{db}", part(user.as_deref().unwrap_or_default()))
                .replace("//@", "//")
        }
        Place::Unix(path) => {
            let setting = |name: &str, value: &Option<String>| {
                value.as_deref().map_or(String::new(), |value| format!("&{name}={}", part(value)))
            };
            let path = encoded(path.as_os_str().as_encoded_bytes(), b"/");
            format!("unix://{path}?db={db}{}{}", setting("user", user), setting("pass", password))
        }
        Place::Service { .. } => panic!("{address:?} is read elsewhere"),
    }
}

/// A message that is read equals the one that was written, except for leading zeros of a number.
fn published(data: &[u8]) {
    let Some(message) = message::parse(data) else { return };
    let written = match &message {
        Message::Granted { key, locker, grant: Grant { number, waiting } } => {
            assert!(!locker.is_empty() && !locker.contains(' ') && *number <= HIGHEST_NUMBER);
            format!("granted {number} {waiting} {locker} {key}")
        }
        Message::Contended { key, locker } => {
            assert!(!locker.is_empty() && !locker.contains(' '));
            format!("contended {locker} {key}")
        }
        Message::Broken { key, locker } => {
            assert!(!locker.is_empty() && !locker.contains(' '));
            format!("broken {locker} {key}")
        }
        Message::Said { text } => return assert_eq!(text.as_bytes(), data),
        Message::Changed { .. } | Message::ChangedAmong { .. } => panic!("no message of this store: {message:?}"),
    };
    assert_eq!(message::parse(written.as_bytes()).as_ref(), Some(&message));
    assert!(written.len() <= data.len());
    let fields = if data.starts_with(b"g") { 5 } else { 3 };
    let last = |bytes: &[u8]| bytes.splitn(fields, |b| *b == b' ').last().map(<[u8]>::to_vec);
    assert_eq!(last(written.as_bytes()), last(data), "the key is all the rest");
}

/// One request of each kind.
fn requests() -> [Request<'static>; 9] {
    let claim = Claim::new("DLOCK_a_b", "h-1-ff", "h-1-ff-1", Duration::from_secs(1));
    [
        Request::Join(claim),
        Request::Poll(claim),
        Request::ExtendWithNumbers(claim),
        Request::Release(claim),
        Request::DelayRelease(claim, ReleaseDelay::new("a mark", Duration::from_secs(1))),
        Request::Probe(claim),
        Request::Inspect { key: "DLOCK_a_b" },
        Request::Break(Break::new("DLOCK_a_b", "h-1-ff-1", "h-2-ff", "why")),
        Request::Broken { key: "DLOCK_a_b", locker: "h-1-ff-1" },
    ]
}

/// Grows a tree of values, and reads it as the reply to each script in turn.
fn reply(mut data: &[u8]) {
    read(&grow(&mut data));
}

/// Reads a reply as each kind of outcome. A reply is accepted only if a script could write it; the error of a refused one shows only
/// its shape.
fn read(reply: &Value) {
    let refused = |error: Error| {
        assert_plain_error(&error);
        if !matches!(reply, Value::ServerError(_)) {
            assert!(matches!(&error, Error::Backend { failure: BackendFailure::Unknown, .. }), "{error:?}");
            assert!(error.to_string().chars().all(|c| c.is_ascii_graphic() || " …".contains(c)), "{error}");
            assert!(error.to_string().len() < 300, "{error}");
        }
    };
    for request in requests() {
        match outcome(&request, reply) {
            Ok(found) => {
                let again = outcome(&request, &written(&found)).expect("what a script writes is read");
                assert_eq!(again, found, "{reply:?}");
            }
            Err(error) => refused(error),
        }
    }
}

/// The reply by which a script reports this outcome, as documented in the header of each script.
fn written(outcome: &Outcome) -> Value {
    let int = |n: u64| Value::Int(i64::try_from(n).expect("came from an integer"));
    let number = |n: u64| {
        assert!(n <= HIGHEST_NUMBER, "{outcome:?}");
        int(n)
    };
    let string = |holder: &String| Value::BulkString(bytes_of(holder));
    let array = |items: &[Value]| Value::Array(items.to_vec());
    let busy = |code: i64, Busy { holder, remaining, .. }: &Busy| {
        let free = || Value::BulkString(b"(free for pollers)".to_vec());
        let pttl = remaining.map_or(Value::Int(-1), |left| int(u64::try_from(left.as_millis()).expect("in range")));
        array(&[Value::Int(code), holder.as_ref().map_or_else(free, string), pttl])
    };
    let not_ours = |NotOurs { holder }: &NotOurs| array(&[Value::Int(0), holder.as_ref().map_or(Value::Nil, string)]);
    let grant = |code: i64, grant: &Grant| array(&[Value::Int(code), number(grant.number), int(grant.waiting)]);
    match outcome {
        Outcome::Acquire(AcquireOutcome::Acquired(found)) if found.waiting == 0 => number(found.number),
        Outcome::Acquire(AcquireOutcome::Busy(other) | AcquireOutcome::Unqueued { busy: other, .. }) => busy(0, other),
        Outcome::Acquire(AcquireOutcome::Acquired(found)) | Outcome::Poll(PollOutcome::Acquired(found)) => {
            grant(1, found)
        }
        Outcome::Poll(PollOutcome::Waiting(other)) => busy(2, other),
        Outcome::Poll(PollOutcome::Gone) => array(&[Value::Int(3)]),
        Outcome::Extend(ExtendOutcome::Extended(Extension { waiting, numbers: None, .. })) => int(*waiting),
        Outcome::Extend(ExtendOutcome::Extended(Extension { waiting, numbers: Some(range), .. })) => {
            array(&[Value::Int(1), int(*waiting), number(*range.start()), number(*range.end())])
        }
        Outcome::Release(ReleaseOutcome::Released { waiting }) => int(*waiting),
        Outcome::Release(ReleaseOutcome::Passed(found)) => grant(2, found),
        Outcome::Release(ReleaseOutcome::Queued(other)) => busy(3, other),
        Outcome::DelayRelease(DelayReleaseOutcome::Delayed) | Outcome::Probe(ProbeOutcome::Ours) => Value::Int(1),
        Outcome::Extend(ExtendOutcome::NotOurs(other))
        | Outcome::Release(ReleaseOutcome::NotOurs(other))
        | Outcome::DelayRelease(DelayReleaseOutcome::NotOurs(other))
        | Outcome::Probe(ProbeOutcome::NotOurs(other)) => not_ours(other),
        Outcome::Inspect(found) => {
            let pttl =
                found.remaining.map_or(Value::Int(-1), |left| int(u64::try_from(left.as_millis()).expect("in range")));
            array(&[found.holder.as_ref().map_or(Value::Nil, string), pttl, int(found.waiting)])
        }
        Outcome::Break(BreakOutcome::Broken { next, waiting }) => {
            array(&[Value::Int(1), next.as_ref().map_or(Value::Nil, string), int(*waiting)])
        }
        Outcome::Break(BreakOutcome::NotHeldBy { holder }) => {
            array(&[Value::Int(0), holder.as_ref().map_or(Value::Nil, string)])
        }
        Outcome::Broken(found) => {
            let words = |found: &Broken| Value::BulkString(format!("{} {}", found.by, found.reason).into_bytes());
            found.as_ref().map_or(Value::Nil, words)
        }
        Outcome::Settle(()) => panic!("no script settles"),
    }
}

/// The bytes of a holder that is shown so: no two are shown alike.
fn bytes_of(holder: &str) -> Vec<u8> {
    if !holder.contains("\\x") {
        return holder.into();
    }
    let (mut bytes, mut rest) = (Vec::new(), holder.as_bytes());
    while let [first, behind @ ..] = rest {
        let (byte, after) = match (first, behind) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = String::from_utf8_lossy(&[*high, *low]).into_owned();
                (u8::from_str_radix(&digits, 16).expect("two digits"), after)
            }
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b'r', after @ ..]) => (b'\r', after),
            (b'\\', [escaped, after @ ..]) => (*escaped, after),
            _ => (*first, behind),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// Bytes from a server yield the same replies however they are cut into pieces. The parser of the crate `redis` reads the same replies,
/// and no text where we read none.
fn resp(data: &[u8]) {
    let cut = data.first().map_or(1, |b| usize::from(b % 7) + 1);
    let whole = replies(data, data.len().max(1));
    assert_eq!(whole, replies(data, cut));
    let ((replies, why), mut at) = (whole, 0);
    for (value, end) in &replies {
        assert_eq!(Some(value), ::redis::parse_redis_value(&data[at..*end]).ok().as_ref());
        at = *end;
    }
    if why == Some(NO_TEXT) {
        assert!(::redis::parse_redis_value(&data[at..]).is_err());
    }
    for (value, _) in replies {
        let mut wire = Vec::new();
        encode(&value, &mut wire);
        assert_eq!(Parser::default().next(&wire), Ok(Some((value.clone(), wire.len()))));
        read(&value);
        judged(&value);
        if let Some(payload) = payload(&value) {
            published(payload);
        }
    }
}

/// The replies in these bytes and where they end, if the bytes arrive in pieces, and why what follows is no reply.
fn replies(data: &[u8], piece: usize) -> (Vec<(Value, usize)>, Option<Malformed>) {
    let (mut reader, mut start, mut replies) = (Parser::default(), 0, Vec::new());
    for come in (0..data.len()).step_by(piece).map(|from| (from + piece).min(data.len())) {
        loop {
            match reader.next(&data[start..come]) {
                Ok(Some((value, length))) => {
                    assert!(length > 0 && start + length <= come);
                    start += length;
                    replies.push((value, start));
                }
                Ok(None) => break,
                Err(why) => return (replies, Some(why)),
            }
        }
    }
    (replies, None)
}

/// A known error stays that error whatever text follows its words, unless they end in the position at which a script raised it: then
/// the outcome is unknown. The server's words are shown, on one line.
fn error(data: &[u8]) {
    let line = String::from_utf8_lossy(data).replace("\r\n", " ");
    let parsed = |line: &str| match ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
        Ok(Value::ServerError(e)) => Some(e),
        _ => None,
    };
    let Some(reply) = parsed(&line) else { return };
    let error = classify(&reply, "DLOCK_a\n_b");
    assert_plain_error(&error);
    let detail = reply.details().unwrap_or_default();
    let shown = error.to_string();
    if line.contains(" has no permissions") {
        assert!(!shown.contains(&format!("User {SECRET} has no permissions")), "{shown}");
    } else {
        assert!(shown.contains(&OneLine(detail).to_string()), "{shown} lacks {detail:?}");
    }
    if !detail.is_empty() {
        let longer = parsed(&format!("{line} and more")).expect("an error, too");
        assert_eq!(class(&classify(&longer, "")), class(&error));
        let raised = classify(&parsed(&format!("{line} script: 5e3e, on @user_script:2.")).expect("an error, too"), "");
        assert!(matches!(raised, Error::Backend { failure: BackendFailure::Unknown, .. }), "{raised:?}");
    }
    let value = Value::ServerError(reply);
    cluster::read(&value);
    if line.contains(", on @user_script:") {
        assert!(matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. }), "{error:?}");
    } else if is_noscript(&value) || is_no_master(&value) {
        assert!(matches!(error, Error::Backend { failure: BackendFailure::NotExecuted, .. }), "{error:?}");
    }
    read(&value);
    judged(&value);
}

fn class(error: &Error) -> (std::mem::Discriminant<Error>, Option<BackendFailure>) {
    let failure = match error {
        Error::Backend { failure, .. } => Some(*failure),
        _ => None,
    };
    (std::mem::discriminant(error), failure)
}

fn hello(data: &[u8]) {
    if let Ok(Some((value, _))) = Parser::default().next(data) {
        judged(&value);
        // What comes next in a handshake, and what a Sentinel says.
        let _ = Identity::read(&value);
        sentinel::read(&value);
        cluster::read(&value);
    }
}

/// A server that answers `HELLO` with this reply can carry locks, or is refused with a one-line error; the outcome is never unknown.
fn judged(reply: &Value) {
    let place = Place::Tcp { host: "host".to_owned(), port: 6379, tls: false };
    let address = Address { place, user: None, password: Some(SECRET.to_owned()), db: 0 };
    match check_hello(reply, &address) {
        Ok(_) => assert!(matches!(reply, Value::Array(fields) if fields.len() > 1), "{reply:?}"),
        Err(error) => {
            assert_plain_error(&error);
            assert!(!matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. }), "{error:?}");
            if let Value::ServerError(e) = reply {
                assert!(e.code().contains(SECRET) || !format!("{error} {error:?}").contains(SECRET), "{error}");
            }
        }
    }
}
