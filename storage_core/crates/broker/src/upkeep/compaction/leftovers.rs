//! Clears what earlier passes left behind when they ended early, with their process or without it: logs that nobody knows, and
//! candidates for which nobody waits. No pass runs meanwhile.

use walrus_metadata::{Metadata, PartitionPlace, Request, Segment};
use walrus_model::SegmentId;

use crate::copies::Copies;
use crate::copies::scratch::Stage;
use crate::node::patience;

/// Clears what is left of earlier passes, as far as the metadata can be asked.
pub(super) async fn clear(copies: &Copies) {
    delete_scratch(copies).await;
    let metadata = copies.cluster().routing().metadata.clone();
    abandon_candidates(copies, &metadata).await;
}

/// Deletes what earlier passes wrote and the metadata do not know. No pass runs now. What was only being written nobody can know. What
/// was offered may have its place by metadata that are newer than those here, or that have forgotten it: then it is theirs.
async fn delete_scratch(copies: &Copies) {
    let scratch = copies.table().scratch();
    let left = scratch.all();
    if left.is_empty() {
        return;
    }
    let is_sure = copies.cluster().await_all_metadata("what a compaction wrote").await.is_ok();
    let metadata = copies.cluster().routing().metadata.clone();
    for (segment, stage) in left {
        let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
        let mut listed = partitions.flat_map(|partition| partition.all_segments());
        let is_known =
            listed.any(|one| one.descriptor.id == segment) || copies.table().replacements().knows(segment);
        let cleared = match stage {
            Stage::Writing => scratch.delete(segment),
            Stage::Offered if is_known => scratch.forget(segment),
            Stage::Offered if is_sure => scratch.delete(segment),
            Stage::Offered => Ok(()),
        };
        if let Err(error) = cleared {
            tracing::warn!(%segment, %error, "what a compaction left is still there");
        }
    }
}

/// Gives up the candidates whose compactors do not wait for them any more: earlier processes, and earlier passes of this one.
async fn abandon_candidates(copies: &Copies, metadata: &Metadata) {
    let config = copies.cluster().config();
    let is_left = |candidate: &Segment| {
        let compactor = candidate.descriptor.leader;
        let process = metadata.nodes.get(&compactor.node).map(|node| node.process);
        process != Some(compactor.process) || compactor.process == config.process
    };
    let mut left = Vec::new();
    for topic in metadata.topics.values() {
        for partition in &topic.partitions {
            let candidate = partition.compaction.candidate.as_deref().filter(|found| is_left(found));
            let place = PartitionPlace { topic: topic.id, partition: partition.index };
            left.extend(candidate.map(|found| (place, found.descriptor.id)));
        }
    }
    for (place, segment) in left {
        abandon(copies, place, segment).await;
    }
}

async fn abandon(copies: &Copies, place: PartitionPlace, segment: SegmentId) {
    let request = Request::AbandonCompaction { place, segment };
    if let Err(refusal) = copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await {
        tracing::info!(%segment, %refusal, "a candidate of a compaction is not given up yet");
    }
}
