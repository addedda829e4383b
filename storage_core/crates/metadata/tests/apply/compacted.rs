//! A compacted topic, and the commands by which tests have its segments sealed, compacted and looked at.

use std::collections::{BTreeMap, BTreeSet};

use walrus_metadata::{
    Command, CommandRejection, CompactionOffer, Contents, CopyReport, DuePass, Envelope, Found, LEVEL,
    Metadata, Partition, PartitionPlace, PassEnd, Segment, SegmentPlace, apply, due_pass,
};
use walrus_model::{
    Digest, LeaderRef, NodeId, Offset, ProcessId, ReplicaRef, Replication, SegmentId, TopicId,
};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, last_segment, run, seal, uuid};

pub(crate) const DIGEST: Digest = Digest(99);

/// Three nodes whose clocks are at `NOW_MS`, and a compacted topic of three copies.
pub(crate) fn with_topic() -> (Metadata, TopicId) {
    let mut metadata = cluster_of(3);
    run(&mut metadata, Command::SetReplication { replication: Replication { factor: 3, write_quorum: 2 } })
        .expect("sound");
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    set_clocks(&mut metadata, NOW_MS);
    let topic = create(&mut metadata, "t", 1).expect("new");
    set(&mut metadata, topic, &[("cleanup.policy", "compact")]);
    (metadata, topic)
}

pub(crate) fn set_clocks(metadata: &mut Metadata, at_ms: u64) {
    for node in 1..=3 {
        let (node, process) = (NodeId(node), metadata.nodes[&NodeId(node)].process);
        let renew = Command::RenewLease { node, process, asked_boottime_ms: 0, disk_bytes: 0 };
        apply(metadata, &Envelope { at_ms, ..envelope(0, renew) }).expect("its own");
    }
}

pub(crate) fn set(metadata: &mut Metadata, topic: TopicId, settings: &[(&str, &str)]) {
    let set = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let set: BTreeMap<String, String> = set.collect();
    run(metadata, Command::AlterTopic { topic, set, unset: BTreeSet::new() }).expect("settings");
}

pub(crate) fn partition(metadata: &Metadata, topic: TopicId) -> &Partition {
    &metadata.topics[&topic].partitions[0]
}

pub(crate) fn numbers(metadata: &Metadata, topic: TopicId) -> Vec<u64> {
    partition(metadata, topic).segments.iter().map(|segment| segment.descriptor.number).collect()
}

/// A holder says how its copy is; whole ones hold a hundred bytes.
pub(crate) fn report(metadata: &mut Metadata, topic: TopicId, segment: &Segment, node: u32, found: Found) {
    let copy = segment.copies.iter().find(|copy| copy.replica.node == NodeId(node)).expect("listed");
    let contents =
        matches!(found, Found::Whole { .. }).then_some(Contents { bytes: 100, newest_ms: Some(5) });
    let (segment, since) = (segment.descriptor.id, copy.since);
    let reports = vec![CopyReport { topic, partition: 0, segment, since, found, contents }];
    run(metadata, Command::ReportCopies { replica: copy.replica, reports }).expect("a member");
}

/// Seals the open segment at an end, with verified copies everywhere.
pub(crate) fn seal_whole(metadata: &mut Metadata, topic: TopicId, end: u64) {
    let value = seal(metadata, topic, end);
    let sealed = partition(metadata, topic).segments.iter().rev().nth(1).expect("sealed").clone();
    for node in 1..=3 {
        report(metadata, topic, &sealed, node, Found::Whole { digest: value.digest });
    }
}

/// Sealed segments that end at 10, 20 and so on.
pub(crate) fn seal_many(metadata: &mut Metadata, topic: TopicId, count: u64) {
    let from = last_segment(metadata, topic).base_offset.expect("known").0 / 10;
    (from + 1..=from + count).for_each(|end| seal_whole(metadata, topic, end * 10));
    let open = last_segment(metadata, topic);
    for replica in &open.replicas {
        let segments = vec![SegmentPlace { topic, partition: 0, segment: open.id }];
        run(metadata, Command::ReportBegun { replica: *replica, segments }).expect("a member");
    }
}

pub(crate) fn replicas(metadata: &Metadata) -> Vec<ReplicaRef> {
    metadata.nodes.values().map(|node| ReplicaRef { node: node.id, disk: node.disk }).collect()
}

pub(crate) fn offer(metadata: &Metadata, id: u128, first_number: u64, last_number: u64) -> CompactionOffer {
    CompactionOffer {
        segment: SegmentId(uuid(id)),
        compactor: LeaderRef { node: NodeId(1), process: ProcessId(uuid(201)) },
        first_number,
        last_number,
        digest: DIGEST,
        contents: Contents { bytes: 40, newest_ms: Some(5) },
        copies: replicas(metadata),
    }
}

pub(crate) fn place(topic: TopicId) -> PartitionPlace {
    PartitionPlace { topic, partition: 0 }
}

pub(crate) fn give(
    metadata: &mut Metadata,
    topic: TopicId,
    offer: CompactionOffer,
) -> Result<(), CommandRejection> {
    run(metadata, Command::OfferCompaction { place: place(topic), offer }).map(drop)
}

pub(crate) fn candidate(metadata: &Metadata, topic: TopicId) -> Segment {
    *partition(metadata, topic).compaction.candidate.clone().expect("there is one")
}

/// Offers a candidate for these segments and has it verified.
pub(crate) fn compact(metadata: &mut Metadata, topic: TopicId, id: u128, first: u64, last: u64) {
    let offered = offer(metadata, id, first, last);
    give(metadata, topic, offered).expect("sound");
    for node in [1, 2] {
        let found = partition(metadata, topic).all_segments().find(|one| one.descriptor.id.0 == uuid(id));
        let segment = found.expect("listed").clone();
        report(metadata, topic, &segment, node, Found::Whole { digest: DIGEST });
    }
}

pub(crate) fn due(metadata: &Metadata, topic: TopicId) -> Option<DuePass> {
    let policy = metadata.topics[&topic].config.compaction()?;
    due_pass(metadata, partition(metadata, topic), &policy)
}

pub(crate) fn finish(metadata: &mut Metadata, topic: TopicId, cleaned_to: u64, gone: u64, kept: Option<u64>) {
    let segments = partition(metadata, topic).segments.iter().map(|segment| segment.descriptor.id).collect();
    let end = PassEnd {
        segments,
        cleaned_to: Offset(cleaned_to),
        tombstones_gone_below: Offset(gone),
        tombstones_kept_below: kept.map(Offset),
    };
    run(metadata, Command::FinishCompaction { place: place(topic), end }).expect("listed");
    metadata.check().expect("sound");
}
