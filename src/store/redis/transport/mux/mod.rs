//! One connection shared by any number of callers: full duplex, without a thread of its own except while it connects (`connecting`).
//!
//! The callers do the I/O for one another. A *leader* does it for all, and the others, its *followers*, sleep until they have their
//! answers. There are two leaders, because the connection has two halves: the *writer* writes what all have queued, and the *reader*
//! reads and delivers the replies of all. At most one caller has each role. A caller gets a role when it finds the role free, or when it
//! is *promoted*: a leader that leaves wakes a follower, its successor, which takes the role on.
//!
//! ```text
//!   caller ── queue ──▶ writer: [connect] ▶ write all that is queued ──▶ due ──▶ reader: read, deliver in order
//!                          │                                                        │
//!                          └── own answer there: the role goes to a caller that waits ◀──┘
//! ```
//!
//! # The steps of a call
//!
//! 1. *Queue.* The caller queues its call. If there is no writer, the caller becomes the writer. Otherwise it is a follower: the writer or
//!    a successor writes its call.
//! 2. *Gather.* If callers that were answered together, or whose posted calls were sent together, have not all called again, the writer
//!    first yields once (`polling`), so that one write carries the commands of all. The last of these callers takes the role over and
//!    writes in its place.
//! 3. *Write.* The writer opens a connection if there is none, moves the whole queue to `due`, and writes it. It repeats this until the
//!    queue is empty, until its time ends, or until its own answer is there and a waiting caller can succeed it.
//! 4. *Poll.* A caller that waits for its answer polls the connection for a while and yields in between (`polling`).
//! 5. *Read.* Then it becomes the reader if there is none; otherwise it sleeps as a follower. The reader delivers all replies, in order,
//!    until its own answer is there. Then it promotes a successor.
//!
//! # Why it is right
//!
//! 1. *No caller waits for the I/O of another to get the mutex.* The writer owns the outbound half and the reader the inbound half, so
//!    neither needs the state's mutex for its I/O, and no thread holds the mutex while it blocks on I/O.
//! 2. *Each reply reaches its call.* The server answers in the order of writing, and `due` keeps that order. A caller that leaves keeps its
//!    place; its replies are dropped, so the next ones still reach their callers.
//! 3. *A connection out of step is not used.* A connection with an error, or whose oldest reply is overdue by the I/O time-out, is cut and
//!    never used again. Every call written to it fails once, as `Unknown`: the server may have executed it. Calls not yet written go on the
//!    next connection.
//! 4. *No follower sleeps forever.* While a call that somebody attends to is queued, there is a writer, a caller promoted to writer, or a
//!    thread that connects and then writes; or the call is held back, and its caller waits for a confirmation. While a caller waits for a
//!    reply or a confirmation, there is a reader, a caller promoted to reader, or one that polls and comes again. This holds because a
//!    leader that gives up its role for good, and a caller that leaves while it is promoted, promote a successor (`hand_on`).
//! 5. *The role of reader changes hands once a round trip.* The successor is the caller whose reply comes last, unless a caller that is
//!    awake takes the role first. No caller keeps a role after its own answer has come, except for what was read or gathered by then.
//! 6. *There is one writer.* A writer that yields, or is promoted and not awake yet, keeps the role only if nobody takes it over
//!    meanwhile. The marks `gathering` and `promoted` show such a writer. The caller that takes the mark away has the role, and the mutex
//!    lets only one caller take it. The mark of a writer that yields has a number, so that a writer that comes back late does not take its
//!    successor's. (A promoted caller that wakes late may take the mark of a later one, and writes in its place.)
//! 7. *A posted call is handed to the system before `post` returns*, unless its limit ends or its connection breaks. A poster that finds
//!    the writer yielding yields once itself, and then takes the role over if its call is still queued. If the writer is in the middle of
//!    a write, the poster waits for its end. A posted call that must be sent again, or whose poster's time was over, has nobody who waits
//!    for it: it goes with the reader that has met it if nobody writes, else with the writer, with the next caller, or with `collect`.
//! 8. *One confirmation is under way at a time.* Some calls are answered only when the server has confirmed their write. The last command
//!    of a write confirms all calls of that write, and the server executes nothing behind it on this connection until it has answered it.
//!    Meanwhile, calls that are to be confirmed are *held back*: they stay queued, and the next write after the confirmation takes them
//!    all. So such a call waits for two confirmations at most, and any other call for one. Calls that need no confirmation are not held
//!    back, and may overtake those that are. That breaks no order: the callers of held-back calls still wait, so both calls are under way at
//!    the same time. A caller whose call is held back reads like one that waits for a reply, even if the callers
//!    that are confirmed have left. The reader that delivers a confirmation promotes a writer.
//! 9. *Nobody gives up a connection without a look at it.* A caller whose time is over takes in, without waiting, what has come. It may have
//!    waited for another server all the time. A call whose time was over before it was queued breaks no connection either. A caller that
//!    begins several batches does not wait for a connection that is full: it writes the rest when it comes to that batch.
//! 10. *A panic leaves no role behind.* A panic in a connection's code becomes an error of that connection, and any other panic gives the
//!     role back (`role.rs`).
//!
//! # The files, from the top down
//!
//! | file | holds |
//! |---|---|
//! | `calling.rs` | a call from its queueing to its answer; what a caller does with the roles that it gets; the end of the mux |
//! | `posting.rs` | calls for whose answers nobody waits |
//! | `reading.rs` | the reader: step 5, and the polls before it |
//! | `writing.rs` | the writer: steps 2 and 3; one write |
//! | `connecting.rs` | opens the connection, and writes what waited for it |
//! | `role.rs` | the roles, which are given back even in a panic |
//! | `leaving.rs` | how a connection fails, and how a caller leaves |
//! | `core.rs`, `epochs.rs` | the mux: what every step is given; what others may read without its mutex |
//! | `pending.rs` | a call: its phases, its caller, its replies; short forms that the server does not know |
//! | `connector.rs` | what a mux needs from a connection |
//! | `state.rs`, `session.rs` | what its mutex protects: the queue and the roles; the connection and the calls that are due on it |

mod calling;
mod connecting;
pub(super) mod connector;
mod core;
mod epochs;
mod leaving;
mod pending;
mod posting;
mod reading;
mod role;
mod session;
mod state;
mod writing;

pub(super) use self::core::{Mux, MuxSettings};
pub(super) use connector::Connector;
pub(super) use pending::PendingCall;
pub(crate) use pending::{CallReplies, Callback, Replied};
pub(crate) use session::Confirming;
