//! Coordinators of groups, and commits without a member.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{FindCoordinatorRequest, GroupId, OffsetCommitRequest};
use kafka_protocol::protocol::StrBytes;

use crate::Arguments;
use crate::connection::Connection;
use crate::topic;

/// Kafka makes the topic of groups when the first one is asked for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(10);
const FIND_VERSION: i16 = 2;
const COMMIT_VERSION: i16 = 7;

pub(crate) fn group_id(group: &str) -> GroupId {
    GroupId(StrBytes::from_string(group.to_owned()))
}

/// Connects to the coordinator of a group, by whichever broker answers; returns its node, too.
pub(crate) fn connect(arguments: &Arguments, group: &str) -> Result<(i32, Connection)> {
    begin(arguments, group, |_| Ok(())).map(|(node, connection, ())| (node, connection))
}

/// The same, with a first request and what it is answered. A broker coordinates once it has read what there was before, and may hand over
/// to another one: who is told so looks for the coordinator again, as every client does.
pub(crate) fn begin<Answer>(
    arguments: &Arguments,
    group: &str,
    request: impl Fn(&mut Connection) -> Result<Answer>,
) -> Result<(i32, Connection, Answer)> {
    let until = Instant::now() + PATIENCE;
    loop {
        let begun = find(arguments, group).and_then(|(node, mut connection)| {
            let answer = request(&mut connection)?;
            Ok((node, connection, answer))
        });
        match begun {
            Ok(begun) => return Ok(begun),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(TRY_AGAIN),
        }
    }
}

/// The same without patience.
pub(crate) fn find(arguments: &Arguments, group: &str) -> Result<(i32, Connection)> {
    let request = FindCoordinatorRequest::default().with_key(StrBytes::from_string(group.to_owned()));
    let found = topic::any(arguments)?.ask(FIND_VERSION, &request)?;
    topic::check(found.error_code, "there is no coordinator")?;
    Ok((found.node_id.0, Connection::to(topic::resolve(&found.host, found.port)?)?))
}

/// Commits this offset of the first so many partitions of a topic, for a group without members.
pub(crate) fn commit(
    connection: &mut Connection,
    group: &str,
    topic: &str,
    partitions: usize,
    offset: i64,
) -> Result<()> {
    let partition = |index: i32| {
        let partition = OffsetCommitRequestPartition::default().with_partition_index(index);
        partition.with_committed_offset(offset).with_committed_metadata(Some(StrBytes::default()))
    };
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic::name(topic))
        .with_partitions((0..i32::try_from(partitions)?).map(partition).collect());
    let request = OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let answer = connection.ask(COMMIT_VERSION, &request)?;
    let topic = answer.topics.first().context("an answer without the topic")?;
    topic.partitions.iter().try_for_each(|partition| topic::check(partition.error_code, "a commit failed"))
}
