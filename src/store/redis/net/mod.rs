//! One connection to a server, from its URL to the values read from it. It knows nothing of scripts, and nothing of the threads that share
//! the connection.
//!
//! | file | holds |
//! |---|---|
//! | `address.rs` | the server's place and our login, from a URL |
//! | `url.rs` | a URL with several hosts |
//! | `hosts.rs` | a host and a port, and the map of the addresses that servers tell |
//! | `endpoint.rs` | how a link is made: dial, TLS, handshake |
//! | `dial.rs`, `socket.rs` | a socket, with a deadline for each connect, read and write |
//! | `tls.rs` | TLS: what sessions are made from, and a session shared by the two halves |
//! | `handshake.rs` | the first commands, and whether the server can carry locks |
//! | `identity.rs` | which server answers, and what follows when it is another one than before |
//! | `connector.rs` | what the transport needs from a connection: a seam for models and tests |
//! | `link.rs` | the connection, with a half to write and a half to read |
//! | `resp.rs` | commands as bytes, and bytes as replies |
//! | `classify.rs` | which error each error reply becomes |

pub(super) mod address;
pub(super) mod classify;
pub(super) mod connector;
mod dial;
pub(super) mod endpoint;
pub(super) mod handshake;
pub(super) mod hosts;
pub(super) mod identity;
pub(super) mod link;
pub(super) mod resp;
pub(super) mod socket;
mod timing;
#[cfg(feature = "tls")]
pub(super) mod tls;
pub(super) mod url;
