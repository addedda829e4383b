//! The calls about consumer groups and shared cursors: what they are, and how far they have read.

use std::collections::{BTreeMap, HashMap};

use walrus_groups::{Committed, GroupName, MemberView, Phase, Place};
use walrus_model::TopicId;

use crate::broker::Broker;
use crate::edge::Principal;
use crate::groups::{GroupDetails, GroupSummary};
use crate::node::error::{Error, Result};
use crate::node::names::TopicPath;
use crate::node::proto::v1::{
    DescribeGroupResponse, Group, GroupMember, GroupPosition, GroupShare, PartitionStart, group,
};
use crate::reading::by_time::OffsetAt;

/// Longest name of a group, in bytes.
const NAME_BYTES_MAX: usize = 10_000;

/// The group of this name.
pub(super) fn group_name(principal: &Principal, name: &str) -> Result<GroupName> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let problem = format!("the name of a group has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
        return Err(Error::InvalidRequest { problem });
    }
    Ok(GroupName { org: principal.org.to_string(), name: name.to_owned() })
}

/// All consumer groups of an organisation, and then the shared cursors of its topics.
pub(super) async fn list(broker: &Broker, principal: &Principal) -> Result<Vec<Group>> {
    let groups = broker.groups().list_all(&principal.org).await?;
    let mut groups: Vec<Group> = groups.into_iter().map(group_message).collect();
    let positions = broker.cursors().positions().await?;
    let routing = broker.cluster().routing();
    let mut topics: Vec<String> = positions
        .iter()
        .filter_map(|(topic, ..)| routing.topic(*topic).filter(|route| route.path.org == principal.org))
        .map(|route| route.path.name.to_string())
        .collect();
    topics.sort();
    topics.dedup();
    groups.extend(topics.into_iter().map(cursor_message));
    Ok(groups)
}

/// A consumer group with its members and how far it has read.
pub(super) async fn describe(broker: &Broker, name: &GroupName) -> Result<DescribeGroupResponse> {
    let GroupDetails { summary, members, offsets } = broker.groups().details(name).await?;
    let mut readers: HashMap<(String, u32), String> = HashMap::new();
    for member in &members {
        for (topic, partitions) in member.assigned() {
            readers.extend(
                partitions.into_iter().map(|partition| ((topic.clone(), partition), member.id.clone())),
            );
        }
    }
    let committed = offsets.into_iter().map(|(place, committed)| {
        let Committed { offset, metadata, .. } = committed;
        (place, (u64::try_from(offset).unwrap_or(0), metadata))
    });
    let mut positions = positions(broker, &committed.collect(), &name.org).await;
    for position in &mut positions {
        position.member = readers.get(&(position.topic.clone(), position.partition)).cloned();
    }
    let members = members.iter().map(member_message).collect();
    Ok(DescribeGroupResponse { group: Some(group_message(summary)), members, positions })
}

/// The shared cursor of a topic, and how far it has read.
pub(super) async fn describe_cursor(broker: &Broker, path: &TopicPath) -> Result<DescribeGroupResponse> {
    let unknown = || Error::UnknownTopic { topic: path.to_string() };
    let topic = broker.cluster().find_confirmed(|| broker.topic(path).ok_or_else(unknown)).await?;
    let all = broker.cursors().positions().await?;
    let of_topic = all.into_iter().filter(|(found, ..)| *found == topic.id);
    let delivered: BTreeMap<Place, (u64, String)> = of_topic
        .map(|(topic, partition, next)| (Place { topic, partition }, (next, String::new())))
        .collect();
    if delivered.is_empty() {
        return Err(Error::UnknownGroup { group: format!("GET of topic {path}") });
    }
    let positions = positions(broker, &delivered, path.org.as_str()).await;
    let group = Some(cursor_message(path.name.to_string()));
    Ok(DescribeGroupResponse { group, members: Vec::new(), positions })
}

/// How far somebody has read the topics that are there, with the end of each partition as far as that is known.
async fn positions(broker: &Broker, read: &BTreeMap<Place, (u64, String)>, org: &str) -> Vec<GroupPosition> {
    let mut topics: BTreeMap<TopicId, Vec<u32>> = BTreeMap::new();
    for place in read.keys() {
        topics.entry(place.topic).or_default().push(place.partition);
    }
    let mut positions = Vec::with_capacity(read.len());
    for (topic, partitions) in topics {
        let path = broker.cluster().routing().topic(topic).map(|route| route.path.clone());
        let Some(path) = path.filter(|path| path.org.as_str() == org) else { continue };
        let questions: Vec<_> = partitions.iter().map(|partition| (*partition, OffsetAt::Latest)).collect();
        let ends = broker.list_offsets(&path, &questions).await.unwrap_or_default();
        for (place, partition) in partitions.into_iter().enumerate() {
            let end = ends.get(place).and_then(|end| end.as_ref().ok()?.offset);
            let (offset, metadata) = read[&Place { topic, partition }].clone();
            let topic = path.name.to_string();
            positions.push(GroupPosition { topic, partition, offset, end, member: None, metadata });
        }
    }
    positions.sort_by(|left, right| (&left.topic, left.partition).cmp(&(&right.topic, right.partition)));
    positions
}

/// The offsets to which a group is to be moved.
pub(super) fn starts(
    broker: &Broker,
    path: &TopicPath,
    starts: Vec<PartitionStart>,
) -> Result<BTreeMap<Place, Committed>> {
    let unknown = || Error::UnknownTopic { topic: path.to_string() };
    let topic = broker.topic(path).ok_or_else(unknown)?;
    let mut offsets = BTreeMap::new();
    for PartitionStart { partition, offset } in starts {
        if partition >= topic.partitions {
            let partitions = topic.partitions;
            return Err(Error::UnknownPartition { topic: path.to_string(), partition, partitions });
        }
        let problem =
            || Error::InvalidRequest { problem: format!("partition {partition} has no sound offset") };
        let offset = offset.and_then(|offset| i64::try_from(offset).ok()).ok_or_else(problem)?;
        let committed = Committed { offset, leader_epoch: -1, metadata: String::new() };
        offsets.insert(Place { topic: topic.id, partition }, committed);
    }
    Ok(offsets)
}

fn group_message(summary: GroupSummary) -> Group {
    let state = match summary.phase {
        Phase::Empty => group::State::Empty,
        Phase::PreparingRebalance => group::State::Preparing,
        Phase::CompletingRebalance => group::State::Sharing,
        Phase::Stable => group::State::Stable,
    };
    Group {
        name: summary.name,
        kind: group::Kind::Consumer.into(),
        state: state.into(),
        members: summary.members,
        protocol: summary.protocol,
        lag: summary.lag,
    }
}

fn cursor_message(topic: String) -> Group {
    Group { name: topic, kind: group::Kind::Cursor.into(), ..Group::default() }
}

fn member_message(member: &MemberView) -> GroupMember {
    let share = |(topic, partitions)| GroupShare { topic, partitions };
    GroupMember {
        id: member.id.clone(),
        instance: member.instance.clone(),
        client_id: member.client_id.clone(),
        host: member.host.clone(),
        shares: member.assigned().into_iter().map(share).collect(),
    }
}
