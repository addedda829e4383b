//! Execution of commands: each is one call of the broker, or of the shared cursors.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use walrus_log::batch::{Batch, BatchBuilder, BatchError};

use super::answer::Answer;
use super::command::Command;
use crate::broker::Broker;
use crate::cursors::Consumer;
use crate::edge::{Operation, Principal, Resource, check_allowed, is_allowed};
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicPath};
use crate::reading::reader::ReadOptions;
use crate::topics::catalogue::NewTopic;

/// Carries the command out for a principal. `number` is that of the answer on its connection, by which the consumer learns
/// later that it arrived.
pub(super) async fn execute(
    broker: &Broker,
    principal: &Principal,
    consumer: &mut Consumer,
    number: u64,
    command: Command<'_>,
) -> Result<Answer> {
    if !matches!(command, Command::Get { .. } | Command::Commit) {
        consumer.report_arrived().await;
    }
    Ok(match command {
        Command::Register { topic } => {
            let path = principal.path(topic);
            check_allowed(principal, Operation::Create, Resource::Topic(&path))?;
            broker.create_topic(&path, NewTopic::default()).await?;
            Answer::Done
        }
        Command::Put { topic, payload } => {
            let topic = principal.path(topic);
            let to = PartitionRef { partition: next_partition(broker, &topic), topic };
            if is_allowed(principal, Operation::Create, Resource::Topic(&to.topic)) {
                broker.append(&to, one_record(payload)?).await?;
            } else {
                broker.append_to_existing(&to, one_record(payload)?).await?;
            }
            Answer::Done
        }
        Command::Get { topic } => match consumer.next(&principal.path(topic), number).await? {
            Some(payload) => Answer::Payload(payload),
            None => Answer::Empty,
        },
        Command::GetAt { topic, offset, partition } => {
            read_at(broker, &PartitionRef { topic: principal.path(topic), partition }, offset).await?
        }
        Command::Commit => {
            consumer.commit().await?;
            Answer::Done
        }
        Command::State { topic } => Answer::Json(json(&broker.topic_state(&principal.path(topic)).await?)),
        Command::Metrics => Answer::Json(json(&broker.cluster_metrics())),
        Command::Topics => {
            let topics = broker.list_topics(&principal.org, false).await?;
            let names: Vec<String> = topics.into_iter().map(|topic| topic.name).collect();
            Answer::Json(json(&names))
        }
        Command::Delete { topic } => {
            let path = principal.path(topic);
            check_allowed(principal, Operation::Delete, Resource::Topic(&path))?;
            broker.delete_topic(&path, None).await?;
            Answer::Done
        }
    })
}

/// Entries of the text protocol have no key: they go to a topic's partitions in turn.
fn next_partition(broker: &Broker, topic: &TopicPath) -> u32 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    match broker.topic(topic) {
        Some(topic) if topic.partitions > 1 => TURN.fetch_add(1, Ordering::Relaxed) % topic.partitions,
        _ => 0,
    }
}

fn one_record(payload: &str) -> Result<Bytes> {
    let mut batch = Vec::new();
    BatchBuilder::new()
        .push(None, Some(payload.as_bytes()), clock::now_ms(), &[])
        .build(&mut batch)
        .map_err(invalid)?;
    Ok(batch.into())
}

/// Answers the record at an offset. An offset behind the last record is empty, and no error.
async fn read_at(broker: &Broker, from: &PartitionRef, offset: u64) -> Result<Answer> {
    let options = ReadOptions { bytes_max: 1, wait: Duration::ZERO, segment: None, unconfirmed: false };
    let page = match broker.read(from, offset, options).await {
        Err(Error::OffsetOutOfRange { end, .. }) if offset >= end => return Ok(Answer::Empty),
        page => page?,
    };
    let Some(bytes) = page.pieces.first() else { return Ok(Answer::Empty) };
    let (batch, _) = Batch::parse(bytes).map_err(invalid)?;
    let opened = batch.open_shared(bytes).map_err(invalid)?;
    for record in batch.header().records_in(&opened) {
        let record = record.map_err(invalid)?;
        if record.offset == offset {
            return Ok(Answer::Payload(opened.slice_ref(record.value.unwrap_or_default())));
        }
    }
    Ok(Answer::Empty)
}

fn invalid(problem: BatchError) -> Error {
    Error::InvalidBatch { problem: problem.to_string() }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("keys are strings and values are plain")
}
