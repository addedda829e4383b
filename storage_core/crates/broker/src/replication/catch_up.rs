//! Bringing this node's copies to where the decisions are: what is missing is fetched from others, what lies behind the end
//! goes, the digest must be right. Replicas learn decisions from the metadata, so a copy that was away, or is new, comes
//! to its end in the same way as one that was there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;
use walrus_log::ProducerTable;
use walrus_metadata::{Descriptor, Segment, SegmentState, Value};
use walrus_replica::Offset;

use super::{convert, recovery};
use crate::broker::Broker;
use crate::error::{Error, Result};

/// Where nothing tells to look earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A copy that could not be completed waits so long.
const RETRY: Duration = Duration::from_secs(1);

/// Until the node stops.
pub(crate) async fn keep_up(broker: Broker) {
    let shutdown = broker.shutdown_signal().clone();
    let mut failed: HashMap<Uuid, Instant> = HashMap::new();
    loop {
        let mut version = broker.watch_metadata();
        version.mark_unchanged();
        failed.retain(|_, at| at.elapsed() < RETRY);
        for segment in behind(&broker) {
            if shutdown.is_cancelled() {
                return;
            }
            let SegmentState::Sealed(value) = &segment.state else { continue };
            if failed.contains_key(&segment.descriptor.uuid) {
                continue;
            }
            let uuid = segment.descriptor.uuid;
            let sealed = tokio::select! {
                sealed = seal_here(&broker, &segment.descriptor, value) => sealed,
                () = shutdown.cancelled() => return,
            };
            match sealed {
                Ok(()) => tracing::debug!(segment = %uuid, end = value.end.0, "the copy is whole and sealed"),
                Err(error) => {
                    tracing::info!(segment = %uuid, %error, "the copy is not whole yet");
                    failed.insert(uuid, Instant::now());
                }
            }
        }
        let next = tokio::time::timeout(LOOK_AGAIN, version.changed());
        if shutdown.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}

/// Sealed segments that this disk should have and does not have whole, fewest offsets first is not known: oldest first.
fn behind(broker: &Broker) -> Vec<Segment> {
    let routing = broker.routing();
    let store = broker.bucket().store();
    let is_whole = |segment: &Segment| {
        store.log(crate::segment::log_id(&segment.descriptor)).is_some_and(|log| log.is_sealed())
    };
    let partitions = routing.metadata.topics.values().flat_map(|topic| &topic.partitions);
    let sealed = partitions
        .flat_map(|partition| &partition.segments)
        .filter(|segment| matches!(segment.state, SegmentState::Sealed(_)));
    let here = sealed.filter(|segment| broker.copies().place(&segment.descriptor).is_some());
    here.filter(|segment| !is_whole(segment)).cloned().collect()
}

/// Seals the own copy of a segment as decided, fetching what it lacks.
pub(crate) async fn seal_here(broker: &Broker, segment: &Descriptor, value: &Value) -> Result<()> {
    let copy = broker.copies().open(segment)?;
    let decided = convert::value(value);
    if copy.log().is_none() {
        make_log(broker, segment).await?;
    }
    let mut from = decided.end;
    let mut batches = Vec::new();
    loop {
        let (sealing, decided) = (copy.clone(), decided.clone());
        let lacks = broker.blocking(move || sealing.seal(decided, from, batches)).await?;
        let Some(end) = lacks else {
            return Ok(());
        };
        batches = fetch_from_any(broker, segment, end).await?;
        from = end;
    }
}

async fn fetch_from_any(broker: &Broker, segment: &Descriptor, from: Offset) -> Result<Vec<bytes::Bytes>> {
    let mut failure = Error::Unavailable { what: format!("nobody else has segment {}", segment.uuid) };
    for replica in segment.replicas.iter().filter(|replica| replica.node.0 != broker.node_id()) {
        match recovery::fetch(broker, segment.uuid, replica.node.0, from).await {
            Ok(batches) if !batches.is_empty() => return Ok(batches),
            Ok(_) => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The log of a copy, with the producers that were known at its base.
pub(crate) async fn make_log(broker: &Broker, segment: &Descriptor) -> Result<()> {
    let producers =
        if segment.number == 0 { ProducerTable::new() } else { broker.producers_at_base(segment).await? };
    broker.make_log(segment, producers).await.map(drop)
}
