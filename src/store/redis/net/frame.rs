//! Finds the end of one complete RESP2 reply in the bytes received so far, without starting over when more arrive.
//!
//! Decoding is done by `resp` and `::redis::parse_redis_value`, which only ever see one complete frame of the five RESP2 types.

/// How deep arrays may nest. The deepest reply that we expect is `HELLO`'s, with two levels.
const MAX_DEPTH: usize = 8;
/// How long a simple line may be: room for an error message that contains a long script.
const MAX_LINE: usize = 64 * 1024;
/// How long a bulk string may be: Redis itself stops at 512 MB.
const MAX_BULK: usize = 512 * 1024 * 1024;
/// How many elements an array may have.
const MAX_ELEMENTS: usize = 1024 * 1024;

/// The bytes are not RESP2: the connection is out of step and must be dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The progress of the search for the end of one frame.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    /// The bytes before this offset have been examined.
    at: usize,
    /// How many elements each open array still lacks, outermost first.
    open: Vec<usize>,
    /// How many bytes of a bulk string, including its CRLF, must still be skipped.
    skip: usize,
}

impl Framer {
    /// Returns the length of the first frame in `bytes`, or `None` if it is not complete. After `None`, the next call's `bytes` must
    /// start with the same bytes; after a frame the search starts anew.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        loop {
            if self.skip > 0 {
                if bytes.len() < self.at + self.skip {
                    return Ok(None);
                }
                self.at += self.skip;
                self.skip = 0;
                if bytes[self.at - 2..self.at] != *b"\r\n" {
                    return Err(Malformed("a bulk string without its end"));
                }
            } else {
                let Some(line) = self.line(bytes)? else { return Ok(None) };
                let start = self.at;
                self.at += line.len() + 2;
                if self.header(&bytes[start..start + line.len()])? {
                    continue;
                }
            }
            if self.element_done() {
                let end = self.at;
                *self = Self::default();
                return Ok(Some(end));
            }
        }
    }

    /// The line at the current offset, without its CRLF.
    fn line<'b>(&self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, Malformed> {
        let rest = &bytes[self.at..];
        if rest.first().is_some_and(|b| !b"+-:$*".contains(b)) {
            return Err(Malformed("an unknown type of reply"));
        }
        match rest.windows(2).take(MAX_LINE).position(|pair| pair == b"\r\n") {
            Some(end) => Ok(Some(&rest[..end])),
            None if rest.len() > MAX_LINE => Err(Malformed("a line without an end")),
            None => Ok(None),
        }
    }

    /// Handles the line that starts an element. Returns `true` if more of this element follows.
    fn header(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        match line[0] {
            b'+' | b'-' => Ok(false),
            b':' => number(&line[1..]).map(|_| false),
            b'$' => match number(&line[1..])? {
                -1 => Ok(false),
                n => {
                    self.skip = length(n, MAX_BULK)? + 2;
                    Ok(true)
                }
            },
            _ => match number(&line[1..])? {
                -1 | 0 => Ok(false),
                n => {
                    self.open.push(length(n, MAX_ELEMENTS)?);
                    if self.open.len() > MAX_DEPTH { Err(Malformed("too many nested arrays")) } else { Ok(true) }
                }
            },
        }
    }

    /// Counts one complete element. Returns `true` if it completes the frame.
    fn element_done(&mut self) -> bool {
        while let Some(lacking) = self.open.last_mut() {
            *lacking -= 1;
            if *lacking > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(digits).map_err(|_| Malformed("a number that is none"))?;
    text.parse().map_err(|_| Malformed("a number that is none"))
}

fn length(n: i64, limit: usize) -> Result<usize, Malformed> {
    usize::try_from(n).ok().filter(|n| *n <= limit).ok_or(Malformed("an absurd length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::fuzz::trees::encode;
    use crate::store::redis::net::resp::decode;
    use crate::store::redis::net::resp::tests::values;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_found_however_the_bytes_are_cut(
            sent in proptest::collection::vec(values(), 1..6),
            cuts in proptest::collection::vec(1usize..9, 1..20),
        ) {
            let mut wire = Vec::new();
            sent.iter().for_each(|v| encode(v, &mut wire));
            let (mut framer, mut buffer, mut got) = (Framer::default(), Vec::new(), Vec::new());
            let (mut rest, mut cuts) = (wire.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let n = cuts.next().expect("a cycle never ends").min(rest.len());
                buffer.extend_from_slice(&rest[..n]);
                rest = &rest[n..];
                while let Some(end) = framer.end(&buffer).expect("well-formed") {
                    got.push(::redis::parse_redis_value(&buffer[..end]).expect("well-formed"));
                    buffer.drain(..end);
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn whatever_is_taken_for_a_frame_is_read_as_the_parser_reads_it(typed in "[+$*:0-9\r\n-]{0,30}") {
            if let Ok(Some(end)) = Framer::default().end(typed.as_bytes()) {
                let frame = &typed.as_bytes()[..end];
                prop_assert_eq!(decode(frame), ::redis::parse_redis_value(frame).ok());
            }
        }
    }

    #[test]
    fn what_is_no_resp2_is_refused() {
        for wire in [
            "HTTP/1.1 400\r\n",
            ":1x\r\n",
            "$-2\r\n",
            "$99999999999\r\n",
            "*99999999\r\n",
            "*-7\r\n",
            "$3\r\nabcde\r\n",
            "%1\r\n",
            ">2\r\n",
            "\r\n",
            "$\r\n",
        ] {
            assert!(Framer::default().end(wire.as_bytes()).is_err(), "{wire:?}");
        }
        assert!(Framer::default().end("*1\r\n".repeat(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(Framer::default().end(&vec![b'+'; MAX_LINE + 2]).is_err());
    }
}
