//! How messages of the model's store reach a client.

use super::network::Network;
use crate::error::{BackendFailure, Error};
use crate::port::{Inbox, InboxBreaker, Message};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Delivers messages in order, each as late as the scheduler likes. Some are lost; a broken subscription loses all.
pub(super) struct ModelInbox {
    network: Network,
    inbox: Box<dyn Inbox>,
    cut: Arc<AtomicBool>,
    /// The message that the client is processing. It is done with it when it asks for the next one.
    last: Option<Message>,
    /// The message that is heard later.
    late: Option<Message>,
}

impl ModelInbox {
    pub(super) fn new(network: Network, inbox: Box<dyn Inbox>) -> Self {
        Self { network, inbox, cut: Arc::default(), last: None, late: None }
    }
}

impl Inbox for ModelInbox {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        if let Some(message) = self.last.take() {
            self.network.heard(message);
        }
        let shared = Arc::clone(&self.network.shared);
        let mut news = shared.news.lock();
        loop {
            if self.cut.load(Ordering::Relaxed) {
                return Err(Error::backend(BackendFailure::NotExecuted, "cut"));
            }
            let message = match self.late.take() {
                None => self.inbox.next(Duration::ZERO)?,
                late => late,
            };
            self.late = message.clone().filter(|message| self.network.is_late(message));
            if let Some(message) = message.filter(|_| self.late.is_none()) {
                if self.network.strikes(|faults| &mut faults.messages) {
                    continue;
                }
                if self.network.strikes(|faults| &mut faults.breaks) {
                    return Err(Error::backend(BackendFailure::NotExecuted, "broken"));
                }
                self.last = Some(message.clone());
                return Ok(Some(message));
            }
            shared.changed.wait_for(&mut news, limit);
        }
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        Box::new(Breaker { network: self.network.clone(), cut: Arc::clone(&self.cut) })
    }
}

struct Breaker {
    network: Network,
    cut: Arc<AtomicBool>,
}

impl InboxBreaker for Breaker {
    fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        self.network.note_news();
    }
}
