//! How `dlock` splits off a process of its own: a launcher, which becomes a command, or the guard.
//!
//! Starting this program a second time would need no `unsafe`. By measurement each start costs a millisecond, most of it for mapping and relocating
//! the program, and every run would need two. A fork costs a tenth of that if little was written before it. A page that both processes have is copied
//! at the next write, and each copy interrupts the other cores on which the process runs.

use crate::status::SYSTEM;
use nix::sys::prctl;
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io, process};

/// Starts a process with this name that does `work` and ends with the status that `work` returns. Both processes have `things`: the new one
/// passes them to `work`, the calling one gets them back with the process id.
///
/// # Errors
///
/// It fails while this process has more than one thread.
pub(super) fn split_off<T>(name: &CStr, things: T, work: impl FnOnce(T) -> u8) -> io::Result<(Pid, T)> {
    let unreadable = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot read /proc/self/task: {error}: mount a /proc for this process"))
    };
    let threads = fs::read_dir("/proc/self/task").map_err(unreadable)?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("{threads} threads run where there must be one")));
    }
    #[expect(unsafe_code, reason = "there is no safe call that makes a process, but for those that start a program")]
    // SAFETY: the calling thread is the only one. So no thread that the new process lacks has locked anything or left it half done.
    let forked = unsafe { fork() };
    match forked? {
        ForkResult::Parent { child } => Ok((child, things)),
        ForkResult::Child => {
            let _ = prctl::set_name(name);
            // A panic must not continue in the caller, whose code belongs to the other process.
            let status = catch_unwind(AssertUnwindSafe(|| work(things))).unwrap_or(SYSTEM);
            process::exit(status.into())
        }
    }
}
