//! The crate's integration tests, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod conformance;
mod support;
