//! The metadata of a small cluster, and the commands that tests give it.

use std::collections::BTreeMap;

use uuid::Uuid;
use walrus_metadata::{
    Applied, Command, CommandRejection, ENVELOPE_VERSION, Envelope, LEVEL, Metadata, Present, apply,
    first_descriptor, successor,
};
use walrus_model::{Descriptor, Digest, DiskId, Offset, ProcessId, Replication, SegmentId, TopicId, Value};

pub(crate) const NOW_MS: u64 = 1_000_000;

pub(crate) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

pub(crate) fn envelope(id: u128, command: Command) -> Envelope {
    Envelope { v: ENVELOPE_VERSION, id: uuid(id), at_ms: NOW_MS, expect: None, command }
}

/// Applies a command under an id of its own.
pub(crate) fn run(metadata: &mut Metadata, command: Command) -> Result<Applied, CommandRejection> {
    let id = Uuid::new_v4();
    apply(metadata, &Envelope { v: ENVELOPE_VERSION, id, at_ms: NOW_MS, expect: None, command })
}

pub(crate) fn bootstrap(id: u128) -> Command {
    Command::Bootstrap { cluster_id: uuid(id), replication: Replication::single() }
}

pub(crate) fn register(n: u128) -> Command {
    Command::RegisterNode {
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
        name: format!("pod-{n}"),
        zone: String::new(),
        level: LEVEL,
    }
}

pub(crate) fn cluster_of(nodes: u128) -> Metadata {
    let mut metadata = Metadata::default();
    run(&mut metadata, bootstrap(1)).expect("a new cluster");
    for n in 1..=nodes {
        run(&mut metadata, register(n)).expect("a new node");
    }
    metadata
}

pub(crate) fn everybody(metadata: &Metadata) -> Present {
    Present::only(metadata.nodes.keys().copied())
}

pub(crate) fn create(
    metadata: &mut Metadata,
    name: &str,
    partitions: u32,
) -> Result<TopicId, CommandRejection> {
    let topic = TopicId(Uuid::new_v4());
    let present = everybody(metadata);
    let first = |p| {
        first_descriptor(metadata, &Default::default(), (topic, p, SegmentId(Uuid::new_v4())), &present)
            .expect("nodes")
    };
    let first = (0..partitions).map(first).collect();
    let command = Command::CreateTopic {
        topic,
        org: "default".into(),
        name: name.into(),
        internal: false,
        config: BTreeMap::new(),
        first,
    };
    run(metadata, command).map(|_| topic)
}

pub(crate) fn last_segment(metadata: &Metadata, topic: TopicId) -> Descriptor {
    metadata.topics[&topic].partitions[0].segments.last().expect("one").descriptor.clone()
}

pub(crate) fn value(metadata: &Metadata, topic: TopicId, end: u64) -> Value {
    let next =
        successor(metadata, topic, 0, SegmentId(Uuid::new_v4()), &[], &everybody(metadata)).expect("a node");
    let successor = Descriptor { base_offset: Some(Offset(end)), ..next };
    Value::without_loss(Offset(end), Digest(end ^ 7), successor)
}

pub(crate) fn seal(metadata: &mut Metadata, topic: TopicId, end: u64) -> Value {
    let segment = last_segment(metadata, topic).id;
    let value = value(metadata, topic, end);
    let successor = Descriptor { base_offset: None, ..*value.successor.clone() };
    run(metadata, Command::BeginRoll { topic, partition: 0, segment, successor }).expect("open");
    run(metadata, Command::SealAndOpen { topic, partition: 0, segment, value: value.clone() }).expect("open");
    value
}
