//! Topics: made for a case, found, and deleted behind it.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, ListOffsetsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::Arguments;
use crate::connection::Connection;

/// For a topic to have a leader that answers.
const SETTLE_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const COMMAND_MS: i32 = 60_000;
/// The time that asks for the first offset.
const EARLIEST: i64 = -2;

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Makes the topic of a case, with as many replicas as the cluster gives, and waits for its leader; returns its address.
pub(crate) fn create(arguments: &Arguments, partitions: usize) -> Result<SocketAddr> {
    let configs = arguments.config.iter().map(|(key, value)| {
        let config = CreatableTopicConfig::default().with_name(StrBytes::from_string(key.clone()));
        config.with_value(Some(StrBytes::from_string(value.clone())))
    });
    let topic = CreatableTopic::default()
        .with_name(name(&arguments.topic))
        .with_num_partitions(i32::try_from(partitions)?)
        .with_replication_factor(-1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(COMMAND_MS);
    let mut controller = controller(arguments)?;
    let answer = controller.ask(5, &request)?.topics.remove(0);
    check(answer.error_code, "the topic could not be made")?;
    let leader = leader(arguments)?;
    await_lead(arguments, leader)?;
    Ok(leader)
}

/// Waits until the leader knows that it leads, which it may learn after others.
fn await_lead(arguments: &Arguments, leader: SocketAddr) -> Result<()> {
    let partition = ListOffsetsPartition::default().with_timestamp(EARLIEST).with_current_leader_epoch(-1);
    let topic =
        ListOffsetsTopic::default().with_name(name(&arguments.topic)).with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let mut connection = Connection::to(leader)?;
    let until = Instant::now() + SETTLE_PATIENCE;
    loop {
        let answer = connection.ask(4, &request)?;
        let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
        let code = partition.context("an answer without the partition")?.error_code;
        if code == 0 || Instant::now() > until {
            return check(code, "the leader does not answer");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Deletes the topic: what it holds should not fill the disk beside the next sample.
pub(crate) fn delete(arguments: &Arguments) -> Result<()> {
    let topics = vec![name(&arguments.topic)];
    let request = DeleteTopicsRequest::default().with_topic_names(topics).with_timeout_ms(COMMAND_MS);
    let answer = controller(arguments)?.ask(4, &request)?.responses.remove(0);
    check(answer.error_code, "the topic could not be deleted")
}

/// The address of the leader of partition 0.
pub(crate) fn leader(arguments: &Arguments) -> Result<SocketAddr> {
    let until = Instant::now() + SETTLE_PATIENCE;
    let mut connection = any(arguments)?;
    loop {
        let topic = MetadataRequestTopic::default().with_name(Some(name(&arguments.topic)));
        let request = MetadataRequest::default().with_topics(Some(vec![topic]));
        let answer = connection.ask(5, &request)?;
        let topic = answer.topics.first().context("an answer without the topic")?;
        let leader = topic.partitions.iter().find(|partition| partition.partition_index == 0);
        let id = leader.filter(|partition| partition.error_code == 0).map(|partition| partition.leader_id);
        let broker = answer.brokers.iter().find(|broker| Some(broker.node_id) == id);
        if let (0, Some(broker)) = (topic.error_code, broker) {
            return resolve(&broker.host, broker.port);
        }
        ensure!(Instant::now() < until, "nobody leads {}", arguments.topic);
        std::thread::sleep(LOOK_AGAIN);
    }
}

pub(crate) fn resolve(host: &str, port: i32) -> Result<SocketAddr> {
    (host, u16::try_from(port)?).to_socket_addrs()?.next().context("a name without an address")
}

/// A connection to whichever broker answers.
pub(crate) fn any(arguments: &Arguments) -> Result<Connection> {
    let mut found = arguments.bootstrap.iter().filter_map(|address| Connection::to(*address).ok());
    found.next().context("no broker answers")
}

fn controller(arguments: &Arguments) -> Result<Connection> {
    let answer = any(arguments)?.ask(5, &MetadataRequest::default().with_topics(Some(Vec::new())))?;
    let id = answer.controller_id;
    let broker = answer.brokers.iter().find(|broker| broker.node_id == id).context("no controller")?;
    Connection::to(resolve(&broker.host, broker.port)?)
}

/// An error where a broker answered with one.
pub(crate) fn check(code: i16, what: &str) -> Result<()> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(error) => bail!("{what}: {error:?} ({code})"),
    }
}
