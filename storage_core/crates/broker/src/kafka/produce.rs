//! Produce: batches are appended as they were sent, on whichever node leads; the request is answered when they are durable on as
//! many disks as their topic asks, whether it says `acks=1` or `acks=all`. With `acks=0` nothing is answered. Clients that can be
//! told of another leader are, where that costs them nothing that is under way.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;
use walrus_log::batch::{Batch, BatchHeader};

use super::answer::Outcome;
use super::context::Context;
use super::errors;
use super::frame::Header;
use super::leaders::{self, Place, ToldLeader, broker_id};
use super::telling::{Lead, Telling, UnderWay};
use super::validation::{self, Checked, Refusal};
use crate::edge::{Operation, Resource, is_allowed};
use crate::node::error::Error;
use crate::node::locks::Lock;
use crate::node::names::{PartitionRef, TopicPath};
use crate::node::patience;
use crate::partition::ack::AppendAck;
use crate::partition::walking::records_outside;
use crate::reading::reader::ReadOptions;

/// Limit on the records of a batch that are named in an answer.
const BLAMED_MAX: usize = 100;
/// First version whose answers have a place for the leader (KIP-951).
const TOLD_SINCE: i16 = 10;

/// Answers a request. What is appended has its place in the order of its partition once this was polled for the first time.
pub(super) async fn outcome(
    context: &Context,
    telling: &Telling,
    header: Header,
    request: ProduceRequest,
) -> Outcome {
    let acks = request.acks;
    let refused = refusal_of_all(&request);
    let wait = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    // Nobody can be told anything with acks=0.
    let telling = Some(telling).filter(|_| header.version >= TOLD_SINCE && acks != 0);
    let wait = wait.min(patience::PRODUCE_MAX);
    let call = Call { context, telling, version: header.version, wait, refused, leaders: Lock::default() };
    let topics = request.topic_data.into_iter().map(|topic| call.topic(topic));
    let responses = join_all(topics).await;
    if acks != 0 {
        let leaders = std::mem::take(&mut *call.leaders.lock()).into_values().map(endpoint).collect();
        let response = ProduceResponse::default().with_responses(responses);
        return Outcome::of(header, &response.with_node_endpoints(leaders));
    }
    let mut partitions = responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.find(|answer| answer.error_code != 0).map_or(Outcome::Silent, |answer| Outcome::Closed {
        // The connection is all that the client looks at.
        why: format!("an append with acks=0 failed: {:?} {:?}", answer.error_code, answer.error_message),
    })
}

/// Why nothing of a request is done, if nothing is.
fn refusal_of_all(request: &ProduceRequest) -> Option<Refusal> {
    if request.transactional_id.is_some() {
        let code = ResponseError::TransactionalIdAuthorizationFailed;
        return Some(Refusal::new(code, "transactions are not there yet"));
    }
    if !(-1..=1).contains(&request.acks) {
        let message = format!("acks is {}, and -1, 0 and 1 are known", request.acks);
        return Some(Refusal::new(ResponseError::InvalidRequiredAcks, message));
    }
    None
}

fn endpoint(leader: ToldLeader) -> NodeEndpoint {
    NodeEndpoint::default()
        .with_node_id(broker_id(leader.node))
        .with_host(StrBytes::from_string(leader.host))
        .with_port(leader.port.into())
}

/// A batch that is durable and readable.
struct Appended {
    base_offset: u64,
    append_time_ms: Option<i64>,
    /// First offset that is there.
    log_start: u64,
}

struct Call<'a> {
    context: &'a Context,
    /// What the connection's client was told of leaders; `None` if it cannot be told.
    telling: Option<&'a Telling>,
    version: i16,
    /// Longest wait for an append.
    wait: Duration,
    refused: Option<Refusal>,
    /// The leaders that the client is told, by their nodes.
    leaders: Lock<BTreeMap<u32, ToldLeader>>,
}

impl Call<'_> {
    async fn topic(&self, topic: TopicProduceData) -> TopicProduceResponse {
        let path = self.path(&topic.name);
        let partitions = topic.partition_data.into_iter().map(|data| self.partition(path.clone(), data));
        let answers = join_all(partitions).await;
        TopicProduceResponse::default().with_name(topic.name).with_partition_responses(answers)
    }

    /// The topic that is meant, if the client may append to it.
    fn path(&self, name: &str) -> Result<TopicPath, Refusal> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let principal = &self.context.listener.principal;
        let path = principal.topic(name).map_err(|error| refusal(&error))?;
        if !is_allowed(principal, Operation::Write, Resource::Topic(&path)) {
            let code = ResponseError::TopicAuthorizationFailed;
            return Err(Refusal::new(code, "appends to this topic are not allowed"));
        }
        Ok(path)
    }

    async fn partition(
        &self,
        topic: Result<TopicPath, Refusal>,
        data: PartitionProduceData,
    ) -> PartitionProduceResponse {
        let response = PartitionProduceResponse::default().with_index(data.index);
        match self.append(topic, data).await {
            Ok(Appended { base_offset, append_time_ms, log_start }) => response
                .with_base_offset(base_offset.cast_signed())
                .with_log_append_time_ms(append_time_ms.unwrap_or(-1))
                .with_log_start_offset(log_start.cast_signed()),
            Err(Refusal { code, message, records, leader }) => {
                let error = |record: u32| {
                    BatchIndexAndErrorMessage::default()
                        .with_batch_index(record.cast_signed())
                        .with_batch_index_error_message(Some(StrBytes::from_string(message.clone())))
                };
                let errors = records.into_iter().map(error).collect();
                let told = leader.as_ref().map_or_else(LeaderIdAndEpoch::default, |leader| {
                    let told = LeaderIdAndEpoch::default().with_leader_id(broker_id(leader.node));
                    told.with_leader_epoch(leader.epoch)
                });
                self.leaders.lock().extend(leader.map(|leader| (leader.node, leader)));
                response
                    .with_current_leader(told)
                    .with_error_code(code.code())
                    .with_base_offset(-1)
                    .with_record_errors(errors)
                    .with_error_message(Some(StrBytes::from_string(message)))
            }
        }
    }

    /// Appends the batch of one partition.
    async fn append(
        &self,
        topic: Result<TopicPath, Refusal>,
        data: PartitionProduceData,
    ) -> Result<Appended, Refusal> {
        let topic = topic?;
        let unknown = || Error::UnknownTopic { topic: topic.to_string() };
        let partition = u32::try_from(data.index).map_err(|_| refusal(&unknown()))?;
        let to = PartitionRef { topic, partition };
        let broker = &self.context.broker;
        let needs_keys = |to: &PartitionRef| {
            let routing = broker.cluster().routing();
            routing.find(&to.topic).is_some_and(|route| route.settings.needs_keys)
        };
        let records: Bytes = data.records.unwrap_or_default();
        let Checked { batch, seen, corrected } = validation::check(&records, self.version, needs_keys(&to))?;
        let _under_way = self.take(&to)?;
        let appended = match corrected {
            None => broker.append_walked(&to, records.clone(), (&batch, &seen), self.wait).await,
            Some(bytes) => {
                let wrong = |problem| Refusal::new(ResponseError::UnknownServerError, problem);
                let (batch, _) = Batch::parse(&bytes).map_err(wrong)?;
                broker.append_walked(&to, bytes.clone(), (&batch, &seen), self.wait).await
            }
        };
        let ack = appended.map_err(|error| Refusal { records: blamed(&batch, &error), ..refusal(&error) })?;
        let append_time_ms = self.append_time(&to, &ack).await;
        let routing = broker.cluster().routing();
        let log_start = routing.partition(&to).map_or(0, |(_, partition)| partition.log_start().0);
        Ok(Appended { base_offset: ack.base_offset, append_time_ms, log_start })
    }

    /// Notes that an append is under way, or sends the client to the node that leads.
    fn take(&self, to: &PartitionRef) -> Result<Option<UnderWay<'_>>, Refusal> {
        let Some(telling) = self.telling else { return Ok(None) };
        let topic = {
            let routing = self.context.broker.cluster().routing();
            let Ok((route, _)) = routing.partition(to) else { return Ok(None) };
            route.topic.id
        };
        let leader = match leaders::place_of(self.context, to) {
            Place::At(leader) => Some(leader),
            Place::Here => None,
        };
        let lead = match &leader {
            None => Lead::Here,
            Some(_) if self.context.broker.cluster().leaves() => Lead::ElsewhereForGood,
            Some(_) => Lead::Elsewhere,
        };
        telling.take((topic, to.partition), lead).map(Some).ok_or_else(|| {
            let who = leader
                .as_ref()
                .map_or("another node led".to_owned(), |leader| format!("node {} leads", leader.node));
            let message = format!("{who} this partition: send it there");
            Refusal { leader, ..Refusal::new(ResponseError::NotLeaderOrFollower, message) }
        })
    }

    /// The time that the leader gave the batch, if its topic wants that. A batch that was there before has the time of then.
    async fn append_time(&self, to: &PartitionRef, ack: &AppendAck) -> Option<i64> {
        let time = ack.append_time_ms?;
        if !ack.duplicate {
            return Some(time);
        }
        let options = ReadOptions { bytes_max: 1, ..ReadOptions::default() };
        let page = self.context.broker.read(to, ack.base_offset, options).await.ok()?;
        BatchHeader::peek(page.pieces.first()?).ok().map(|header| header.max_timestamp)
    }
}

/// Places of the records that are to blame for an error of an append.
fn blamed(batch: &Batch<'_>, error: &Error) -> Vec<u32> {
    let Error::InvalidTimestamp { oldest_ms, newest_ms, .. } = error else { return Vec::new() };
    records_outside(batch, &(*oldest_ms..=*newest_ms), BLAMED_MAX).unwrap_or_default()
}

fn refusal(error: &Error) -> Refusal {
    Refusal::new(errors::of_change(error), error)
}
