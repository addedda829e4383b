//! Upkeep of the logs that former disks left here: they are counted in the metrics, and removed once nobody needs them.

use std::sync::Arc;

use walrus_log::Log;
use walrus_metadata::{CopyState, Metadata, Segment, SegmentState};

use crate::cluster::segment::{Place, segment_of};
use crate::copies::Copies;
use crate::node::patience;

/// Whether somebody may lack what a log has: all but segments that are sealed with as many verified copies as they should
/// have, those that were trimmed, and topics that were deleted. What the metadata do not know may come back to them.
fn is_needed(metadata: &Metadata, log: &Log) -> bool {
    let Some(place) = Place::parse(log.name()) else { return true };
    if metadata.deleted.contains(&place.topic) {
        return false;
    }
    let topic = metadata.topics.get(&place.topic);
    let Some(partition) = topic.and_then(|topic| topic.partitions.get(place.partition as usize)) else {
        return true;
    };
    if place.number < partition.trimmed_below {
        return false;
    }
    let is_meant = |segment: &&Segment| {
        let stands_for = || (segment.first_number()..=segment.descriptor.number).contains(&place.number);
        segment.descriptor.id == segment_of(log.id()) || (segment.compacted.is_some() && stands_for())
    };
    partition.segments.iter().find(is_meant).is_none_or(|segment| {
        let is_verified = |copy: &&walrus_metadata::SegmentCopy| {
            copy.state == CopyState::Verified && !metadata.gone_disks.contains(&copy.replica.disk)
        };
        let verified = segment.copies.iter().filter(is_verified).count();
        !matches!(segment.state, SegmentState::Sealed(_))
            || verified < segment.descriptor.replicas.len().max(segment.descriptor.write_quorum as usize)
    })
}

/// Counts the logs in the metrics and removes those that nobody needs, until none is left or the node stops.
pub(crate) async fn keep_watch(copies: Arc<Copies>) {
    let watching = async {
        loop {
            let count = copies.left().count();
            copies.cluster().metrics().left_logs.set(i64::try_from(count).unwrap_or(i64::MAX));
            if copies.left().is_empty() {
                return;
            }
            let metadata = copies.cluster().routing().metadata.clone();
            let removing = copies.clone();
            let removed = copies.cluster().tasks().blocking(move || {
                removing.left().remove(|log| is_needed(&metadata, log));
                Ok(())
            });
            drop(removed.await); // it has told what it could not do
            tokio::time::sleep(patience::LEFT_LOGS_LOOK).await;
        }
    };
    copies.tasks().until_stopped(watching).await;
}
