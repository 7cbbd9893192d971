//! Reading JSON that a server sent.
//!
//! A request whose answer cannot be read has an unknown outcome: it may have been executed, and a proxy may have spoilt its answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis_dlock::{BackendFailure, Error};
use serde_json::Value;

/// Reads a document.
pub(super) fn parse(text: &str, server: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|e| {
        let message = format!("the answer of {server} is no JSON: {e}");
        Error::backend_caused_by(BackendFailure::Unknown, message, e)
    })
}

/// Reads a number that is written as a text, as 64 bits are in JSON, or as a number.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Encodes bytes as both stores require in JSON: an entry may contain bytes that are no text.
pub(super) fn to_base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64. `None` if the text is no base64; the caller's error says what the answer lacks.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
