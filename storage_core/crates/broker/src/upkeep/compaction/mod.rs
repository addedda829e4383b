//! Compaction of the partitions whose topics keep the last record of each key. One pass is made at a time, of the partition here
//! that has most to gain; `walrus_metadata` says which passes are due and who makes them.

mod courtesy;
mod leftovers;
mod pass;
mod rewriting;
mod source;
mod summary;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use walrus_metadata::{DuePass, Metadata, Partition, PartitionPlace, Present, Topic, compactor, due_pass};
use walrus_model::NodeId;

use crate::copies::Copies;
use crate::node::patience;
use crate::partition::Partitions;
use pass::Pass;
use summary::PassSummary;
use worker::Worker;

/// Compacts what is due here, until the node stops.
pub(crate) async fn keep_compacting(partitions: Arc<Partitions>) {
    let copies = partitions.copies().clone();
    let shutdown = copies.tasks().shutdown().clone();
    let mut failed: HashMap<PartitionPlace, Instant> = HashMap::new();
    let mut worker = Worker::default();
    while !shutdown.is_cancelled() {
        failed.retain(|_, at| at.elapsed() < patience::COMPACTION_RETRY);
        leftovers::clear(&copies).await;
        let metadata = copies.cluster().routing().metadata.clone();
        let Some(pass) = most_due(&partitions, &metadata, &failed) else {
            if shutdown.run_until_cancelled(tokio::time::sleep(patience::COMPACTION_LOOK)).await.is_none() {
                return;
            }
            continue;
        };
        let (place, began) = (pass.place, Instant::now());
        match worker.run(&copies, pass).await {
            Ok(summary) => tell(&copies, place, &summary, began.elapsed()),
            Err(error) => {
                tracing::info!(topic = %place.topic.0, partition = place.partition, %error, "a compaction ends early");
                failed.insert(place, Instant::now());
            }
        }
    }
}

fn tell(copies: &Copies, place: PartitionPlace, summary: &PassSummary, took: Duration) {
    let metrics = copies.cluster().metrics();
    metrics.compactions.inc();
    metrics.compaction_seconds.observe(took.as_secs_f64());
    metrics.compacted_bytes.inc_by(summary.stays.bytes_read);
    metrics.compacted_records_gone.inc_by(summary.stays.records_gone);
    tracing::info!(
        topic = %place.topic.0,
        partition = place.partition,
        cleaned_to = summary.cleaned_to.0,
        segments = summary.segments_before,
        segments_after = summary.segments_after,
        read_bytes = summary.stays.bytes_read,
        gone = summary.stays.records_gone,
        kept = summary.stays.records_kept,
        seconds = took.as_secs_f64(),
        "a partition is compacted"
    );
}

/// The pass that is to be made here next: what waits for too long comes first, then what has most new bytes.
fn most_due(
    partitions: &Partitions,
    metadata: &Metadata,
    failed: &HashMap<PartitionPlace, Instant>,
) -> Option<Pass> {
    if !metadata.knows_placement() {
        return None;
    }
    let cluster = partitions.cluster();
    let (me, present) = (NodeId(cluster.node_id()), cluster.answering(metadata));
    let limits = partitions.leaders().limits();
    let due = metadata.topics.values().flat_map(|topic| due_in(metadata, &present, topic, me));
    let (topic, partition, due) = due
        .filter(|(topic, partition, _)| !failed.contains_key(&place_of(topic, partition)))
        .max_by_key(|(.., due)| (due.is_overdue, due.dirty_bytes))?;
    Some(Pass {
        place: place_of(topic, partition),
        segments: partition.segments[..due.segments].to_vec(),
        start: partition.log_start(),
        cleaned_to: partition.compaction.cleaned_to,
        tombstones_below: due.tombstones_below,
        segment_bytes_max: topic.config.settings().limits(limits).bytes_max,
    })
}

/// The passes that are due in a topic, and that are to be made here.
fn due_in<'a>(
    metadata: &'a Metadata,
    present: &'a Present,
    topic: &'a Topic,
    me: NodeId,
) -> impl Iterator<Item = (&'a Topic, &'a Partition, DuePass)> {
    let policy = topic.config.compaction().filter(|_| !topic.internal);
    let partitions = policy.is_some().then_some(&topic.partitions);
    partitions.into_iter().flatten().filter_map(move |partition| {
        if partition.compaction.candidate.is_some() {
            return None;
        }
        let due = due_pass(metadata, partition, &policy?)?;
        let chosen = compactor(metadata, present, topic, &partition.segments[..due.segments]);
        (chosen == Some(me)).then_some((topic, &**partition, due))
    })
}

fn place_of(topic: &Topic, partition: &Partition) -> PartitionPlace {
    PartitionPlace { topic: topic.id, partition: partition.index }
}
