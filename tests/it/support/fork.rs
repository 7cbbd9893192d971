//! Forks: programs that do it, and copies of a running process.

use super::crew::eventually;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `work` in a child, and returns whether it ended without a panic.
#[expect(unsafe_code, reason = "there is no safe way to fork, and the tests are about processes that do")]
pub(crate) fn in_child(work: impl FnOnce()) -> bool {
    // SAFETY: the child of a process with threads may do little before it executes another program. What it does here is what the tests are
    // about. It uses no mutex that another thread holds, and with this C library memory can be allocated.
    match unsafe { libc::fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            let through = catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: always sound; nothing of the parent's is to be run at the child's end.
            unsafe { libc::_exit(i32::from(!through)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a local that outlives the call.
            let mut has_ended = || unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) == child };
            let waited = catch_unwind(AssertUnwindSafe(|| eventually("the child's end", &mut has_ended)));
            if let Err(panic) = waited {
                // A child that hangs would keep the pipes of this process open, and whoever reads them waiting.
                // SAFETY: always sound.
                unsafe { libc::kill(child, libc::SIGKILL) };
                resume_unwind(panic);
            }
            status == 0
        }
    }
}
