//! The one function that changes the metadata.

use std::sync::Arc;

use uuid::Uuid;

use crate::command::{Answer, Applied, Command, ENVELOPE_VERSION, Envelope};
use crate::model::{
    Descriptor, Epoch, Metadata, Node, NodeId, NodeState, Offset, Partition, Recent, Segment, SegmentState,
    Topic, TopicId, Value,
};
use crate::placement::FIRST_EPOCH;
use crate::rejected::Rejected;

/// How many commands are remembered. A proposer gives up on an unknown outcome long before so many others came.
const RECENT_MAX: usize = 4_096;
/// A topic with more partitions is refused: each costs a log on some disk.
const PARTITIONS_MAX: usize = 10_000;
const PRODUCER_IDS_MAX: u32 = 100_000;
/// The epoch is written into batches as Kafka's signed 32-bit leader epoch.
const EPOCH_MAX: Epoch = Epoch(i32::MAX as u32 - 1);

/// Applies one command and remembers its outcome. On `Err` nothing else was changed. A command whose id is remembered
/// changes nothing and is answered as it was the first time.
pub fn apply(metadata: &mut Metadata, envelope: &Envelope) -> Result<Applied, Rejected> {
    if let Some(seen) = metadata.recent.iter().rev().find(|recent| recent.id == envelope.id) {
        return seen.outcome.clone();
    }
    let outcome =
        check_envelope(metadata, envelope).and_then(|()| execute(metadata, envelope)).map(|answer| {
            metadata.version += 1;
            Applied { version: metadata.version, answer }
        });
    metadata.recent.push_back(Recent { id: envelope.id, outcome: outcome.clone() });
    if metadata.recent.len() > RECENT_MAX {
        metadata.recent.pop_front();
    }
    outcome
}

fn check_envelope(metadata: &Metadata, envelope: &Envelope) -> Result<(), Rejected> {
    if envelope.v != ENVELOPE_VERSION {
        return Err(Rejected::UnsupportedVersion { got: envelope.v, supported: ENVELOPE_VERSION });
    }
    if metadata.cluster_id.is_none() && !matches!(envelope.command, Command::Bootstrap { .. }) {
        return Err(Rejected::NotBootstrapped);
    }
    let Some(expected) = envelope.expect else {
        return Ok(());
    };
    let current = entity_version(metadata, &envelope.command)?;
    if current != expected {
        return Err(Rejected::VersionMismatch { expected, current });
    }
    Ok(())
}

/// Version of the node or partition that the command changes; of the whole state for the others.
fn entity_version(metadata: &Metadata, command: &Command) -> Result<u64, Rejected> {
    match command {
        Command::RenewLease { node, .. } | Command::SetNodeState { node, .. } => {
            metadata.nodes.get(node).map(|node| node.version).ok_or(Rejected::UnknownNode { node: *node })
        }
        Command::BeginRoll { topic, partition, .. }
        | Command::SealAndOpen { topic, partition, .. }
        | Command::Trim { topic, partition, .. } => {
            find_partition(metadata, *topic, *partition).map(|found| found.version)
        }
        Command::Bootstrap { .. }
        | Command::RegisterNode { .. }
        | Command::CreateTopic { .. }
        | Command::DeleteTopic { .. }
        | Command::AllocateProducerIds { .. } => Ok(metadata.version),
    }
}

fn execute(metadata: &mut Metadata, envelope: &Envelope) -> Result<Answer, Rejected> {
    let version = metadata.version + 1;
    match &envelope.command {
        Command::Bootstrap { cluster_id } => bootstrap(metadata, *cluster_id),
        Command::RegisterNode { .. } => register_node(metadata, &envelope.command, version),
        Command::RenewLease { node, process, lease_until_ms } => {
            let found = current_process(metadata, *node, *process)?;
            found.lease_until_ms = found.lease_until_ms.max(*lease_until_ms);
            Ok(Answer::Nothing)
        }
        Command::SetNodeState { node, process, state } => {
            let found = current_process(metadata, *node, *process)?;
            found.state = *state;
            found.version = version;
            Ok(Answer::Nothing)
        }
        Command::CreateTopic { topic, org, name, internal, first } => {
            create_topic(metadata, (*topic, org, name, *internal), first, envelope.at_ms, version)
        }
        Command::DeleteTopic { topic } => delete_topic(metadata, *topic),
        Command::BeginRoll { topic, partition, segment, successor } => {
            check_replicas(metadata, successor)?;
            let found = partition_mut(metadata, *topic, *partition)?;
            begin_roll(found, *segment, successor, version)
        }
        Command::SealAndOpen { topic, partition, segment, value } => {
            let found = partition_mut(metadata, *topic, *partition)?;
            seal_and_open(found, *segment, value, envelope.at_ms, version)
        }
        Command::Trim { topic, partition, below_number } => {
            trim(partition_mut(metadata, *topic, *partition)?, *below_number, version)
        }
        Command::AllocateProducerIds { count } => allocate_producer_ids(metadata, *count),
    }
}

fn bootstrap(metadata: &mut Metadata, cluster_id: Uuid) -> Result<Answer, Rejected> {
    match metadata.cluster_id {
        Some(cluster_id) => Err(Rejected::AlreadyBootstrapped { cluster_id }),
        None => {
            metadata.cluster_id = Some(cluster_id);
            Ok(Answer::Nothing)
        }
    }
}

fn register_node(metadata: &mut Metadata, command: &Command, version: u64) -> Result<Answer, Rejected> {
    let Command::RegisterNode {
        wanted,
        disk,
        process,
        raft_address,
        peer_address,
        text_address,
        grpc_address,
        http_address,
        lease_until_ms,
    } = command
    else {
        unreachable!("the caller matched the variant");
    };
    let known = metadata.nodes.values().find(|node| node.disk == *disk);
    let id = known.map_or_else(|| free_id(metadata, *wanted), |node| node.id);
    let node = Node {
        id,
        disk: *disk,
        process: *process,
        raft_address: raft_address.clone(),
        peer_address: peer_address.clone(),
        text_address: text_address.clone(),
        grpc_address: grpc_address.clone(),
        http_address: http_address.clone(),
        state: known.map_or(NodeState::Up, |node| node.state),
        lease_until_ms: known.map_or(0, |node| node.lease_until_ms).max(*lease_until_ms),
        version,
    };
    metadata.nodes.insert(id, node);
    Ok(Answer::Node(id))
}

fn free_id(metadata: &Metadata, wanted: Option<NodeId>) -> NodeId {
    let is_free = |id: &NodeId| id.0 > 0 && !metadata.nodes.contains_key(id);
    wanted
        .filter(is_free)
        .unwrap_or_else(|| (1..).map(NodeId).find(is_free).expect("there are more ids than nodes"))
}

fn current_process(metadata: &mut Metadata, node: NodeId, process: Uuid) -> Result<&mut Node, Rejected> {
    let found = metadata.nodes.get_mut(&node).ok_or(Rejected::UnknownNode { node })?;
    if found.process != process {
        return Err(Rejected::StaleProcess { node, current: found.process, got: process });
    }
    Ok(found)
}

fn create_topic(
    metadata: &mut Metadata,
    (id, org, name, internal): (TopicId, &str, &str, bool),
    first: &[Descriptor],
    at_ms: u64,
    version: u64,
) -> Result<Answer, Rejected> {
    if !is_topic_name(name) {
        return Err(Rejected::InvalidTopicName { name: name.to_owned() });
    }
    if let Some(topic) = metadata.names.get(org).and_then(|names| names.get(name)) {
        return Err(Rejected::TopicExists { name: name.to_owned(), topic: *topic });
    }
    if metadata.topics.contains_key(&id) || metadata.deleted.contains(&id) {
        return Err(Rejected::TopicExists { name: name.to_owned(), topic: id });
    }
    if first.is_empty() || first.len() > PARTITIONS_MAX {
        let (what, got) = ("partitions".to_owned(), first.len() as u64);
        return Err(Rejected::OutOfRange { what, min: 1, max: PARTITIONS_MAX as u64, got });
    }
    for (index, descriptor) in (0..).zip(first) {
        let expected = (id, index, 0, Some(Offset(0)), FIRST_EPOCH);
        let Descriptor { topic, partition, number, base_offset, epoch, .. } = descriptor;
        if (*topic, *partition, *number, *base_offset, *epoch) != expected {
            return Err(invalid(
                descriptor,
                format!("expected (topic, partition, number, base, epoch) {expected:?}"),
            ));
        }
        check_replicas(metadata, descriptor)?;
    }
    let partitions = (0..)
        .zip(first)
        .map(|(index, descriptor)| Partition {
            index,
            next_epoch: Epoch(FIRST_EPOCH.0 + 1),
            trimmed_below: 0,
            segments: vec![open_segment(descriptor.clone(), at_ms, version)],
            version,
        })
        .collect();
    let topic = Topic { id, org: org.to_owned(), name: name.to_owned(), internal, partitions };
    metadata.topics.insert(id, Arc::new(topic));
    metadata.names.entry(org.to_owned()).or_default().insert(name.to_owned(), id);
    Ok(Answer::Nothing)
}

/// Kafka's rule for topic names.
fn is_topic_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

fn delete_topic(metadata: &mut Metadata, topic: TopicId) -> Result<Answer, Rejected> {
    let removed = metadata.topics.remove(&topic).ok_or(Rejected::UnknownTopic { topic })?;
    if let Some(names) = metadata.names.get_mut(&removed.org) {
        names.remove(&removed.name);
        if names.is_empty() {
            metadata.names.remove(&removed.org);
        }
    }
    metadata.deleted.insert(topic);
    Ok(Answer::Nothing)
}

fn begin_roll(
    partition: &mut Partition,
    segment: Uuid,
    successor: &Descriptor,
    version: u64,
) -> Result<Answer, Rejected> {
    let next_epoch = partition.next_epoch;
    let found = segment_mut(partition, segment)?;
    if found.state != SegmentState::Open {
        return Err(Rejected::NotOpen { segment });
    }
    check_follows(&found.descriptor, successor, None)?;
    if successor.epoch < next_epoch {
        return Err(Rejected::StaleEpoch { got: successor.epoch, next: next_epoch });
    }
    found.successor = Some(successor.clone());
    found.version = version;
    partition.next_epoch = Epoch(successor.epoch.0 + 1);
    partition.version = version;
    Ok(Answer::Nothing)
}

/// The value was decided by the segment's replicas, so it is taken even where this state has forgotten the successor
/// or raised its epoch since: refusing it would fork the partition.
fn seal_and_open(
    partition: &mut Partition,
    segment: Uuid,
    value: &Value,
    at_ms: u64,
    version: u64,
) -> Result<Answer, Rejected> {
    if value.successor.number <= partition.trimmed_below {
        return Ok(Answer::Nothing); // published before, and trimmed since
    }
    let next_epoch = partition.next_epoch;
    let found = segment_mut(partition, segment)?;
    if let SegmentState::Sealed(published) = &found.state {
        return if published == value {
            Ok(Answer::Nothing)
        } else {
            Err(Rejected::ValueConflict { segment })
        };
    }
    check_follows(&found.descriptor, &value.successor, Some(value.end))?;
    found.state = SegmentState::Sealed(value.clone());
    found.successor = None;
    found.version = version;
    partition.segments.push(open_segment(value.successor.clone(), at_ms, version));
    partition.next_epoch = next_epoch.max(Epoch(value.successor.epoch.0 + 1));
    partition.version = version;
    Ok(Answer::Nothing)
}

fn trim(partition: &mut Partition, below_number: u64, version: u64) -> Result<Answer, Rejected> {
    let limit = partition.segments.last().map_or(0, |open| open.descriptor.number);
    if below_number > limit {
        return Err(Rejected::NotTrimmable { below_number, limit });
    }
    if below_number > partition.trimmed_below {
        partition.segments.retain(|segment| segment.descriptor.number >= below_number);
        partition.trimmed_below = below_number;
        partition.version = version;
    }
    Ok(Answer::Nothing)
}

fn allocate_producer_ids(metadata: &mut Metadata, count: u32) -> Result<Answer, Rejected> {
    if count == 0 || count > PRODUCER_IDS_MAX {
        let what = "count".to_owned();
        return Err(Rejected::OutOfRange { what, min: 1, max: PRODUCER_IDS_MAX.into(), got: count.into() });
    }
    let first = metadata.next_producer_id;
    metadata.next_producer_id += i64::from(count);
    Ok(Answer::ProducerIds { first, count })
}

fn open_segment(descriptor: Descriptor, opened_at_ms: u64, version: u64) -> Segment {
    Segment { descriptor, state: SegmentState::Open, successor: None, opened_at_ms, version }
}

/// A new segment is led by a registered process, which stores it too, and its replicas are the disks we know.
fn check_replicas(metadata: &Metadata, descriptor: &Descriptor) -> Result<(), Rejected> {
    let leader = descriptor.leader;
    let node = metadata.nodes.get(&leader.node).ok_or(Rejected::UnknownNode { node: leader.node })?;
    if node.process != leader.process {
        return Err(Rejected::StaleProcess { node: node.id, current: node.process, got: leader.process });
    }
    for replica in &descriptor.replicas {
        let node = metadata.nodes.get(&replica.node).ok_or(Rejected::UnknownNode { node: replica.node })?;
        if node.disk != replica.disk {
            return Err(invalid(
                descriptor,
                format!("node {:?} has disk {}, not {}", node.id, node.disk, replica.disk),
            ));
        }
    }
    if !descriptor.replicas.iter().any(|replica| replica.node == leader.node) {
        return Err(invalid(descriptor, "the leader is not among the replicas".to_owned()));
    }
    Ok(())
}

/// `next` is the segment behind `segment`, with the base `base_offset`.
fn check_follows(
    segment: &Descriptor,
    next: &Descriptor,
    base_offset: Option<Offset>,
) -> Result<(), Rejected> {
    let expected = (segment.topic, segment.partition, segment.number + 1, base_offset);
    if (next.topic, next.partition, next.number, next.base_offset) != expected {
        return Err(invalid(next, format!("expected (topic, partition, number, base) {expected:?}")));
    }
    if next.epoch <= segment.epoch || next.epoch > EPOCH_MAX {
        return Err(invalid(
            next,
            format!("its epoch must be above {:?} and at most {EPOCH_MAX:?}", segment.epoch),
        ));
    }
    if next.uuid == segment.uuid {
        return Err(invalid(next, "it has its predecessor's uuid".to_owned()));
    }
    if base_offset < segment.base_offset && base_offset.is_some() {
        return Err(invalid(next, format!("its base is below its predecessor's {:?}", segment.base_offset)));
    }
    Ok(())
}

fn invalid(descriptor: &Descriptor, what: String) -> Rejected {
    Rejected::InvalidDescriptor { segment: descriptor.uuid, what }
}

fn find_partition(metadata: &Metadata, topic: TopicId, partition: u32) -> Result<&Partition, Rejected> {
    let found = metadata.topics.get(&topic).ok_or(Rejected::UnknownTopic { topic })?;
    let index = usize::try_from(partition).unwrap_or(usize::MAX);
    found.partitions.get(index).ok_or(Rejected::UnknownPartition { topic, partition })
}

fn partition_mut(
    metadata: &mut Metadata,
    topic: TopicId,
    partition: u32,
) -> Result<&mut Partition, Rejected> {
    find_partition(metadata, topic, partition)?; // before make_mut copies a topic that is published elsewhere
    let found = metadata.topics.get_mut(&topic).ok_or(Rejected::UnknownTopic { topic })?;
    let index = usize::try_from(partition).unwrap_or(usize::MAX);
    Arc::make_mut(found).partitions.get_mut(index).ok_or(Rejected::UnknownPartition { topic, partition })
}

fn segment_mut(partition: &mut Partition, segment: Uuid) -> Result<&mut Segment, Rejected> {
    let mut found = partition.segments.iter_mut().rev();
    found.find(|candidate| candidate.descriptor.uuid == segment).ok_or(Rejected::UnknownSegment { segment })
}
