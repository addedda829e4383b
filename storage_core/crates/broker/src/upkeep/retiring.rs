//! Removes from this disk what metadata explicitly calls trimmed, deleted or given up. What metadata merely does not list is put
//! aside: kept and not served, and somebody should look. `fate.rs` decides.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use imbl::{OrdMap, OrdSet};
use walrus_log::Log;
use walrus_metadata::{
    Metadata, Partition, PartitionPlace, PartitionStart, Request, Segment, SegmentState, Topic,
};
use walrus_model::{SegmentId, TopicId};

use crate::cluster::segment::{Place, log_id, segment_of};
use crate::copies::Copies;
use crate::copies::promises;
use crate::copies::remains;
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::upkeep::emptied::EmptiedTopics;
use crate::upkeep::fate::{Fate, judge};

/// Removes logs as the metadata change, until the node stops.
pub(crate) async fn keep_clean(copies: Arc<Copies>) {
    let shutdown = copies.cluster().tasks().shutdown().clone();
    let mut versions = copies.cluster().watch_metadata();
    let (mut seen, mut emptied) = (CleaningState::default(), EmptiedTopics::default());
    loop {
        // The look comes before the wait: metadata that were published before this task began are no news to its watch.
        versions.mark_unchanged();
        let metadata = copies.cluster().routing().metadata.clone();
        if metadata.cluster_id.is_some() && seen.is_news(&metadata) {
            copies.await_makers().await; // a log that was begun before these metadata were here is seen
            tokio::task::block_in_place(|| clean(&copies, &metadata, &mut seen));
        }
        emptied.look(&copies, &metadata).await;
        remind(&copies, &metadata, &mut seen).await;
        let next_look = async {
            tokio::time::sleep(patience::UPKEEP_LOOK).await;
            if !emptied.is_waiting() {
                drop(versions.changed().await);
            }
        };
        if shutdown.run_until_cancelled(next_look).await.is_none() {
            return;
        }
    }
}

/// What the loop has seen of the metadata, and what it has told.
#[derive(Default)]
struct CleaningState {
    topics: OrdMap<TopicId, Arc<Topic>>,
    /// Topics that were deleted and are not forgotten.
    deleted: OrdSet<TopicId>,
    /// Logs that are put aside and that an alarm was raised for.
    reported: HashSet<SegmentId>,
    /// Something could not be deleted.
    is_behind: bool,
    /// When metadata were last told of a trim that they have forgotten.
    reminded: Option<Instant>,
}

impl CleaningState {
    /// Whether the metadata have changed in what matters here: topics. Leases are renewed all the time.
    fn is_news(&mut self, metadata: &Metadata) -> bool {
        let same = self.topics == metadata.topics && self.deleted == metadata.deleted;
        if same && !self.is_behind {
            return false;
        }
        self.topics = metadata.topics.clone();
        self.deleted = metadata.deleted.clone();
        true
    }
}

fn clean(copies: &Arc<Copies>, metadata: &Metadata, seen: &mut CleaningState) {
    seen.is_behind = false;
    // Tombstones are written first: a copy without one would answer as one that never was.
    if let Err(error) = bury(copies, metadata) {
        tracing::warn!(%error, "trimmed segments stay: their tombstones could not be written");
        seen.is_behind = true;
        return;
    }
    let mut unlisted = HashSet::new();
    for log in copies.bucket().store().logs() {
        let Some(place) = Place::parse(log.name()) else { continue };
        let is_empty = log.end_offset() == log.base_offset();
        match judge(metadata, place, segment_of(log.id()), copies.table().replica()) {
            Fate::Keep => {}
            // Nobody has offered it to the metadata yet.
            Fate::Unlisted if copies.table().scratch().contains(segment_of(log.id())) => {}
            // It was made for a successor that another one replaced: nothing was ever in it.
            Fate::Unlisted if is_empty => {}
            Fate::Delete => match delete(copies, &log) {
                Ok(()) => tracing::info!(log = %place, "log deleted: metadata calls it trimmed or deleted"),
                Err(error) => {
                    tracing::warn!(log = %place, %error, "a trimmed log is still there");
                    seen.is_behind = true;
                }
            },
            Fate::Unlisted => {
                let segment = segment_of(log.id());
                unlisted.insert(segment);
                if seen.reported.insert(segment) {
                    tracing::error!(
                        alarm = "unlisted_log", log = %place, %segment, bytes = log.size_bytes(),
                        "metadata does not list this log: it is put aside, kept and not served"
                    );
                }
            }
        }
    }
    copies.cluster().metrics().unlisted_logs.set(i64::try_from(unlisted.len()).unwrap_or(i64::MAX));
    seen.reported.retain(|segment| unlisted.contains(segment));
    copies.table().put_aside(unlisted);
}

/// Writes the tombstones of partitions, which take the place of what was promised about their trimmed segments.
fn bury(copies: &Arc<Copies>, metadata: &Metadata) -> Result<()> {
    let (store, tombstones) = (copies.bucket().store(), copies.table().tombstones());
    let failed = |error: walrus_log::Error| copies.bucket().error("tombstones", error);
    let mut is_more = false;
    for topic in metadata.topics.values() {
        for partition in &topic.partitions {
            is_more |= tombstones.remember(topic.id, partition).map_err(failed)?;
        }
    }
    let is_deleted = |topic: TopicId| metadata.deleted.contains(&topic);
    tombstones.forget(is_deleted).map_err(failed)?;
    remains::forget(store, is_deleted).map_err(failed)?;
    copies.table().replacements().forget(metadata).map_err(failed)?;
    if is_more || !metadata.deleted.is_empty() {
        let recorded = promises::all_descriptors(store);
        for segment in recorded.iter().filter(|one| tombstones.covers(one) || is_deleted(one.topic)) {
            promises::forget_votes(store, segment.id)?;
        }
    }
    Ok(())
}

fn delete(copies: &Arc<Copies>, log: &Log) -> Result<()> {
    copies.table().forget(segment_of(log.id()));
    copies.bucket().store().delete_log(log.id()).map_err(|error| copies.bucket().error(log.name(), error))
}

/// Deletes the own copy of a segment that metadata has given up. A replica that has a vote leaves a tombstone (R10).
pub(crate) fn leave(copies: &Arc<Copies>, segment: &Segment) -> Result<()> {
    let SegmentState::Sealed(value) = &segment.state else {
        return Err(Error::Internal { message: format!("{} is not sealed", segment.descriptor.id) });
    };
    let descriptor = &segment.descriptor;
    if copies.table().place(descriptor).is_some() {
        copies.table().open(descriptor)?.bury(value.clone())?;
    }
    if let Some(log) = copies.bucket().log(log_id(descriptor)) {
        delete(copies, &log)?;
    }
    copies.table().forget(descriptor.id);
    Ok(())
}

/// Tells metadata of trims and deletions that it decided and has forgotten, for it was rolled back.
async fn remind(copies: &Arc<Copies>, metadata: &Metadata, seen: &mut CleaningState) {
    if seen.reminded.is_some_and(|at| at.elapsed() < patience::TRIM_REMINDER) {
        return;
    }
    for topic in metadata.topics.values() {
        for partition in &topic.partitions {
            if forgotten(copies, metadata, topic, partition).next().is_none() {
                continue;
            }
            for request in forgotten_now(copies, topic, partition) {
                tell(topic, partition, &request);
                seen.reminded = Some(Instant::now());
                let asked = copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await;
                if let Err(refusal) = asked {
                    tracing::warn!(?refusal, "what the metadata have forgotten is not taken");
                }
            }
        }
    }
}

/// The same by the metadata of this moment: what the disk has noted since they were looked at, they know.
fn forgotten_now(copies: &Copies, topic: &Topic, partition: &Partition) -> Vec<Request> {
    let metadata = copies.cluster().routing().metadata.clone();
    let Some(topic) = metadata.topics.get(&topic.id) else { return Vec::new() };
    let Some(partition) = topic.partitions.get(partition.index as usize) else { return Vec::new() };
    forgotten(copies, &metadata, topic, partition).collect()
}

/// The trim, replacement and deletion of which this disk knows more than the metadata, as requests.
fn forgotten(
    copies: &Copies,
    metadata: &Metadata,
    topic: &Topic,
    partition: &Partition,
) -> impl Iterator<Item = Request> {
    let tombstones = copies.table().tombstones();
    let (topic, index) = (topic.id, partition.index);
    let trim = tombstones.beyond(topic, partition).map(|remembered| {
        let (below_number, first) = (remembered.below, Some(Box::new(remembered.first)));
        Request::Trim { topic, partition: index, below_number, first }
    });
    let replaced = copies.table().replacements().forgotten(topic, partition).map(|note| {
        let place = PartitionPlace { topic, partition: index };
        Request::RepeatCompaction { place, replacement: Box::new(note.replacement), copies: note.copies }
    });
    let start = tombstones.start_beyond(topic, partition).filter(|_| metadata.knows_retention());
    let deleted = start.map(|start| {
        let starts = vec![PartitionStart { partition: index, start }];
        Request::DeleteRecords { topic, starts }
    });
    [trim, replaced, deleted].into_iter().flatten()
}

/// Raises the alarm for what the metadata have forgotten.
fn tell(topic: &Topic, partition: &Partition, request: &Request) {
    let (name, index) = (&topic.name, partition.index);
    match request {
        Request::Trim { below_number: below, .. } => tracing::error!(
            alarm = "metadata_regression",
            topic = name,
            partition = index,
            below,
            listed = partition.trimmed_below,
            "metadata have forgotten a trim: it is asked for again"
        ),
        Request::RepeatCompaction { replacement, .. } => tracing::error!(
            alarm = "metadata_regression", topic = name, partition = index, segment = %replacement.descriptor.id,
            "metadata have forgotten that a segment took the place of others: it is asked for again"
        ),
        _ => tracing::error!(
            alarm = "metadata_regression",
            topic = name,
            partition = index,
            listed = partition.log_start().0,
            ?request,
            "metadata have forgotten that records were deleted: it is asked for again"
        ),
    }
}
