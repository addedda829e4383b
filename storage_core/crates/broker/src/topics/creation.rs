//! Creation of topics because somebody appends to them: the appends wait here, in order, until the topic is there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::node::locks::{CREATION, Lock};
use crate::node::names::{PartitionRef, TopicPath};
use crate::partition::ticket::Ticket;

/// Appends that wait for their topic to be created, by topic and in the order in which they came.
#[derive(Default)]
pub(crate) struct TopicCreations {
    waiting: Lock<HashMap<TopicPath, Vec<EarlyAppend>>, CREATION>,
    /// How many topics there are in `waiting`: usually none, and then nobody takes the lock.
    topics: AtomicUsize,
}

/// An append that came before its topic.
pub(crate) struct EarlyAppend {
    pub(crate) partition: u32,
    pub(crate) batch: Bytes,
    pub(crate) deadline: Instant,
    reply: oneshot::Sender<Ticket>,
}

impl TopicCreations {
    /// Whether earlier appends still wait for this topic, so that later ones must stand behind them.
    pub(crate) fn is_waited_for(&self, topic: &TopicPath) -> bool {
        self.topics.load(Ordering::Acquire) > 0 && self.waiting.lock().contains_key(topic)
    }

    /// Puts an append behind those that came before. `true` if it is the first: then the caller must create the topic.
    pub(crate) fn wait(&self, to: &PartitionRef, batch: Bytes, deadline: Instant) -> (Ticket, bool) {
        let (reply, ticket) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let early = waiting.entry(to.topic.clone()).or_default();
        early.push(EarlyAppend { partition: to.partition, batch, deadline, reply });
        let is_first = early.len() == 1;
        if is_first {
            self.topics.store(waiting.len(), Ordering::Release);
        }
        (Ticket::later(ticket), is_first)
    }

    /// Submits each append, in order, once the topic is there or cannot be had. All of it happens under the lock, so that an
    /// append that comes now is behind the early ones.
    pub(crate) fn finish(&self, topic: &TopicPath, submit: impl Fn(&EarlyAppend) -> Ticket) {
        let mut waiting = self.waiting.lock();
        for early in waiting.remove(topic).unwrap_or_default() {
            let ticket = submit(&early);
            drop(early.reply.send(ticket)); // whoever asked may be gone
        }
        self.topics.store(waiting.len(), Ordering::Release);
    }
}
