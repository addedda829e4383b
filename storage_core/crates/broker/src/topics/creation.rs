//! Topics that are created because somebody appends to them: the appends wait here, in order, until the topic is there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use walrus_log::batch::Batch;

use crate::broker::Broker;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicName};
use crate::partition::ticket::Ticket;

/// Appends that wait for their topic to be created, by topic and in the order in which they came.
#[derive(Default)]
pub(crate) struct TopicCreations {
    waiting: Mutex<HashMap<TopicName, Vec<Early>>>,
    /// How many topics there are in `waiting`: usually none, and then nobody takes the lock.
    topics: AtomicUsize,
}

struct Early {
    partition: u32,
    batch: Bytes,
    deadline: Instant,
    reply: oneshot::Sender<Ticket>,
}

impl TopicCreations {
    /// Whether earlier appends still wait for this topic, so that later ones must stand behind them.
    pub(crate) fn is_waited_for(&self, topic: &TopicName) -> bool {
        self.topics.load(Ordering::Acquire) > 0 && self.waiting.lock().contains_key(topic)
    }

    /// Has the topic created, once, and then submits the batch behind those that came before.
    pub(crate) fn submit(
        &self,
        broker: &Broker,
        to: &PartitionRef,
        batch: Bytes,
        deadline: Instant,
    ) -> Ticket {
        let (reply, ticket) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let early = waiting.entry(to.topic.clone()).or_default();
        early.push(Early { partition: to.partition, batch, deadline, reply });
        if early.len() == 1 {
            self.topics.store(waiting.len(), Ordering::Release);
            let (broker, topic) = (broker.clone(), to.topic.clone());
            broker.clone().cluster().tasks().spawn("create topic", async move {
                let outcome = broker.create_topic(topic.as_str(), 0, false).await;
                broker.creations().finish(&broker, &topic, outcome.map(drop));
            });
        }
        Ticket::later(ticket)
    }

    /// Under the lock, so that an append that comes now is behind the early ones.
    fn finish(&self, broker: &Broker, topic: &TopicName, outcome: Result<()>) {
        let mut waiting = self.waiting.lock();
        let early = waiting.remove(topic).unwrap_or_default();
        let route = broker.cluster().routing().find(topic).cloned();
        for Early { partition, batch, deadline, reply } in early {
            let place = outcome.clone().and_then(|()| {
                let route = route.as_ref().ok_or_else(|| Error::UnknownTopic { topic: topic.to_string() })?;
                route.partition(partition)?;
                let problem = |problem: walrus_log::batch::BatchError| Error::InvalidBatch {
                    problem: problem.to_string(),
                };
                let (parsed, _) = Batch::parse(&batch).map_err(problem)?;
                Ok(route.sequencers[partition as usize].submit(broker, batch.clone(), &parsed, deadline))
            });
            drop(reply.send(place.unwrap_or_else(Ticket::failed))); // whoever asked may be gone
        }
        self.topics.store(waiting.len(), Ordering::Release);
    }
}
