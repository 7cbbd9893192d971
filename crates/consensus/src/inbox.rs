//! A client's inbox: a thread that waits for changes of an entry, and a channel that can be waited for with a limit.
//!
//! An HTTP read cannot be interrupted when a limit ends, and must not be: the part of an answer that has arrived would be lost. So a separate thread
//! reads for as long as the inbox lives, and the owner of the inbox waits at the channel.
//!
//! | who | blocks on | is woken by |
//! |---|---|---|
//! | the thread `dlock-inbox` | the connection | a message, the end of a query or a stream, the end of the connection |
//! | the client's thread `dlock-listen` | the channel; a request that [confirms](super::confirm) what has arrived | a message, the end of its limit, a cut; the answer |
//! | the thread that cuts or drops the inbox | the thread's end, when it is dropped | the end of the connection, which it causes itself |
//!
//! The end of an inbox has three causes: the connection breaks, somebody cuts it ([`InboxBreaker`]), or it is dropped. In each case the connection is
//! shut down, so the thread ends. The thread reports its end in any case, so `next` learns of it. The client then opens another inbox, and asks about
//! all that it waits for: between two inboxes a message may be missed.

use super::confirm::{Confirming, Offers};
use super::deadline::Deadline;
use super::kv::Listening;
use super::message;
use super::snapshot::Offer;
use super::timing::CONFIRMING;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use redis_dlock::port::{Inbox, InboxBreaker, Message, on_own_thread};
use redis_dlock::{BackendFailure, Error};
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// News from the reading thread. That thread sends no request, because it could not read meanwhile. The client's thread `dlock-listen` confirms the
/// offers that have arrived by the time it looks.
enum News {
    Told(Message),
    Offer(Offer),
}

/// A message, or the reason why no more will come.
type Heard = Result<News, Error>;

/// The inbox of a consensus store. Dropping it ends the thread.
pub(super) struct ConsensusInbox {
    heard: Receiver<Heard>,
    /// What has been taken in: the offers, and the messages that follow them.
    offers: Offers,
    others: VecDeque<Result<Message, Error>>,
    /// The messages that the client is told next.
    ready: VecDeque<Result<Message, Error>>,
    /// Says to [`next`](Inbox::next) that the inbox was cut.
    cut: Sender<Heard>,
    cutter: Arc<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
    has_ended: bool,
}

impl ConsensusInbox {
    /// Begins to read. Messages that come while nobody waits stay in the channel, in order.
    pub(super) fn new(mut listening: Box<dyn Listening>, confirming: Confirming) -> Result<Self, Error> {
        let (cut, heard) = unbounded();
        let noting = confirming.clone();
        let cutter: Arc<dyn Fn() + Send + Sync> = Arc::from(listening.cutter());
        let teller = Teller(cut.clone());
        let work = move || {
            loop {
                match listening.next() {
                    Ok(Some(change)) => {
                        noting.note_waiters(&change);
                        let offer = message::offer(&change);
                        // Without it, the first message says that the key has changed.
                        let told = message::read(&change).into_iter().skip(usize::from(offer.is_some()));
                        if let Some(offer) = offer
                            && teller.0.send(Ok(News::Offer(offer))).is_err()
                        {
                            return;
                        }
                        for message in told {
                            if teller.0.send(Ok(News::Told(message))).is_err() {
                                return;
                            }
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        let _ = teller.0.send(Err(error));
                        return;
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("dlock-inbox".into()).spawn(|| on_own_thread(work)).map_err(|e| {
            let message = format!("the operating system refused the thread dlock-inbox: {e}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, e)
        })?;
        let (offers, others, ready) = (Offers::new(confirming), VecDeque::new(), VecDeque::new());
        Ok(Self { heard, offers, others, ready, cut, cutter, thread: Some(thread), has_ended: false })
    }

    /// Takes in what has arrived. The offers come first, because all other messages about their tenures came after them.
    fn take_in(&mut self, first: Heard) {
        for news in iter::once(first).chain(self.heard.try_iter()) {
            match news {
                Ok(News::Offer(offer)) => self.offers.push(offer),
                Ok(News::Told(message)) => self.others.push_back(Ok(message)),
                Err(error) => self.others.push_back(Err(error)),
            }
        }
    }
}

/// The thread's end of the channel. It reports the thread's end, even by a panic, because an inbox without its thread would hear nothing.
struct Teller(Sender<Heard>);

impl Drop for Teller {
    fn drop(&mut self) {
        let _ = self.0.send(Err(ended()));
    }
}

impl Inbox for ConsensusInbox {
    /// Waits at the channel, not at the connection. After the inbox's end each call fails at once, and the client opens another inbox.
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        if self.has_ended {
            return Err(ended());
        }
        while self.ready.is_empty() {
            if !self.offers.is_empty() {
                self.ready.extend(self.offers.confirm_some(Deadline::after(CONFIRMING)).into_iter().map(Ok));
            } else if !self.others.is_empty() {
                self.ready.append(&mut self.others);
            } else {
                match self.heard.recv_timeout(limit) {
                    Ok(first) => self.take_in(first),
                    Err(RecvTimeoutError::Timeout) => return Ok(None),
                    Err(RecvTimeoutError::Disconnected) => self.others.push_back(Err(ended())),
                }
            }
        }
        let told = self.ready.pop_front().transpose();
        self.has_ended = told.is_err();
        told
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        Box::new(Breaker { cut: self.cut.clone(), cutter: Arc::clone(&self.cutter) })
    }
}

/// Waits for the thread, so that nothing of a dropped inbox is under way.
impl Drop for ConsensusInbox {
    fn drop(&mut self) {
        (self.cutter)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends an inbox from another thread. It ends the connection, for the thread that reads, and the channel, for the thread that waits at it.
struct Breaker {
    cut: Sender<Heard>,
    cutter: Arc<dyn Fn() + Send + Sync>,
}

impl InboxBreaker for Breaker {
    /// The reading thread may be in a read that ends only with its connection. The waiting thread is told without waiting for that.
    fn cut(&self) {
        (self.cutter)();
        let _ = self.cut.send(Err(ended()));
    }
}

/// The error of an inbox that was cut.
pub(super) fn ended() -> Error {
    Error::backend(BackendFailure::Unknown, "the inbox was closed")
}
