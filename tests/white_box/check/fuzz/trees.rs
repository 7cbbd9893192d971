//! Trees of RESP2 values: grown from arbitrary bytes, and encoded as a server encodes them.

use ::redis::Value;

/// How deep a tree may be: deeper than any reply that we expect.
const DEPTH: usize = 4;

/// Grows a value. After the last byte, zeros are read.
pub(crate) fn grow(bytes: &mut &[u8]) -> Value {
    branch(bytes, DEPTH)
}

fn branch(bytes: &mut &[u8], depth: usize) -> Value {
    let kind = byte(bytes);
    match kind % 8 {
        0 => Value::Nil,
        // Most replies begin with a small number.
        1 | 2 => Value::Int(i64::from(byte(bytes)) - 3),
        3 => {
            let number = (0..8).fold(0u64, |number, _| number << 8 | u64::from(byte(bytes)));
            Value::Int(number.cast_signed())
        }
        4 => Value::BulkString(take(bytes)),
        5 if kind < 128 => Value::Okay,
        5 => Value::SimpleString(String::from_utf8_lossy(&take(bytes)).replace(['\r', '\n'], "")),
        _ if depth == 0 => Value::Array(Vec::new()),
        _ => {
            let count = byte(bytes) % 6;
            Value::Array((0..count).map(|_| branch(bytes, depth - 1)).collect())
        }
    }
}

fn byte(bytes: &mut &[u8]) -> u8 {
    let Some((first, rest)) = bytes.split_first() else { return 0 };
    *bytes = rest;
    *first
}

fn take(bytes: &mut &[u8]) -> Vec<u8> {
    let length = usize::from(byte(bytes) % 32).min(bytes.len());
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken.to_vec()
}

/// Encodes a value as a server does.
pub(crate) fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nil => out.extend(b"$-1\r\n"),
        Value::Int(n) => out.extend(format!(":{n}\r\n").bytes()),
        Value::Okay => out.extend(b"+OK\r\n"),
        Value::SimpleString(s) => out.extend(format!("+{s}\r\n").bytes()),
        Value::BulkString(b) => {
            out.extend(format!("${}\r\n", b.len()).bytes());
            out.extend(b);
            out.extend(b"\r\n");
        }
        Value::ServerError(e) => {
            let detail = e.details().map_or(String::new(), |detail| format!(" {detail}"));
            out.extend(format!("-{}{detail}\r\n", e.code()).bytes());
        }
        Value::Array(items) => {
            out.extend(format!("*{}\r\n", items.len()).bytes());
            items.iter().for_each(|item| encode(item, out));
        }
        other => unreachable!("{other:?} is not RESP2"),
    }
}
