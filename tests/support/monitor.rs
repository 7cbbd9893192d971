//! Every command that a server executes, in the order of execution (`MONITOR`).

use super::RedisServer;
use super::crew::{Member, spawn};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// One command.
#[derive(Clone, Debug)]
pub(crate) struct Executed {
    /// When, in microseconds of the server's clock.
    pub(crate) at: u64,
    /// Whether a script did it; the script's own call comes before.
    pub(crate) by_script: bool,
    /// Its name in small letters, and its arguments. Only for arguments without quotes and backslashes.
    pub(crate) words: Vec<String>,
}

/// Listens, until it is asked.
pub(crate) struct Monitor {
    reader: Member<Vec<Executed>>,
}

/// The last that it listens to.
const END: &str = "the end of the monitor";

impl Monitor {
    pub(crate) fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "+OK");
        Self {
            reader: spawn(move || {
                lines.take_while(|line| !line.contains(END)).filter_map(|line| parse(&line)).collect()
            }),
        }
    }

    /// What was executed since the start.
    pub(crate) fn stop(self, server: &RedisServer) -> Vec<Executed> {
        server.run::<String>(&["ECHO", END]);
        self.reader.join()
    }
}

/// `+1700000000.123456 [0 127.0.0.1:5000] "get" "x"`, with `lua` for the address inside a script.
fn parse(line: &str) -> Option<Executed> {
    let (head, words) = line.strip_prefix('+')?.split_once("] \"")?;
    let (seconds, rest) = head.split_once('.')?;
    let (micros, client) = rest.split_once(' ')?;
    let mut words: Vec<_> = words.trim_end_matches('"').split("\" \"").map(str::to_owned).collect();
    words[0].make_ascii_lowercase();
    let at = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    Some(Executed { at, by_script: client.ends_with("lua"), words })
}
