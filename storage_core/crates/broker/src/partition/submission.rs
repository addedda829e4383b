//! Appends on their way in: what is wrong with a batch is said at once, else it gets its place in the order of its partition,
//! here or at the node that leads.

use std::time::{Duration, Instant};

use bytes::Bytes;
use walrus_log::batch::Batch;
use walrus_model::{SegmentId, TopicId};

use crate::broker::Broker;
use crate::cluster::routing::TopicRoute;
use crate::node::budget::BATCH_BYTES_MAX;
use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::partition::ticket::Ticket;

/// A batch that is durable and readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAck {
    /// Offset of its first record.
    pub base_offset: u64,
    /// First offset behind it.
    pub end_offset: u64,
    /// It was stored before, at these offsets.
    pub duplicate: bool,
}

impl Broker {
    /// Appends one RecordBatch v2 of a client; durable and readable on return. Goes to the leader, waits through a
    /// rollover, creates an unknown topic if `auto_create_topics`. Refuses internal topics. Calls for one partition
    /// that are polled first in some order reach its log in this order, as long as none of them fails.
    pub async fn append(&self, to: &PartitionRef, batch: Bytes) -> Result<AppendAck> {
        self.append_as(to, batch, false).await
    }

    /// [`Broker::append`] to a topic of Walrus's own.
    pub async fn append_internal(&self, to: &PartitionRef, batch: Bytes) -> Result<AppendAck> {
        self.append_as(to, batch, true).await
    }

    async fn append_as(&self, to: &PartitionRef, bytes: Bytes, internal: bool) -> Result<AppendAck> {
        let started = Instant::now();
        let deadline = started + self.append_patience();
        // Nothing is awaited before the batch has its place: this keeps the callers' order.
        let ticket = self.submit(to, bytes.clone(), internal, deadline);
        let result = match ticket.finish(self).await {
            Err(unknown) if unknown.is_unknown() => {
                match self.cluster().confirmed(|| self.cluster().routing().partition(to).map(drop)).await {
                    Ok(()) => self.submit(to, bytes, internal, deadline).finish(self).await,
                    Err(error) => Err(error),
                }
            }
            finished => finished,
        };
        match &result {
            Ok(_) => self.cluster().metrics().append_seconds.observe(started.elapsed().as_secs_f64()),
            Err(error) => self.cluster().metrics().count_error(error),
        }
        result
    }

    fn submit(&self, to: &PartitionRef, bytes: Bytes, internal: bool, deadline: Instant) -> Ticket {
        let batch = match check_batch(&bytes) {
            Ok(batch) => batch,
            Err(error) => return Ticket::failed(error),
        };
        let routing = self.cluster().routing();
        if let Some(route) = routing.find(&to.topic)
            && !self.creations().is_waited_for(&to.topic)
        {
            return match check_access(route, to.partition, internal) {
                Ok(()) => {
                    let sequencer = &route.sequencers[to.partition as usize];
                    sequencer.submit(self, bytes.clone(), &batch, deadline)
                }
                Err(error) => Ticket::failed(error),
            };
        }
        if internal || !self.cluster().config().auto_create_topics {
            return Ticket::failed(Error::UnknownTopic { topic: to.topic.to_string() });
        }
        self.creations().submit(self, to, bytes.clone(), deadline)
    }

    /// An append that another node sent here. Its place in the order is fixed when this returns.
    pub(crate) fn submit_forwarded(
        &self,
        topic: TopicId,
        partition: u32,
        segment: SegmentId,
        bytes: &Bytes,
        patience: Duration,
    ) -> Ticket {
        let deadline = Instant::now() + patience.min(self.append_patience());
        let batch = match check_batch(bytes) {
            Ok(batch) => batch,
            Err(error) => return Ticket::failed(error),
        };
        let routing = self.cluster().routing();
        let Some(route) = routing.topic(topic) else {
            return Ticket::failed(Error::UnknownTopic { topic: topic.0.to_string() });
        };
        match check_access(route, partition, true) {
            Ok(()) => {
                let sequencer = &route.sequencers[partition as usize];
                sequencer.submit_forwarded(self, bytes.clone(), &batch, segment, deadline)
            }
            Err(error) => Ticket::failed(error),
        }
    }
}

fn check_batch(bytes: &Bytes) -> Result<Batch<'_>> {
    if bytes.len() > BATCH_BYTES_MAX {
        let (bytes, bytes_max) = (bytes.len() as u64, BATCH_BYTES_MAX as u64);
        return Err(Error::TooLarge { what: "the batch".to_owned(), bytes, bytes_max });
    }
    let invalid = |problem: String| Error::InvalidBatch { problem };
    let (batch, rest) = Batch::parse(bytes).map_err(|problem| invalid(problem.to_string()))?;
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes follow it; send one batch at a time", rest.len())));
    }
    Ok(batch)
}

fn check_access(route: &TopicRoute, partition: u32, internal: bool) -> Result<()> {
    route.partition(partition)?;
    if route.topic.internal && !internal {
        let problem = "it belongs to Walrus itself".to_owned();
        return Err(Error::InvalidTopic { topic: route.name.to_string(), problem });
    }
    Ok(())
}
