//! Appends of clients to the topic that they name, which may have to be created first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use walrus_log::batch::{Batch, RecordsSeen};
use walrus_model::SegmentId;

use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::partition::ack::AppendAck;
use crate::partition::submission::check_batch;
use crate::partition::ticket::Ticket;
use crate::topics::Topics;
use crate::topics::catalogue::NewTopic;
use crate::topics::creation::EarlyAppend;

impl Topics {
    /// Appends one RecordBatch v2; durable and readable on return. Goes to the leader, waits through a rollover, creates an
    /// unknown topic of an organisation if `auto_create_topics`. Calls for one partition that are polled first in some order
    /// reach its log in this order, as long as none of them fails.
    pub(crate) async fn append(self: &Arc<Self>, to: &PartitionRef, bytes: Bytes) -> Result<AppendAck> {
        let started = Instant::now();
        let deadline = started + Duration::from_millis(self.cluster().config().append_wait_ms);
        // Nothing is awaited before the batch has its place: this keeps the callers' order.
        let makes = self.cluster().config().auto_create_topics;
        let ticket = self.submit(to, bytes.clone(), deadline, makes);
        self.finish(to, ticket, started, || self.submit(to, bytes.clone(), deadline, makes)).await
    }

    /// Does the same, and creates no topic.
    pub(crate) async fn append_to_existing(
        self: &Arc<Self>,
        to: &PartitionRef,
        bytes: Bytes,
    ) -> Result<AppendAck> {
        let started = Instant::now();
        let deadline = started + Duration::from_millis(self.cluster().config().append_wait_ms);
        let ticket = self.submit(to, bytes.clone(), deadline, false);
        self.finish(to, ticket, started, || self.submit(to, bytes.clone(), deadline, false)).await
    }

    /// Does the same with a batch that was parsed and whose records were looked at, and creates no topic. Gives up after
    /// `patience`.
    pub(crate) async fn append_walked(
        &self,
        to: &PartitionRef,
        bytes: Bytes,
        (batch, seen): (&Batch<'_>, &RecordsSeen),
        patience: Duration,
    ) -> Result<AppendAck> {
        let started = Instant::now();
        let deadline = started + patience;
        let submit = || {
            let routing = self.cluster().routing();
            let unknown = || Ticket::failed(Error::UnknownTopic { topic: to.topic.to_string() });
            routing.find(&to.topic).map_or_else(unknown, |route| {
                let walked = (batch, Some(seen));
                self.partitions().submit_walked(route, to.partition, bytes.clone(), walked, deadline)
            })
        };
        let ticket = submit();
        self.finish(to, ticket, started, submit).await
    }

    /// Appends to one open segment that this node leads, and to no other; `None` if that is not open here, and has nothing of the
    /// batch.
    pub(crate) async fn append_to(
        &self,
        to: &PartitionRef,
        segment: SegmentId,
        bytes: &Bytes,
        deadline: Instant,
    ) -> Result<Option<AppendAck>> {
        let topic = self.cluster().routing().partition(to)?.0.topic.id;
        let patience = deadline.saturating_duration_since(Instant::now());
        let ticket = self.partitions().submit_forwarded(topic, to.partition, segment, bytes, patience);
        ticket.finish_forwarded(self.copies()).await
    }

    /// Waits for what becomes of a batch. Where its partition was not known, metadata as new as the question say whether there is
    /// one, and then it is submitted again.
    async fn finish(
        &self,
        to: &PartitionRef,
        ticket: Ticket,
        started: Instant,
        submit: impl Fn() -> Ticket,
    ) -> Result<AppendAck> {
        let result = match ticket.finish(self.copies()).await {
            Err(unknown) if unknown.is_unknown() => {
                match self.cluster().find_confirmed(|| self.cluster().routing().partition(to).map(drop)).await
                {
                    Ok(()) => submit().finish(self.copies()).await,
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

    /// Gives a batch its place in the order of its partition; `makes` a topic of an organisation that there is not. Nothing is
    /// awaited.
    fn submit(self: &Arc<Self>, to: &PartitionRef, bytes: Bytes, deadline: Instant, makes: bool) -> Ticket {
        let routing = self.cluster().routing();
        if let Some(route) = routing.find(&to.topic)
            && !self.creations().is_waited_for(&to.topic)
        {
            return self.partitions().submit(route, to.partition, bytes, deadline);
        }
        if let Err(error) = check_batch(&bytes) {
            return Ticket::failed(error);
        }
        if to.topic.org.is_internal() || !makes {
            return Ticket::failed(Error::UnknownTopic { topic: to.topic.to_string() });
        }
        let (ticket, is_first) = self.creations().wait(to, bytes, deadline);
        if is_first {
            let (topics, topic) = (self.clone(), to.topic.clone());
            self.cluster().tasks().spawn("create topic", async move {
                let outcome = topics.create_topic(&topic, NewTopic::default()).await;
                let route = topics.cluster().routing().find(&topic).cloned();
                topics.creations().finish(&topic, |early| {
                    let EarlyAppend { partition, batch, deadline, .. } = early;
                    let unknown = || Error::UnknownTopic { topic: topic.to_string() };
                    let route = outcome
                        .as_ref()
                        .map_err(Clone::clone)
                        .and_then(|_| route.as_ref().ok_or_else(unknown));
                    let submit =
                        |route| topics.partitions().submit(route, *partition, batch.clone(), *deadline);
                    route.map_or_else(Ticket::failed, |route| submit(route))
                });
            });
        }
        ticket
    }
}
