//! A topic of one partition, and the commands that change its segments.

use std::collections::BTreeMap;

use uuid::Uuid;
use walrus_metadata::{
    Attempt, Command, CommandRejection, CopyReport, CopyState, ENVELOPE_VERSION, Envelope, Found, Metadata,
    Present, Segment, apply, first_descriptor, recovery, successor,
};
use walrus_model::{
    AttemptId, Descriptor, Digest, DiskId, Epoch, NodeId, Offset, ProcessId, ReplicaRef, Replication,
    SegmentId, TopicId, Value,
};

pub(crate) const NOW_MS: u64 = 1_000_000;
pub(crate) const TOPIC: TopicId = TopicId::from_u128(7);

pub(crate) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

pub(crate) fn run(metadata: &mut Metadata, command: Command) -> Result<(), CommandRejection> {
    run_expecting(metadata, None, command)
}

pub(crate) fn run_expecting(
    metadata: &mut Metadata,
    expect: Option<u64>,
    command: Command,
) -> Result<(), CommandRejection> {
    let envelope = Envelope { v: ENVELOPE_VERSION, id: Uuid::new_v4(), at_ms: NOW_MS, expect, command };
    apply(metadata, &envelope)?;
    metadata.check().expect("no command breaks the state");
    Ok(())
}

pub(crate) fn register(metadata: &mut Metadata, n: u128) -> Result<(), CommandRejection> {
    let command = Command::RegisterNode {
        wanted: None,
        disk: DiskId(uuid(100 + n)),
        process: ProcessId(uuid(200 + n)),
        raft_address: format!("host{n}:6000"),
        peer_address: format!("host{n}:6001"),
        text_address: format!("host{n}:8080"),
        grpc_address: format!("host{n}:9090"),
        http_address: format!("host{n}:8088"),
        admin_address: format!("host{n}:9091"),
        listeners: Vec::new(),
        name: format!("node{n}"),
        zone: String::new(),
        level: walrus_metadata::LEVEL,
    };
    run(metadata, command)
}

pub(crate) fn everybody(metadata: &Metadata) -> Present {
    Present::only(metadata.nodes.keys().copied())
}

/// The metadata of a cluster of `nodes` nodes with a topic of one partition.
pub(crate) fn cluster(nodes: u128, replication: Replication) -> Metadata {
    let mut metadata = Metadata::default();
    run(&mut metadata, Command::Bootstrap { cluster_id: uuid(1), replication }).expect("a new cluster");
    for n in 1..=nodes {
        register(&mut metadata, n).expect("a new node");
    }
    let first = vec![
        first_descriptor(
            &metadata,
            &Default::default(),
            (TOPIC, 0, SegmentId(uuid(1_000))),
            &everybody(&metadata),
        )
        .expect("enough nodes"),
    ];
    let (org, name) = ("default".into(), "t".into());
    run(
        &mut metadata,
        Command::CreateTopic { topic: TOPIC, org, name, internal: false, config: BTreeMap::new(), first },
    )
    .expect("new");
    metadata
}

pub(crate) fn last(metadata: &Metadata) -> &Segment {
    metadata.topics[&TOPIC].partitions[0].segments.last().expect("one")
}

pub(crate) fn segment(metadata: &Metadata, number: usize) -> &Segment {
    &metadata.topics[&TOPIC].partitions[0].segments[number]
}

pub(crate) fn next_epoch(metadata: &Metadata) -> Epoch {
    metadata.topics[&TOPIC].partitions[0].next_epoch
}

pub(crate) fn begin_roll(metadata: &mut Metadata) -> Result<Descriptor, CommandRejection> {
    let next =
        successor(metadata, TOPIC, 0, SegmentId(Uuid::new_v4()), &[], &everybody(metadata)).expect("nodes");
    let segment = last(metadata).descriptor.id;
    run(metadata, Command::BeginRoll { topic: TOPIC, partition: 0, segment, successor: next.clone() })?;
    Ok(next)
}

pub(crate) fn attempt(metadata: &Metadata, above: u32) -> Attempt {
    let ids = (AttemptId(Uuid::new_v4()), SegmentId(Uuid::new_v4()));
    recovery(metadata, (TOPIC, 0), ids, Epoch(above), &[], &everybody(metadata)).expect("nodes")
}

pub(crate) fn begin_recovery(
    metadata: &mut Metadata,
    segment: SegmentId,
    attempt: &Attempt,
) -> Result<(), CommandRejection> {
    let Attempt { ballot, successor } = attempt.clone();
    run(metadata, Command::BeginRecovery { topic: TOPIC, partition: 0, segment, ballot, successor })
}

pub(crate) fn decide(end: u64, successor: &Descriptor) -> Value {
    let successor = Descriptor { base_offset: Some(Offset(end)), ..successor.clone() };
    Value::without_loss(Offset(end), Digest(end ^ 7), successor)
}

pub(crate) fn publish(
    metadata: &mut Metadata,
    segment: SegmentId,
    value: &Value,
) -> Result<(), CommandRejection> {
    run(metadata, Command::SealAndOpen { topic: TOPIC, partition: 0, segment, value: value.clone() })
}

pub(crate) fn set_copies(metadata: &Metadata, added: &[ReplicaRef], given_up: &[ReplicaRef]) -> Command {
    let listed = segment(metadata, 0);
    Command::SetCopies {
        topic: TOPIC,
        partition: 0,
        segment: listed.descriptor.id,
        version: listed.version,
        added: added.to_vec(),
        given_up: given_up.to_vec(),
    }
}

pub(crate) fn report(metadata: &Metadata, replica: ReplicaRef, found: Found) -> Command {
    let listed = segment(metadata, 0);
    let since = listed.copies.iter().find(|copy| copy.replica == replica).map_or(0, |copy| copy.since);
    let segment = listed.descriptor.id;
    let reports = vec![CopyReport { topic: TOPIC, partition: 0, segment, since, found, contents: None }];
    Command::ReportCopies { replica, reports }
}

pub(crate) fn states(metadata: &Metadata) -> BTreeMap<NodeId, CopyState> {
    segment(metadata, 0).copies.iter().map(|copy| (copy.replica.node, copy.state)).collect()
}

pub(crate) fn remove_lost(metadata: &mut Metadata, replica: ReplicaRef) {
    let ReplicaRef { node, disk } = replica;
    run(metadata, Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
}
