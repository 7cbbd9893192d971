//! Reading JSON that a server sent.
//!
//! What cannot be read has an unknown outcome: the request may have been executed, and something in between has spoilt its answer.

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

/// Bytes as both stores want them in JSON: an entry may contain what no text does.
pub(super) fn to_base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// `None` for what is no base64. The caller says what the answer lacks.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
