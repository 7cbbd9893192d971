//! The first attempt at a key that is likely to be free, in plain commands: they cost the server less than a script.
//!
//! ```text
//!   SET key locker NX PX lease     takes it, if it is free
//!   LLEN queue                     whether others come first
//!   INCR fence                     the number
//!   GET key                        whether it was ours all along
//! ```
//!
//! They go out in one write, and no other command of this connection comes between them. But they are four separate steps: a connection
//! that is cut in the middle leaves the first ones executed. Why this is safe:
//!
//! * *The locker was in the key all the time between the `SET` and the `GET`*, because it is there at both, and a locker enters a free
//!   key only once. So the number was issued within the tenure: after the numbers of all earlier tenures, before those of all later
//!   ones. If the key is lost before a late `INCR`, the `GET` after it shows that, and the number is never used. (With `MULTI` and
//!   `EXEC` the three would need no `GET`, but would cost the server more, 5.6 against 5.3 µs a pair, and need two more rights.)
//! * *The number is trusted only under a watermark* (`fence_watermarks.rs`); otherwise a script issues one.
//! * *A `SET` that succeeds while a queue exists does not count*: the key was free because a lease had ended, or for pollers. The
//!   locker is released, which hands the key over, and then asks by the script, which puts it at the end of the queue.
//! * *Every other irregular outcome* (a `SET` that was executed, followed by an error) is released, too. Then the script is asked: its
//!   reply names what is wrong. A locker that is neither stored nor in flight may be sent again.
//! * *When the reply to that release is lost, the locker is given up.* The release may be executed late, and would then end a tenure
//!   that a poll found in the meantime. So a poll of such a locker is sent as another release, and returns `Gone`.
//! * *A lost reply is an unknown outcome*, exactly as for the script. A command that arrives late can take a free key for the locker,
//!   as a late script can, and the same polls and releases deal with it.
//!
//! A single attempt that finds the key busy needs no more than these four replies. They do not say how long the holder's lease lasts.
//! If the caller waits, the script is asked next, to give it a place in the queue, but only if the limit leaves time for that; without
//! its reply, the attempt still reports the key as busy. A key that was recently busy is tried by script at once, which saves the
//! second round trip.
//!
//! | file | holds |
//! |---|---|
//! | `attempt.rs` | an attempt from beginning to end: which keys are likely to be free, the commands, and what their replies mean |
//! | `fence_watermarks.rs` | when to trust a number that no script has compared with the clock |
//! | `given_up.rs` | the lockers whose release has not been answered, and what is sent for them |

mod attempt;
mod fence_watermarks;
mod given_up;
mod timing;

pub(super) use attempt::{Answered, Attempt, Contention, Tried, with_place};
pub(super) use fence_watermarks::FenceWatermarks;
pub(super) use given_up::{Exchange, GivenUp};
