//! A wait for several sockets, which another thread can end.

#[cfg(unix)]
mod imp {
    use crate::store::redis::net::socket::Socket;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// See the module. A byte lies in a pair of sockets while a wait must end.
    #[derive(Debug)]
    pub(crate) struct Waker {
        near: UnixStream,
        far: UnixStream,
    }

    impl Waker {
        /// # Errors
        ///
        /// Those of the operating system, which may have no more sockets.
        pub(crate) fn new() -> io::Result<Self> {
            // The waker is a pair of sockets, because `poll` waits only for files. With a condition variable, each connection would need a thread.
            let (near, far) = UnixStream::pair()?;
            // Neither end may block: a thread that wakes the listening thread may hold the mutex of the slots, and the listening thread
            // waits in `poll` alone.
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            Ok(Self { near, far })
        }

        /// Ends the wait that is under way, or else the next one. Does not block.
        pub(crate) fn wake(&self) {
            // If there is no room, the bytes that lie there end the wait.
            let _ = (&self.near).write(&[0]);
        }

        /// Waits until one of the sockets has something to read or has failed, until it is woken, or until the time is over. A socket with
        /// `true` is also waited for until it has room for more bytes. Returns for each socket whether it is to be looked at.
        pub(crate) fn wait(&self, sockets: &[(&Socket, bool)], time: Duration) -> io::Result<Vec<bool>> {
            let flags = |writes| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut polled: Vec<_> =
                sockets.iter().map(|(socket, writes)| PollFd::new(*socket, flags(*writes))).collect();
            // The waker comes last, so that the flags of the sockets keep their places.
            polled.push(PollFd::new(&self.far, PollFlags::IN));
            // A time that does not fit is longer than any program runs.
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            let time = Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
            match poll(&mut polled, Some(&time)) {
                // A signal is no failure. It ends the wait early, and the caller looks at the time anyway.
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let mut ready: Vec<_> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
            // One read takes the bytes of up to 64 wakes. A byte that is left over ends the next wait at once, which costs one look.
            if ready.pop() == Some(true) {
                let _ = (&self.far).read(&mut [0; 64]);
            }
            Ok(ready)
        }
    }
}

#[cfg(not(unix))]
mod imp {
    use crate::store::redis::net::socket::Socket;
    use crossbeam_channel::{Receiver, Sender, bounded};
    use std::io;
    use std::time::Duration;

    /// How long sockets are not looked at.
    const PAUSE: Duration = Duration::from_millis(5);

    /// See the module. Without `poll`, all sockets are looked at every few milliseconds. A message waits in a channel while a wait must end.
    #[derive(Debug)]
    pub(crate) struct Waker {
        near: Sender<()>,
        far: Receiver<()>,
    }

    impl Waker {
        pub(crate) fn new() -> io::Result<Self> {
            let (near, far) = bounded(1);
            Ok(Self { near, far })
        }

        pub(crate) fn wake(&self) {
            // If there is no room, the message that lies there ends the wait.
            let _ = self.near.try_send(());
        }

        pub(crate) fn wait(&self, sockets: &[(&Socket, bool)], time: Duration) -> io::Result<Vec<bool>> {
            let _ = self.far.recv_timeout(if sockets.is_empty() { time } else { time.min(PAUSE) });
            Ok(vec![true; sockets.len()])
        }
    }
}

pub(crate) use imp::Waker;

#[cfg(all(test, unix))]
#[path = "../../../../../tests/white_box/store/redis/cluster/inbox/waker.rs"]
mod tests;
