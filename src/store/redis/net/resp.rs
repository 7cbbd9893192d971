//! Commands as bytes, and bytes as replies.
//!
//! The calling thread packs a command once. The writer of the connection copies the bytes once, into its write. Two parts of a packed
//! command may still change. When the connection writes the command, it may write a [`Stamp`] over five of its bytes. If the server answers
//! that it does not know the script's hash (`EVALSHA`, the *short form*), the hash is replaced by the script's text (`EVAL`). So [`Packed`]
//! records where these two parts are.
//!
//! A reply arrives in pieces, and [`Parser`] continues where the previous piece ended. Bytes that are not a RESP2 reply, or that exceed the
//! bounds below, end the connection. The server, or another program at its address, may announce huge lengths. Without the bounds, the
//! client could run out of memory then, or take the bytes of one reply for another.

use ::redis::Value;
use smallvec::SmallVec;
use std::num::NonZeroUsize;
use std::ops::Range;

/// How deep arrays may nest. The deepest reply that we expect is `HELLO`'s, with two levels.
const MAX_DEPTH: usize = 8;
/// How long a line may be: room for an error message that contains a long script.
const MAX_LINE: usize = 64 * 1024;
/// How long a bulk string may be: Redis itself stops at 512 MB.
const MAX_BULK: usize = 512 * 1024 * 1024;
/// How many elements an array may have.
const MAX_ELEMENTS: usize = 1024 * 1024;
/// For how many elements room is made before they come.
const EXPECTED: usize = 16;

/// Bytes that a connection writes over the places that its commands reserve for them. Only the code that packs the commands knows what they
/// mean.
pub(crate) type Stamp = [u8; 5];

/// A word of a command. The words are borrowed until they are packed, so a command needs no memory but its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word<'a> {
    Text(&'a str),
    /// A value of another program, which is no text.
    Bytes(&'a [u8]),
    /// The parts of one text. The server gets one word, and the caller need not join the parts.
    Parts(&'a [&'a str]),
    /// The same, but a stamp may replace the bytes at its end. A command has at most one such word.
    Stamped(&'a [&'a str]),
}

/// Packed commands, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// The commands, in the order of their bytes. Each has one reply.
    commands: SmallVec<[Command; 4]>,
    /// Whether a connection that confirms its writes confirms these commands before they are answered.
    pub(crate) is_confirmed: bool,
}

/// Where a command is in the bytes, and what can be changed in it after it was packed.
#[derive(Clone, Debug)]
struct Command {
    /// Where its first byte is. It ends where the next command begins.
    start: usize,
    /// Two words in a short form, which the server may not know, and their full form.
    short: Option<(Range<usize>, &'static [&'static str; 2])>,
    /// Where a stamp is written over what is there.
    stamp_at: Option<NonZeroUsize>,
}

impl Packed {
    /// An empty buffer with capacity for one call.
    pub(crate) fn for_one() -> Self {
        // This is enough for a plain attempt, and for a script in its short form, if the lock has a name of usual length.
        Self { bytes: Vec::with_capacity(320), commands: SmallVec::new(), is_confirmed: false }
    }

    /// One command of plain words.
    pub(crate) fn of(words: &[&str]) -> Self {
        let mut packed = Self::default();
        packed.words(words);
        packed
    }

    /// Returns the number of replies that these commands will have.
    pub(crate) fn replies(&self) -> usize {
        self.commands.len()
    }

    /// Returns the offsets in the bytes at which a stamp is written over what is there.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = usize> + '_ {
        self.commands.iter().filter_map(|command| command.stamp_at.map(NonZeroUsize::get))
    }

    /// Returns the texts that the short forms in these commands stand for.
    pub(crate) fn short_texts(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.commands.iter().filter_map(|command| command.short.as_ref().map(|(_, [_, text])| *text))
    }

    /// Leaves only the commands at these places, in their full form.
    pub(crate) fn spell_out(&mut self, places: impl IntoIterator<Item = usize>) {
        let mut spelt = Self { is_confirmed: self.is_confirmed, ..Self::default() };
        for at in places {
            // The bytes before the short form are kept, then comes the full form, then the rest: keys and arguments need no second packing.
            let Some(Command { start, short, stamp_at }) = self.commands.get(at) else { continue };
            let end = self.commands.get(at + 1).map_or(self.bytes.len(), |next| next.start);
            spelt.begin();
            let mut tail = *start;
            if let Some((short, full)) = short {
                spelt.bytes.extend_from_slice(&self.bytes[*start..short.start]);
                let [verb, text] = **full;
                spelt.bulks([Word::Text(verb), Word::Text(text)].into_iter());
                tail = short.end;
            }
            if let Some(stamp_at) = stamp_at {
                // A stamp is in a word behind the two.
                spelt.stamp_from(spelt.bytes.len() + stamp_at.get() - tail);
            }
            spelt.bytes.extend_from_slice(&self.bytes[tail..end]);
        }
        *self = spelt;
    }

    /// Adds a command of plain words.
    pub(crate) fn words(&mut self, words: &[&str]) {
        self.command(words.iter().map(|word| Word::Text(word)));
    }

    /// Adds a command.
    pub(crate) fn command<'w>(&mut self, words: impl ExactSizeIterator<Item = Word<'w>>) {
        self.begin();
        self.header(b'*', words.len());
        self.bulks(words);
    }

    /// Adds the call of a script: the two words that name it, the number of its keys, its keys and its arguments. If the two words are given in a
    /// `short` form, which the server may not know, the `full` form is kept for [`spell_out`](Self::spell_out).
    pub(crate) fn script(
        &mut self,
        short: Option<[&str; 2]>,
        full: &'static [&'static str; 2],
        keys: &[Word<'_>],
        args: &[Word<'_>],
    ) {
        self.begin();
        self.header(b'*', 3 + keys.len() + args.len());
        let start = self.bytes.len();
        let [verb, name] = short.unwrap_or(*full);
        self.bulks([Word::Text(verb), Word::Text(name)].into_iter());
        let end = self.bytes.len();
        if short.is_some()
            && let Some(command) = self.commands.last_mut()
        {
            command.short = Some((start..end, full));
        }
        // The server tells keys from arguments by this number.
        let number = ["0", "1", "2", "3", "4"][keys.len()];
        self.bulks([Word::Text(number)].iter().chain(keys).chain(args).copied());
    }

    /// Begins a command, whose bytes follow.
    pub(crate) fn begin(&mut self) {
        self.commands.push(Command { start: self.bytes.len(), short: None, stamp_at: None });
    }

    /// Adds words to the command that was begun.
    fn bulks<'w>(&mut self, words: impl Iterator<Item = Word<'w>>) {
        for word in words {
            let (bytes, parts): (&[u8], &[&str]) = match &word {
                Word::Bytes(bytes) => (bytes, &[]),
                Word::Text(text) => (text.as_bytes(), &[]),
                Word::Parts(parts) | Word::Stamped(parts) => (&[], parts),
            };
            // The length of the whole word comes before its first byte.
            self.header(b'$', bytes.len() + parts.iter().copied().map(str::len).sum::<usize>());
            self.bytes.extend_from_slice(bytes);
            for part in parts {
                self.bytes.extend_from_slice(part.as_bytes());
            }
            if let Word::Stamped(_) = word {
                self.stamp_from(self.bytes.len() - size_of::<Stamp>());
            }
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Notes where in the command that was begun a stamp is written over what is there.
    pub(crate) fn stamp_from(&mut self, offset: usize) {
        if let Some(command) = self.commands.last_mut() {
            // The offset is never zero, because the command's header comes before it.
            command.stamp_at = NonZeroUsize::new(offset);
        }
    }

    fn header(&mut self, kind: u8, n: usize) {
        match n {
            // Each word has a header, and nearly all words are shorter than a hundred bytes.
            0..10 => self.bytes.extend_from_slice(&[kind, b'0' + n as u8, b'\r', b'\n']),
            10..100 => {
                self.bytes.extend_from_slice(&[kind, b'0' + (n / 10) as u8, b'0' + (n % 10) as u8, b'\r', b'\n']);
            }
            _ => {
                self.bytes.push(kind);
                self.bytes.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// The bytes are no reply that we take: the connection is out of step and must be dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A line that must be text and is not.
pub(crate) const NO_TEXT: Malformed = Malformed("a line that is no text");

/// Reads replies from bytes that come in pieces. No byte is read twice, except those of a line whose end has not come.
///
/// ```text
///   reply = + text CRLF             status
///         | - text CRLF             error
///         | : number CRLF           integer
///         | $ length CRLF bytes CRLF, or $ -1 CRLF for nil
///         | * length CRLF, followed by as many replies, or * -1 CRLF for nil
/// ```
///
/// These are all types of RESP2, which is what `HELLO 2` asks for. Errors are read by `::redis::parse_redis_value`, because only that
/// crate can make its type of them. The parser needs ten times as long, but errors are rare.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The bytes before this offset have been read.
    at: usize,
    /// The length of the bulk string that begins at the offset, if its length has been read.
    bulk: Option<usize>,
    /// The arrays that are not complete, outermost first, each with the number of elements that it lacks.
    open: Vec<(Vec<Value>, usize)>,
}

impl Parser {
    /// Returns the first reply in `bytes` and its length, or `None` if it is not complete. After `None`, the next call's `bytes` must start
    /// with the same bytes; after a reply, the next call starts a new one.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
        // This does not recurse: the server chooses how deep a reply nests, and the stack is the caller's.
        while let Some(mut value) = self.element(bytes)? {
            loop {
                let Some((items, lacking)) = self.open.last_mut() else {
                    return Ok(Some((value, std::mem::take(&mut self.at))));
                };
                items.push(value);
                *lacking -= 1;
                if *lacking > 0 {
                    break;
                }
                value = Value::Array(std::mem::take(items));
                self.open.pop();
            }
        }
        Ok(None)
    }

    /// Reads the next element that is not an array with elements, and opens the arrays before it.
    fn element(&mut self, bytes: &[u8]) -> Result<Option<Value>, Malformed> {
        loop {
            if let Some(length) = self.bulk {
                let end = self.at + length;
                // The bytes of a long string are not looked at before its end has come.
                let Some(crlf) = bytes.get(end..end + 2) else { return Ok(None) };
                // Only its length delimits a bulk string. If something else stood at its end, the bytes that follow would be read as replies to other
                // commands.
                if crlf != b"\r\n" {
                    return Err(Malformed("a bulk string without its end"));
                }
                let content = bytes[self.at..end].to_vec();
                (self.at, self.bulk) = (end + 2, None);
                return Ok(Some(Value::BulkString(content)));
            }
            let start = self.at;
            // The offset moves only behind a whole line, so that a line which comes in pieces is read again from its first byte.
            let Some((kind, rest)) = line(&bytes[start..])? else { return Ok(None) };
            self.at += 1 + rest.len() + 2;
            return Ok(Some(match kind {
                b'+' if rest == b"OK" => Value::Okay,
                b'+' => Value::SimpleString(text(rest)?.to_owned()),
                b'-' => ::redis::parse_redis_value(&bytes[start..self.at]).map_err(|_| NO_TEXT)?,
                b':' => Value::Int(number(rest)?),
                _ => match (kind, number(rest)?) {
                    // `EXEC` answers a nil array, and `GET` a nil bulk string. Both mean that there is nothing.
                    (_, -1) => Value::Nil,
                    (b'$', n) => {
                        self.bulk = Some(length(n, MAX_BULK)?);
                        continue;
                    }
                    // An empty array is complete: no element follows that could complete it.
                    (_, 0) => Value::Array(Vec::new()),
                    (_, n) => {
                        let lacking = length(n, MAX_ELEMENTS)?;
                        if self.open.len() == MAX_DEPTH {
                            // No command of this crate has such a reply. A server that sends it is broken, or wants to use up memory.
                            return Err(Malformed("too many nested arrays"));
                        }
                        // There is room for a usual number of elements, and not for the claimed number: any server can claim any length.
                        self.open.push((Vec::with_capacity(lacking.min(EXPECTED)), lacking));
                        continue;
                    }
                },
            }));
        }
    }
}

/// Returns the type byte of the first line and what follows it, without the CRLF, or `None` if the line is not complete.
fn line(bytes: &[u8]) -> Result<Option<(u8, &[u8])>, Malformed> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    if !b"+-:$*".contains(kind) {
        return Err(Malformed("an unknown type of reply"));
    }
    for (end, pair) in rest.windows(2).take(MAX_LINE).enumerate() {
        if pair == b"\r\n" {
            return Ok(Some((*kind, &rest[..end])));
        }
    }
    if rest.len() > MAX_LINE { Err(Malformed("a line without an end")) } else { Ok(None) }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| NO_TEXT)
}

/// Reads a number as `str::parse` does.
fn number(line: &[u8]) -> Result<i64, Malformed> {
    // Nearly every reply has a number, and nearly all numbers have this form. This loop takes half the time of `str::parse`. Eighteen digits do not
    // overflow.
    if (1..=18).contains(&line.len()) && line.iter().all(u8::is_ascii_digit) {
        let mut number = 0;
        for digit in line {
            number = number * 10 + i64::from(digit - b'0');
        }
        return Ok(number);
    }
    text(line).ok().and_then(|line| line.parse().ok()).ok_or(Malformed("a number that is none"))
}

fn length(n: i64, limit: usize) -> Result<usize, Malformed> {
    usize::try_from(n).ok().filter(|n| *n <= limit).ok_or(Malformed("an absurd length"))
}

/// Describes a reply's types, without its contents. An array that nests deeper than our replies is described only as an array, so that it does not
/// fill the log.
pub(crate) fn shape(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let shown: Vec<_> = items.iter().take(6).map(kind).collect();
            let more = if items.len() > shown.len() { ", …" } else { "" };
            format!("[{}{more}]", shown.join(", "))
        }
        other => kind(other).to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Int(_) => "integer",
        Value::BulkString(_) => "string",
        Value::Okay | Value::SimpleString(_) => "status",
        Value::ServerError(_) => "error",
        Value::Array(_) => "array",
        _ => "no RESP2 type",
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/net/resp.rs"]
mod tests;
