//! The way in of appends: what is wrong with a batch is said at once, else it gets its place in the order of its partition,
//! here or at the node that leads.

use std::time::{Duration, Instant};

use bytes::Bytes;
use walrus_log::batch::{Batch, BatchError, RecordsSeen};
use walrus_model::{SegmentId, TopicId};

use crate::cluster::routing::TopicRoute;
use crate::node::budget::BATCH_BYTES_MAX;
use crate::node::error::{Error, Result};
use crate::partition::Partitions;
use crate::partition::keys;
use crate::partition::ticket::Ticket;
use crate::partition::timestamps::Times;
use crate::partition::walking::walk;

impl Partitions {
    /// Gives a batch of a client its place in the order of a partition, which is fixed when this returns.
    pub(crate) fn submit(
        &self,
        route: &TopicRoute,
        partition: u32,
        bytes: Bytes,
        deadline: Instant,
    ) -> Ticket {
        let placed = check_batch(&bytes)
            .map(|batch| self.submit_walked(route, partition, bytes.clone(), (&batch, None), deadline));
        placed.unwrap_or_else(Ticket::failed)
    }

    /// Does the same with a batch that was parsed, and with what was seen of its records, if they were looked at.
    pub(crate) fn submit_walked(
        &self,
        route: &TopicRoute,
        partition: u32,
        bytes: Bytes,
        (batch, seen): (&Batch<'_>, Option<&RecordsSeen>),
        deadline: Instant,
    ) -> Ticket {
        let place = || {
            check_size(route, &bytes)?;
            let mut times = seen.map_or(Times::Unknown, Times::of);
            if route.settings.needs_keys {
                let walked = seen.map_or_else(|| walk(batch), |seen| Ok(seen.clone()));
                let invalid = |problem: BatchError| Error::InvalidBatch { problem: problem.to_string() };
                let walked = walked.map_err(invalid)?;
                keys::check(&route.path.to_string(), &walked)?;
                times = Times::of(&walked);
            }
            route.partition(partition)?;
            let sequencer = self.sequencer(route, partition)?;
            Ok(sequencer.submit(bytes.clone(), batch, times, deadline))
        };
        place().unwrap_or_else(Ticket::failed)
    }

    /// Takes an append that another node sent here. Its place in the order is fixed when this returns.
    pub(crate) fn submit_forwarded(
        &self,
        topic: TopicId,
        partition: u32,
        segment: SegmentId,
        bytes: &Bytes,
        patience: Duration,
    ) -> Ticket {
        let longest = Duration::from_millis(self.cluster().config().append_wait_ms);
        let deadline = Instant::now() + patience.min(longest);
        let placed = check_batch(bytes).and_then(|batch| {
            let routing = self.cluster().routing();
            let unknown = || Error::UnknownTopic { topic: topic.0.to_string() };
            let route = routing.topic(topic).ok_or_else(unknown)?;
            check_size(route, bytes)?;
            route.partition(partition)?;
            let sequencer = self.sequencer(route, partition)?;
            Ok(sequencer.submit_forwarded(bytes.clone(), &batch, segment, deadline))
        });
        placed.unwrap_or_else(Ticket::failed)
    }
}

/// Refuses a batch that is larger than its topic takes.
fn check_size(route: &TopicRoute, bytes: &Bytes) -> Result<()> {
    let (bytes, bytes_max) = (bytes.len() as u64, route.settings.batch_bytes_max);
    if bytes > bytes_max {
        return Err(Error::TooLarge { what: format!("a batch for topic {}", route.path), bytes, bytes_max });
    }
    Ok(())
}

/// Parses what must be one sound batch of at most [`BATCH_BYTES_MAX`].
pub(crate) fn check_batch(bytes: &Bytes) -> Result<Batch<'_>> {
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
