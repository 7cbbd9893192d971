//! Every command that a server executes, with its arguments byte by byte (`MONITOR`).

use crate::support::RedisServer;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// One command; inside a script, `client` is `lua`.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) client: String,
    /// In small letters.
    pub(crate) name: String,
    pub(crate) args: Vec<Vec<u8>>,
}

pub(crate) struct Monitor {
    lines: BufReader<TcpStream>,
    admin: redis::Connection,
    /// Where the commands of the test itself come from.
    own: String,
    marks: u64,
    /// Valkey 8.1 writes quotes and backslashes as they are: where an argument that has some ends cannot be told.
    is_escaped: bool,
}

impl Monitor {
    /// Begins to listen; commands on `admin` are left out.
    pub(crate) fn start(server: &RedisServer) -> Self {
        let mut admin = server.connection();
        let info: String = redis::cmd("CLIENT").arg("INFO").query(&mut admin).unwrap();
        let own = info.split(' ').find_map(|field| field.strip_prefix("addr=")).unwrap().to_owned();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut monitor = Self { lines: BufReader::new(stream), admin, own, marks: 0, is_escaped: true };
        assert_eq!(monitor.line(), "+OK");
        redis::cmd("ECHO").arg("\"\\").exec(&mut monitor.admin).unwrap();
        monitor.is_escaped = monitor.line().ends_with(r#" "\"\\""#);
        monitor
    }

    /// The text, with other characters in the place of those that this server's lines do not tell.
    pub(crate) fn readable(&self, text: &str) -> String {
        if self.is_escaped { text.to_owned() } else { text.replace(['"', '\\'], "'") }
    }

    /// A connection whose commands are not told.
    pub(crate) fn admin(&mut self) -> &mut redis::Connection {
        &mut self.admin
    }

    /// What was executed since the last call.
    pub(crate) fn take(&mut self) -> Vec<Command> {
        self.marks += 1;
        let mark = format!("mark {}", self.marks);
        redis::cmd("ECHO").arg(&mark).exec(&mut self.admin).unwrap();
        let mut found = Vec::new();
        loop {
            let line = self.line();
            let command = parse(&line).unwrap_or_else(|| panic!("{line:?}"));
            if command.client != self.own {
                found.push(command);
            } else if command.name == "echo" && command.args == [mark.as_bytes()] {
                return found;
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end_matches("\r\n").to_owned()
    }
}

/// `+1700000000.123456 [0 127.0.0.1:5000] "get" "x\n\xff"`.
fn parse(line: &str) -> Option<Command> {
    let (head, mut rest) = line.split_once("] ")?;
    let client = head.split_once('[')?.1.split_once(' ')?.1.to_owned();
    let mut words = Vec::new();
    while let Some(quoted) = rest.trim_start().strip_prefix('"') {
        let (word, after) = unquote(quoted)?;
        words.push(word);
        rest = after;
    }
    let name = String::from_utf8(words.first()?.to_ascii_lowercase()).ok()?;
    Some(Command { client, name, args: words.split_off(1) })
}

/// The bytes up to the closing quote, and what follows that.
fn unquote(text: &str) -> Option<(Vec<u8>, &str)> {
    let (mut word, mut chars) = (Vec::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        word.push(match c {
            '"' => return Some((word, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'a' => 7,
                'b' => 8,
                'x' => {
                    let (from, _) = chars.next()?;
                    chars.next()?;
                    u8::from_str_radix(text.get(from..from + 2)?, 16).ok()?
                }
                other => u8::try_from(other).ok()?,
            },
            plain => u8::try_from(plain).ok()?,
        });
    }
    None
}
