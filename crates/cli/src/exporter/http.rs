//! The part of HTTP/1.1 that a scraper needs: one request a connection, without a body.

use crate::timing;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The longest head of a request.
const LONGEST: usize = 8192;

/// How many header fields a request may have.
const FIELDS: usize = 64;

/// How many connections may exist at once that have not sent their requests, such as those of port scanners, and how many that have.
const MOST: usize = 64;

/// A connection that has not sent its request yet.
struct Silent(Arc<TcpStream>);

/// The request line of a scraper.
struct RequestLine {
    method: String,
    path: String,
}

/// Answers scrapers for ever, each on a thread of its own. If too many connections are silent, the oldest of these is ended: a scraper sends its
/// request at once, and need not wait for a silent connection.
pub(super) fn serve(listener: &TcpListener, page: impl Fn() -> Option<String> + Send + Sync + 'static) {
    // Each connection has a copy of this `Arc`.
    let page = Arc::new(page);
    // The oldest first.
    let mut silent = VecDeque::<Weak<Silent>>::new();
    loop {
        if Arc::strong_count(&page) > 2 * MOST {
            thread::sleep(timing::ACCEPT_PAUSE);
            continue;
        }
        // The process may have no more descriptors or threads: a moment later it may have some.
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(timing::ACCEPT_PAUSE);
            continue;
        };
        let (page, newest) = (page.clone(), Arc::new(Silent(Arc::new(stream))));
        silent.retain(|other| other.strong_count() > 0);
        silent.push_back(Arc::downgrade(&newest));
        if silent.len() > MOST
            && let Some(oldest) = silent.pop_front().and_then(|oldest| oldest.upgrade())
        {
            // The thread of this connection finds the end of its input.
            let _ = oldest.0.shutdown(Shutdown::Both);
        }
        // An error of one scraper does not concern the next one.
        let answer = move || drop(answer(newest, &*page));
        let _ = thread::Builder::new().name("dlock-scraper".to_owned()).spawn(answer);
    }
}

fn answer(silent: Arc<Silent>, page: &impl Fn() -> Option<String>) -> io::Result<()> {
    let stream = Arc::clone(&silent.0);
    let request = request(&stream);
    drop(silent);
    let request = request?;
    let target = request.as_ref().map_or(("", ""), |request| (&*request.method, path(&request.path)));
    let (status, body) = match target {
        _ if request.is_none() => ("400 Bad Request", "this is no request of HTTP/1.1\n".to_owned()),
        ("GET" | "HEAD", "/metrics") => ("200 OK", page().unwrap_or_default()),
        ("GET" | "HEAD", "/") => ("200 OK", "dlock exporter: /metrics has the figures\n".to_owned()),
        ("GET" | "HEAD", _) => ("404 Not Found", "there is /metrics alone\n".to_owned()),
        _ => ("405 Method Not Allowed", "use GET\n".to_owned()),
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if target.0 != "HEAD" {
        reply.push_str(&body);
    }
    write_and_close(&stream, reply.as_bytes())
}

/// The path of a target, which may be a whole URL, without what follows it.
fn path(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}

/// Reads a request up to the end of its head. `None` if this is no HTTP request.
fn request(stream: &TcpStream) -> io::Result<Option<RequestLine>> {
    let end = Instant::now() + timing::SCRAPER_WITHIN;
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while head.len() < LONGEST {
        match read(stream, &mut buffer, end)? {
            0 => break,
            read => head.extend_from_slice(&buffer[..read]),
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match (request.parse(&head), request.method, request.path) {
            (Ok(httparse::Status::Partial), ..) => {}
            (Ok(_), Some(method), Some(path)) => {
                return Ok(Some(RequestLine { method: method.to_owned(), path: path.to_owned() }));
            }
            _ => break,
        }
    }
    Ok(None)
}

fn read(mut stream: &TcpStream, buffer: &mut [u8], end: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(end)?))?;
    stream.read(buffer)
}

/// How much time is left until an end.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Writes an answer, and reads the rest of the request: closing a connection with unread input resets it, and the answer may be lost.
fn write_and_close(mut stream: &TcpStream, mut reply: &[u8]) -> io::Result<()> {
    let end = Instant::now() + timing::SCRAPER_WITHIN;
    while !reply.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(reply)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => reply = &reply[written..],
        }
    }
    stream.shutdown(Shutdown::Write)?;
    let mut unread = [0; 8192];
    while read(stream, &mut unread, end)? > 0 {}
    Ok(())
}
