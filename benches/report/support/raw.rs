//! The barest connection to Redis: packed bytes out, replies counted.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// A port of the loopback interface.
    Tcp(u16),
    /// A socket file.
    Unix(PathBuf),
}

impl Address {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Tcp(port) => format!("redis://127.0.0.1:{port}/"),
            Self::Unix(path) => format!("unix://{}", path.display()),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection without anything that could be left out.
pub(crate) struct Raw {
    stream: Stream,
    buffer: Vec<u8>,
    /// How much of the buffer has come and was not taken.
    filled: usize,
    /// Whether it polls for replies, and yields in between.
    polls: bool,
}

impl Raw {
    pub(crate) fn connect(address: &Address) -> Self {
        Self::try_connect(address).unwrap()
    }

    pub(crate) fn try_connect(address: &Address) -> std::io::Result<Self> {
        let stream = match address {
            Address::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Self { stream, buffer: vec![0; 64 * 1024], filled: 0, polls: false })
    }

    /// Makes it poll for replies, and yield in between, instead of sleeping until they come.
    pub(crate) fn polling(mut self) -> Self {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
        .unwrap();
        self.polls = true;
        self
    }

    /// Writes commands and reads as many replies; an error among them is a fault of the bench.
    pub(crate) fn exchange(&mut self, commands: &[u8], replies: usize) {
        self.send(commands);
        (0..replies).for_each(|_| self.reply(|reply| assert_ne!(reply[0], b'-', "{}", text(reply))));
    }

    /// Runs one command and gives its reply as text.
    pub(crate) fn command(&mut self, words: &[&str]) -> String {
        self.send(&pack(words));
        self.reply(text)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
        .unwrap();
    }

    /// Waits for the next reply and looks at it.
    pub(crate) fn reply<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> R {
        loop {
            if let Some(end) = frame_end(&self.buffer[..self.filled]) {
                let result = look(&self.buffer[..end]);
                self.buffer.copy_within(end..self.filled, 0);
                self.filled -= end;
                return result;
            }
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            let space = &mut self.buffer[self.filled..];
            let n = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(space),
                Stream::Unix(stream) => stream.read(space),
            };
            let n = match n {
                Err(e) if self.polls && e.kind() == ErrorKind::WouldBlock => {
                    thread::yield_now();
                    continue;
                }
                n => n.unwrap(),
            };
            assert!(n > 0, "the server closed the connection");
            self.filled += n;
        }
    }
}

/// A command as the server wants it.
pub(crate) fn pack(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

/// The length of the first complete frame, of a command or a reply.
pub(crate) fn frame_end(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == b'\n')?;
    let number = || text(&bytes[1..line - 1]).parse::<isize>().unwrap();
    let mut end = line + 1;
    match bytes[0] {
        b'$' => end += usize::try_from(number()).map_or(0, |n| n + 2),
        b'*' => {
            for _ in 0..number() {
                end += frame_end(&bytes[end.min(bytes.len())..])?;
            }
        }
        _ => {}
    }
    (end <= bytes.len()).then_some(end)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The least that a lock can be: `SET key value NX PX lease`, then get-compare-del by `EVALSHA`.
pub(crate) struct Pair {
    pub(crate) set: Vec<u8>,
    pub(crate) delete: Vec<u8>,
}

impl Pair {
    /// The pair of a key, its script loaded.
    pub(crate) fn new(address: &Address, target: &str) -> Self {
        Self::with(address, target, "bench-host-4242-0123456789abcdef01234567-1", Duration::from_secs(30))
    }

    pub(crate) fn with(address: &Address, target: &str, value: &str, lease: Duration) -> Self {
        let sha = Raw::connect(address).command(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]);
        let (key, lease) = (format!("DLOCK_RAW_{target}"), lease.as_millis().to_string());
        Self {
            set: pack(&["SET", &key, value, "NX", "PX", &lease]),
            delete: pack(&["EVALSHA", sha.lines().nth(1).unwrap(), "1", &key, value]),
        }
    }

    /// Both, one after the other: two round trips.
    pub(crate) fn run(&self, on: &mut Raw) {
        assert!(self.try_lock(on), "somebody else has the key");
        assert!(self.unlock(on), "somebody else has the key");
    }

    pub(crate) fn try_lock(&self, on: &mut Raw) -> bool {
        on.send(&self.set);
        on.reply(|reply| reply == b"+OK\r\n")
    }

    pub(crate) fn unlock(&self, on: &mut Raw) -> bool {
        on.send(&self.delete);
        on.reply(|reply| reply == b":1\r\n")
    }
}
