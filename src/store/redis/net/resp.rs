//! Commands as bytes, and complete frames as values.

use ::redis::Value;
use std::ops::Range;

/// Bytes that a connection writes over some bytes of its commands. What they mean is the business of whoever packs the commands.
pub(crate) type Stamp = [u8; 5];

/// Packed commands, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// How many replies these commands will have.
    pub(crate) replies: usize,
    /// The offsets in `bytes` at which a stamp is written over what is there.
    pub(crate) stamp_at: Vec<usize>,
    /// The range in `bytes` of the two words that were added last in a short form, and their full form.
    short: Option<(Range<usize>, [&'static str; 2])>,
}

impl Packed {
    /// An empty buffer with capacity for one call.
    pub(crate) fn for_one() -> Self {
        Self { bytes: Vec::with_capacity(320), ..Self::default() }
    }

    /// Adds two words to the command that was begun, in a short form that the server may not know. Their full form is kept for
    /// [`spell_out`](Self::spell_out).
    pub(crate) fn short_form(&mut self, short: [&str; 2], full: [&'static str; 2]) {
        let start = self.bytes.len();
        short.iter().for_each(|word| self.bulk(word));
        self.short = Some((start..self.bytes.len(), full));
    }

    /// Replaces the short form by the full form, which is the longer one. The command must be the only one here.
    pub(crate) fn spell_out(&mut self) {
        let Some((short, full)) = self.short.take() else { return };
        let mut spelt = Self { bytes: self.bytes[..short.start].to_vec(), ..Self::default() };
        full.iter().for_each(|word| spelt.bulk(word));
        let longer = spelt.bytes.len() - short.end;
        spelt.bytes.extend_from_slice(&self.bytes[short.end..]);
        self.bytes = spelt.bytes;
        self.stamp_at.iter_mut().for_each(|at| *at += longer);
    }

    /// Adds a command of plain words.
    pub(crate) fn words(&mut self, words: &[&str]) {
        self.command(words.len());
        words.iter().for_each(|word| self.bulk(word));
    }

    /// Begins a command of this many words.
    pub(crate) fn command(&mut self, elements: usize) {
        self.replies += 1;
        self.header(b'*', elements);
    }

    /// Adds one word to the command that was begun.
    pub(crate) fn bulk(&mut self, text: &str) {
        self.header(b'$', text.len());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds one word: a text, a separator, and the bytes that a stamp may replace.
    pub(crate) fn bulk_with_stamp(&mut self, text: &str, separator: &str, unstamped: &Stamp) {
        self.header(b'$', text.len() + separator.len() + unstamped.len());
        [text, separator].iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        self.stamp_at.push(self.bytes.len());
        self.bytes.extend_from_slice(unstamped);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, n: usize) {
        let mut digits = itoa::Buffer::new();
        self.bytes.push(kind);
        self.bytes.extend_from_slice(digits.format(n).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// Reads one complete frame, as found by the framer. Falls back to the `redis` parser (ten times slower) for errors and rare types.
pub(crate) fn decode(frame: &[u8]) -> Option<Value> {
    let mut rest = frame;
    element(&mut rest).filter(|_| rest.is_empty()).or_else(|| ::redis::parse_redis_value(frame).ok())
}

/// Takes one element off the front.
fn element(rest: &mut &[u8]) -> Option<Value> {
    let (kind, line) = line(rest)?.split_first()?;
    match (kind, line) {
        (b':', digits) => number(digits).map(Value::Int),
        (b'+', b"OK") => Some(Value::Okay),
        (b'$' | b'*', b"-1") => Some(Value::Nil),
        (b'$', length) => {
            let bytes = rest.get(..usize::try_from(number(length)?).ok()?)?;
            *rest = rest[bytes.len()..].strip_prefix(b"\r\n")?;
            Some(Value::BulkString(bytes.to_vec()))
        }
        (b'*', length) => {
            let length = usize::try_from(number(length)?).ok()?;
            (0..length).map(|_| element(rest)).collect::<Option<_>>().map(Value::Array)
        }
        _ => None,
    }
}

/// Takes a line off the front.
fn line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.iter().position(|b| *b == b'\r')?;
    let line = &rest[..end];
    *rest = rest[end..].strip_prefix(b"\r\n")?;
    Some(line)
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Describes a reply's types, without its contents. An array nested deeper than ours is described only as an array: what a stranger
/// nests would fill the log.
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
pub(super) mod tests {
    use super::*;
    use crate::check::fuzz::trees::encode;
    use proptest::prelude::*;

    pub(in crate::store::redis::net) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            "[a-z ]{0,20}".prop_map(Value::SimpleString),
            proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..40)
                .prop_map(Value::BulkString),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| proptest::collection::vec(inner, 0..5).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn replies_are_read_as_the_parser_reads_them(value in values()) {
            let mut frame = Vec::new();
            encode(&value, &mut frame);
            prop_assert_eq!(decode(&frame), ::redis::parse_redis_value(&frame).ok());
            prop_assert_eq!(decode(&frame), Some(value));
        }
    }
}
