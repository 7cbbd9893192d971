//! As much of the protocol as the proxy needs: where a frame ends, and which command it is.

use parking_lot::Mutex;
use std::collections::HashMap;

/// A command of the library, or of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// By the script, or the first command of a plain attempt.
    Acquire,
    /// What counts a number in a plain attempt.
    Count,
    Poll,
    Extend,
    Release,
    DelayRelease,
    Probe,
    Inspect,
    Break,
    Subscribe,
    /// By a replica. From then on, its master sends what is no frame.
    Replicate,
    Other,
}

/// Hashes of scripts whose text went through a proxy of this process.
static KNOWN: Mutex<Option<HashMap<String, Sent>>> = Mutex::new(None);

impl Sent {
    /// The command that a frame holds.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let words = words(frame);
        let word = |n: usize| words.get(n).map_or("", |word| *word);
        match word(0).to_ascii_uppercase().as_str() {
            "EVAL" => {
                let known = script(word(1));
                let hash = redis::Script::new(word(1)).get_hash().to_owned();
                KNOWN.lock().get_or_insert_default().insert(hash, known);
                known
            }
            "EVALSHA" => KNOWN.lock().as_ref().and_then(|known| known.get(word(1)).copied()).unwrap_or(Self::Other),
            "SUBSCRIBE" | "SSUBSCRIBE" => Self::Subscribe,
            "PSYNC" => Self::Replicate,
            "SET" if word(3) == "NX" && word(4) == "PX" => Self::Acquire,
            "INCR" if word(1).ends_with(":fence") => Self::Count,
            _ => Self::Other,
        }
    }
}

/// Scripts are told apart by the first line of their comment.
fn script(text: &str) -> Sent {
    let scripts = [
        (include_str!("../../../scripts/acquire.lua"), Sent::Acquire),
        (include_str!("../../../scripts/poll.lua"), Sent::Poll),
        (include_str!("../../../scripts/extend.lua"), Sent::Extend),
        (include_str!("../../../scripts/release.lua"), Sent::Release),
        (include_str!("../../../scripts/delay_release.lua"), Sent::DelayRelease),
        (include_str!("../../../scripts/probe.lua"), Sent::Probe),
        (include_str!("../../../scripts/inspect.lua"), Sent::Inspect),
        (include_str!("../../../scripts/break.lua"), Sent::Break),
    ];
    let title = text.lines().nth(1);
    scripts.into_iter().find(|(script, _)| script.lines().nth(1) == title).map_or(Sent::Other, |(_, sent)| sent)
}

/// Whether a frame is what a subscriber hears.
pub(crate) fn is_message(frame: &[u8]) -> bool {
    let Some((b"*3" | b">3", kind)) = line(frame, 0) else { return false };
    frame[kind..].starts_with(b"$7\r\nmessage\r\n") || frame[kind..].starts_with(b"$8\r\nsmessage\r\n")
}

/// What a server answers to a subscription to one channel; `None` for other commands.
pub(crate) fn confirmation(command: &[u8]) -> Option<Vec<u8>> {
    if Sent::of(command) != Sent::Subscribe {
        return None;
    }
    let words = words(command);
    let (kind, channel) = (words[0].to_ascii_lowercase(), words[1]);
    Some(format!("*3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:1\r\n", kind.len(), channel.len()).into_bytes())
}

/// The strings of a command.
fn words(frame: &[u8]) -> Vec<&str> {
    let mut words = Vec::new();
    let Some((_, mut at)) = line(frame, 0) else { return words };
    while let Some((header, start)) = line(frame, at) {
        let Some(length) = std::str::from_utf8(&header[1..]).ok().and_then(|length| length.parse::<usize>().ok())
        else {
            break;
        };
        words.push(std::str::from_utf8(&frame[start..start + length]).unwrap_or(""));
        at = start + length + 2;
    }
    words
}

/// A line from `at` on, and where the next one begins.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[at..at + end], at + end + 2))
}

/// How long the first frame is, if it is complete. `Err` when it is none.
pub(crate) fn frame(bytes: &[u8]) -> Result<Option<usize>, ()> {
    element(bytes, 0)
}

fn element(bytes: &[u8], at: usize) -> Result<Option<usize>, ()> {
    let Some((header, mut end)) = line(bytes, at) else {
        return if bytes.get(at).is_none_or(|kind| b"*$+-:_#,(!=%~>|".contains(kind)) { Ok(None) } else { Err(()) };
    };
    let Some(&kind) = header.first() else { return Err(()) };
    let count = || std::str::from_utf8(&header[1..]).ok().and_then(|n| n.parse::<i64>().ok()).ok_or(());
    let elements = match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return Ok(Some(end)),
        b'$' | b'!' | b'=' => {
            let Ok(length) = usize::try_from(count()?) else { return Ok(Some(end)) };
            return Ok(Some(end + length + 2).filter(|end| *end <= bytes.len()));
        }
        b'*' | b'~' | b'>' => count()?,
        b'%' | b'|' => 2 * count()?,
        _ => return Err(()),
    };
    for _ in 0..elements.max(0) {
        match element(bytes, end)? {
            Some(next) => end = next,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

#[test]
fn frames_end_where_the_protocol_says() {
    for whole in [
        &b"+OK\r\n"[..],
        b"$-1\r\n",
        b"$3\r\na\r\n\r\n",
        b"*-1\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:5\r\n",
        b"%1\r\n+a\r\n:1\r\n",
    ] {
        let mut bytes = whole.to_vec();
        bytes.extend_from_slice(b"+next\r\n");
        assert_eq!(frame(&bytes), Ok(Some(whole.len())));
        for part in 0..whole.len() {
            assert_eq!(frame(&whole[..part]), Ok(None), "{part} of {whole:?}");
        }
    }
    assert!(frame(b"MONITOR\r\n").is_err());
}

#[test]
fn scripts_are_known_by_their_hash_once_their_text_went_by() {
    let text = include_str!("../../../scripts/probe.lua");
    let packed = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).get_packed_command();
    assert_eq!(Sent::of(&packed(&["EVAL", text, "1", "k", "l"])), Sent::Probe);
    let hash = redis::Script::new(text).get_hash().to_owned();
    assert_eq!(Sent::of(&packed(&["EVALSHA", &hash, "1", "k", "l"])), Sent::Probe);
    assert_eq!(Sent::of(&packed(&["HELLO"])), Sent::Other);
    assert_eq!(Sent::of(&packed(&["SET", "k", "l", "NX", "PX", "30000"])), Sent::Acquire);
    assert_eq!(Sent::of(&packed(&["INCR", "DLOCK:1:fence"])), Sent::Count);
}

#[test]
fn messages_are_those_of_channels_and_of_shard_channels() {
    for (kind, is_one) in [("message", true), ("smessage", true), ("subscribe", false), ("sunsubscribe", false)] {
        let [list, push] = ["*", ">"].map(|sign| format!("{sign}3\r\n${}\r\n{kind}\r\n$1\r\nc\r\n", kind.len()));
        assert_eq!([list, push].map(|frame| is_message(frame.as_bytes())), [is_one; 2], "{kind}");
    }
    assert!(!is_message(b"+OK\r\n"));
}
