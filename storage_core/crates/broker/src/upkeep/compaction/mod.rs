//! Compaction of the partitions whose topics keep the last record of each key. One pass is made at a time, of the partition here
//! that has most to gain; `walrus_metadata` says which passes are due and who makes them.

mod courtesy;
mod pass;
mod rewriting;
mod source;
mod summary;

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use walrus_metadata::{
    DuePass, Metadata, Partition, PartitionPlace, Present, Request, Segment, Topic, compactor, due_pass,
};
use walrus_model::NodeId;

use crate::copies::Copies;
use crate::copies::scratch::Stage;
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::partition::Partitions;
use pass::Pass;
use summary::PassSummary;

/// Compacts what is due here, until the node stops.
pub(crate) async fn keep_compacting(partitions: Arc<Partitions>) {
    let copies = partitions.copies().clone();
    let shutdown = copies.tasks().shutdown().clone();
    let mut failed: HashMap<PartitionPlace, Instant> = HashMap::new();
    let mut worker = None;
    while !shutdown.is_cancelled() {
        failed.retain(|_, at| at.elapsed() < patience::COMPACTION_RETRY);
        clear_scratch(&copies).await;
        let metadata = copies.cluster().routing().metadata.clone();
        abandon_left(&copies, &metadata).await;
        let Some(pass) = most_due(&partitions, &metadata, &failed) else {
            if shutdown.run_until_cancelled(tokio::time::sleep(patience::COMPACTION_LOOK)).await.is_none() {
                return;
            }
            continue;
        };
        let (place, began) = (pass.place, Instant::now());
        match make(&mut worker, &copies, pass).await {
            Ok(summary) => tell(&copies, place, &summary, began.elapsed()),
            Err(error) => {
                tracing::info!(topic = %place.topic.0, partition = place.partition, %error, "a compaction ends early");
                failed.insert(place, Instant::now());
            }
        }
    }
}

/// Makes a pass. The thread for it is started with the first one, and anew where it is gone.
async fn make(worker: &mut Option<Worker>, copies: &Arc<Copies>, pass: Pass) -> Result<PassSummary> {
    let running = match worker.take() {
        Some(running) => running,
        None => Worker::start(copies)?,
    };
    let made = running.run(pass).await;
    if !matches!(made, Err(Error::Internal { .. })) {
        *worker = Some(running);
    }
    made
}

/// A pass that is to be made, and who waits for it.
type Job = (Pass, oneshot::Sender<Result<PassSummary>>);

/// The thread on which passes are made, one after the other. It is one for all of them: what the allocator keeps for a thread that has
/// ended is kept once more for the next.
struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    /// Starts the thread. It gives way to all that clients wait for, and ends with this handle.
    fn start(copies: &Arc<Copies>) -> Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let copies = copies.clone();
        let work = move || {
            give_way();
            for (pass, sender) in waiting {
                drop(sender.send(pass.run(&copies))); // whoever waits for it may be gone
            }
        };
        let thread = std::thread::Builder::new().name("walrus-compact".to_owned()).spawn(work);
        thread.map(|_| Self { jobs }).map_err(|problem| no_thread(&problem))
    }

    async fn run(&self, pass: Pass) -> Result<PassSummary> {
        let (sender, ended) = oneshot::channel();
        self.jobs.send((pass, sender)).map_err(|problem| no_thread(&problem))?;
        ended.await.map_err(|problem| no_thread(&problem))?
    }
}

fn no_thread(problem: &dyn std::fmt::Display) -> Error {
    Error::Internal { message: format!("the thread of compactions: {problem}") }
}

/// How much a compaction gives way to the other threads of the machine, in steps of `nice`.
const NICENESS: i32 = 10;

/// Gives this thread a lower priority than the others have. On Linux it is the thread's own.
fn give_way() {
    if let Err(problem) = rustix::process::nice(NICENESS) {
        tracing::debug!(%problem, "a compaction runs with the priority of everything else");
    }
}

fn tell(copies: &Copies, place: PartitionPlace, summary: &PassSummary, took: Duration) {
    let metrics = copies.cluster().metrics();
    metrics.compactions.inc();
    metrics.compaction_seconds.observe(took.as_secs_f64());
    metrics.compacted_bytes.inc_by(summary.bytes_read);
    metrics.compacted_records_gone.inc_by(summary.records_gone);
    tracing::info!(
        topic = %place.topic.0,
        partition = place.partition,
        cleaned_to = summary.cleaned_to.0,
        segments = summary.segments_before,
        segments_after = summary.segments_after,
        read_bytes = summary.bytes_read,
        gone = summary.records_gone,
        seconds = took.as_secs_f64(),
        kept = summary.records_kept,
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
    let partitions: &[Partition] = if policy.is_some() { &topic.partitions } else { &[] };
    partitions.iter().filter_map(move |partition| {
        if partition.compaction.candidate.is_some() {
            return None;
        }
        let due = due_pass(metadata, partition, &policy?)?;
        let chosen = compactor(metadata, present, topic, &partition.segments[..due.segments]);
        (chosen == Some(me)).then_some((topic, partition, due))
    })
}

fn place_of(topic: &Topic, partition: &Partition) -> PartitionPlace {
    PartitionPlace { topic: topic.id, partition: partition.index }
}

/// Deletes what earlier passes wrote and the metadata do not know. No pass runs now. What was only being written nobody can know. What
/// was offered may have its place by metadata that are newer than those here, or that have forgotten it: then it is theirs.
async fn clear_scratch(copies: &Copies) {
    let scratch = copies.table().scratch();
    let left = scratch.all();
    if left.is_empty() {
        return;
    }
    let is_sure = copies.cluster().await_all_metadata("what a compaction wrote").await.is_ok();
    let metadata = copies.cluster().routing().metadata.clone();
    for (segment, stage) in left {
        let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
        let mut listed = partitions.flat_map(Partition::all_segments);
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
async fn abandon_left(copies: &Copies, metadata: &Metadata) {
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
            left.extend(candidate.map(|found| (place_of(topic, partition), found.descriptor.id)));
        }
    }
    for (place, segment) in left {
        abandon(copies, place, segment).await;
    }
}

async fn abandon(copies: &Copies, place: PartitionPlace, segment: walrus_model::SegmentId) {
    let request = Request::AbandonCompaction { place, segment };
    if let Err(refusal) = copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await {
        tracing::info!(%segment, %refusal, "a candidate of a compaction is not given up yet");
    }
}
