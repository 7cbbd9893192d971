//! As much of HTTP/1.1 as a scraper needs: one request a connection, without a body.

use crate::timing;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// The longest head of a request.
const LONGEST: usize = 8192;

/// How many header fields a request may have.
const FIELDS: usize = 64;

/// Answers scrapers, one after the other, for ever. The page is there as long as the process is.
pub(super) fn serve(listener: &TcpListener, page: impl Fn() -> Option<String>) {
    loop {
        match listener.accept() {
            // A scraper that has gone away, or talks nonsense, is no concern of the next one.
            Ok((stream, _)) => drop(answer(stream, &page)),
            // The process has no more descriptors, say: a moment later it may have some.
            Err(_) => thread::sleep(timing::ACCEPT_PAUSE),
        }
    }
}

fn answer(mut stream: TcpStream, page: &impl Fn() -> Option<String>) -> io::Result<()> {
    stream.set_write_timeout(Some(timing::SCRAPER_WITHIN))?;
    let head = head(&mut stream)?;
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let is_read = request.parse(&head).is_ok_and(|status| status.is_complete());
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let (status, body) = match (is_read, request.method, path) {
        (false, ..) => ("400 Bad Request", "this is no request of HTTP/1.1\n".to_owned()),
        (_, Some("GET" | "HEAD"), "/metrics") => ("200 OK", page().unwrap_or_default()),
        (_, Some("GET" | "HEAD"), "/") => ("200 OK", "dlock exporter: /metrics has the figures\n".to_owned()),
        (_, Some("GET" | "HEAD"), _) => ("404 Not Found", "there is /metrics alone\n".to_owned()),
        _ => ("405 Method Not Allowed", "use GET\n".to_owned()),
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if request.method != Some("HEAD") {
        reply.push_str(&body);
    }
    stream.write_all(reply.as_bytes())
}

/// Reads a request up to the end of its head.
fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + timing::SCRAPER_WITHIN;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            read => head.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(head)
}
