//! Each API of Kafka's protocol as somebody uses it who may do nothing: the error is Kafka's for that API, nothing is done, and what
//! there is looks as what there is not.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes};
use serde_json::json;
use walrus_model::{Replication, TopicId};

use super::node::{TestNode, batch, place};
use crate::broker::Broker;
use crate::edge::Principal;
use crate::kafka::tried::{Tried, offered};
use crate::node::names::OrgName;
use crate::node::spans::Spans;

const NONE: i16 = 0;
const TOPIC: i16 = 29;
const GROUP: i16 = 30;
const CLUSTER: i16 = 31;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// Name and id of the topic.
const NAME: &str = "t";
const ID: u128 = 12;

/// What is asked, and what is told.
struct Row {
    /// Error codes of the answer, in its order.
    codes: Vec<i16>,
    expected: Vec<i16>,
    /// All that is told.
    told: String,
}

struct Asker<'a> {
    listener: &'a Tried,
    version: i16,
}

impl Asker<'_> {
    async fn ask<R: Request>(
        &self,
        request: R,
        expected: &[i16],
        codes: impl Fn(&R::Response) -> Vec<i16>,
    ) -> Row
    where
        R::Response: std::fmt::Debug,
    {
        let header =
            RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(self.version);
        let mut frame = BytesMut::new();
        header.encode(&mut frame, R::header_version(self.version)).unwrap();
        request.encode(&mut frame, self.version).unwrap();
        let answered =
            tokio::time::timeout(Duration::from_secs(5), self.listener.answer(frame.freeze())).await;
        let mut answer: Bytes =
            answered.expect("nobody is asked, so nobody is waited for").expect("an answer");
        ResponseHeader::decode(&mut answer, R::Response::header_version(self.version)).unwrap();
        let response = R::Response::decode(&mut answer, self.version).unwrap();
        let told = format!("{response:?}");
        Row { codes: codes(&response), expected: expected.to_vec(), told }
    }

    fn text(&self) -> StrBytes {
        StrBytes::from_static_str(NAME)
    }

    fn topic(&self) -> TopicName {
        TopicName(self.text())
    }

    fn group(&self) -> GroupId {
        GroupId(self.text())
    }

    /// The row of an API; an API that is new has none, and fails.
    async fn row(&self, key: i16, api: &str) -> Row {
        match ApiKey::try_from(key).unwrap() {
            ApiKey::Produce => {
                let data =
                    produce_request::PartitionProduceData::default().with_records(Some(batch("value")));
                let topic = produce_request::TopicProduceData::default().with_name(self.topic());
                let topic = topic.with_partition_data(vec![data]);
                let request = ProduceRequest::default()
                    .with_acks(-1)
                    .with_timeout_ms(1_000)
                    .with_topic_data(vec![topic]);
                self.ask(request, &[TOPIC], |told| vec![told.responses[0].partition_responses[0].error_code])
                    .await
            }
            ApiKey::Fetch => {
                let partition = fetch_request::FetchPartition::default().with_partition_max_bytes(1 << 20);
                let topic = fetch_request::FetchTopic::default()
                    .with_topic(self.topic())
                    .with_partitions(vec![partition]);
                // Who says to be a broker is a client all the same.
                let request = FetchRequest::default().with_replica_id(BrokerId(1)).with_topics(vec![topic]);
                let request = request.with_max_bytes(1 << 20).with_max_wait_ms(60_000).with_min_bytes(1);
                self.ask(request, &[TOPIC], |told| vec![told.responses[0].partitions[0].error_code]).await
            }
            ApiKey::ListOffsets => {
                let partition = list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
                let topic = list_offsets_request::ListOffsetsTopic::default().with_name(self.topic());
                let topic = topic.with_partitions(vec![partition]);
                let request =
                    ListOffsetsRequest::default().with_replica_id(BrokerId(1)).with_topics(vec![topic]);
                self.ask(request, &[TOPIC], |told| vec![told.topics[0].partitions[0].error_code]).await
            }
            ApiKey::Metadata => {
                let topic = metadata_request::MetadataRequestTopic::default().with_name(Some(self.topic()));
                let request = MetadataRequest::default().with_topics(Some(vec![topic]));
                let request = request.with_allow_auto_topic_creation(true);
                self.ask(request, &[TOPIC], |told| told.topics.iter().map(|topic| topic.error_code).collect())
                    .await
            }
            ApiKey::OffsetCommit => {
                let partition = offset_commit_request::OffsetCommitRequestPartition::default();
                let topic =
                    offset_commit_request::OffsetCommitRequestTopic::default().with_name(self.topic());
                let topic = topic.with_partitions(vec![partition.with_committed_offset(1)]);
                let request =
                    OffsetCommitRequest::default().with_group_id(self.group()).with_topics(vec![topic]);
                // The topic is looked at before the group, and told of it is what is wrong with it.
                self.ask(request, &[TOPIC], |told| vec![told.topics[0].partitions[0].error_code]).await
            }
            ApiKey::OffsetFetch => {
                let group =
                    offset_fetch_request::OffsetFetchRequestGroup::default().with_group_id(self.group());
                let request = OffsetFetchRequest::default().with_groups(vec![group.with_topics(None)]);
                self.ask(request, &[GROUP], |told| vec![told.groups[0].error_code]).await
            }
            ApiKey::FindCoordinator => {
                let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![self.text()]);
                self.ask(request, &[GROUP], |told| vec![told.coordinators[0].error_code]).await
            }
            ApiKey::JoinGroup => {
                let protocol = join_group_request::JoinGroupRequestProtocol::default();
                let protocol = protocol.with_name(StrBytes::from_static_str("range"));
                let request =
                    JoinGroupRequest::default().with_group_id(self.group()).with_session_timeout_ms(30_000);
                let request = request.with_rebalance_timeout_ms(30_000).with_protocols(vec![protocol]);
                let request = request.with_protocol_type(StrBytes::from_static_str("consumer"));
                self.ask(request, &[GROUP], |told| vec![told.error_code]).await
            }
            ApiKey::SyncGroup => {
                let request = SyncGroupRequest::default().with_group_id(self.group());
                self.ask(request, &[GROUP], |told| vec![told.error_code]).await
            }
            ApiKey::Heartbeat => {
                let request = HeartbeatRequest::default().with_group_id(self.group());
                self.ask(request, &[GROUP], |told| vec![told.error_code]).await
            }
            ApiKey::LeaveGroup => {
                let member = leave_group_request::MemberIdentity::default();
                let request =
                    LeaveGroupRequest::default().with_group_id(self.group()).with_members(vec![member]);
                self.ask(request, &[GROUP], |told| vec![told.error_code]).await
            }
            ApiKey::DescribeGroups => {
                let request = DescribeGroupsRequest::default().with_groups(vec![self.group()]);
                self.ask(request, &[GROUP], |told| vec![told.groups[0].error_code]).await
            }
            ApiKey::ListGroups => {
                let codes = |told: &ListGroupsResponse| {
                    assert!(told.groups.is_empty(), "{told:?}");
                    vec![told.error_code]
                };
                self.ask(ListGroupsRequest::default(), &[NONE], codes).await
            }
            ApiKey::DeleteGroups => {
                let request = DeleteGroupsRequest::default().with_groups_names(vec![self.group()]);
                self.ask(request, &[GROUP], |told| vec![told.results[0].error_code]).await
            }
            ApiKey::OffsetDelete => {
                let partition = offset_delete_request::OffsetDeleteRequestPartition::default();
                let topic =
                    offset_delete_request::OffsetDeleteRequestTopic::default().with_name(self.topic());
                let topic = topic.with_partitions(vec![partition]);
                let request =
                    OffsetDeleteRequest::default().with_group_id(self.group()).with_topics(vec![topic]);
                self.ask(request, &[GROUP], |told| vec![told.error_code]).await
            }
            ApiKey::ApiVersions => {
                let word = || StrBytes::from_static_str("test");
                let request = ApiVersionsRequest::default().with_client_software_name(word());
                let request = request.with_client_software_version(word());
                self.ask(request, &[NONE], |told| vec![told.error_code]).await
            }
            ApiKey::CreateTopics => {
                let topic = create_topics_request::CreatableTopic::default().with_name(self.topic());
                let topic = topic.with_num_partitions(1).with_replication_factor(1);
                let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
                self.ask(request, &[TOPIC], |told| vec![told.topics[0].error_code]).await
            }
            ApiKey::DeleteTopics => {
                let row = delete_topics_request::DeleteTopicState::default;
                let rows =
                    vec![row().with_name(Some(self.topic())), row().with_topic_id(uuid::Uuid::from_u128(ID))];
                let request = DeleteTopicsRequest::default().with_topics(rows).with_timeout_ms(1_000);
                let codes =
                    |told: &DeleteTopicsResponse| told.responses.iter().map(|row| row.error_code).collect();
                self.ask(request, &[TOPIC, UNKNOWN_TOPIC_ID], codes).await
            }
            ApiKey::DeleteRecords => {
                let partition = delete_records_request::DeleteRecordsPartition::default().with_offset(-1);
                let topic = delete_records_request::DeleteRecordsTopic::default().with_name(self.topic());
                let topic = topic.with_partitions(vec![partition]);
                let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
                self.ask(request, &[TOPIC], |told| vec![told.topics[0].partitions[0].error_code]).await
            }
            ApiKey::CreatePartitions => {
                let topic =
                    create_partitions_request::CreatePartitionsTopic::default().with_name(self.topic());
                let request = CreatePartitionsRequest::default().with_topics(vec![topic.with_count(3)]);
                self.ask(request, &[TOPIC], |told| vec![told.results[0].error_code]).await
            }
            ApiKey::InitProducerId => {
                let request = InitProducerIdRequest::default().with_transactional_id(None);
                self.ask(request, &[CLUSTER], |told| vec![told.error_code]).await
            }
            ApiKey::OffsetForLeaderEpoch => {
                let partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default();
                let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default();
                let topic = topic.with_topic(self.topic()).with_partitions(vec![partition]);
                let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
                self.ask(request, &[TOPIC], |told| vec![told.topics[0].partitions[0].error_code]).await
            }
            ApiKey::DescribeConfigs => {
                let resource = describe_configs_request::DescribeConfigsResource::default;
                let topic = resource().with_resource_type(2).with_resource_name(self.text());
                let request = DescribeConfigsRequest::default();
                let request = request.with_resources(vec![topic, resource().with_resource_type(4)]);
                let codes =
                    |told: &DescribeConfigsResponse| told.results.iter().map(|row| row.error_code).collect();
                self.ask(request, &[TOPIC, CLUSTER], codes).await
            }
            ApiKey::AlterConfigs => {
                let resource = alter_configs_request::AlterConfigsResource::default;
                let topic = resource().with_resource_type(2).with_resource_name(self.text());
                let request = AlterConfigsRequest::default();
                let request = request.with_resources(vec![topic, resource().with_resource_type(4)]);
                let codes =
                    |told: &AlterConfigsResponse| told.responses.iter().map(|row| row.error_code).collect();
                self.ask(request, &[TOPIC, CLUSTER], codes).await
            }
            ApiKey::IncrementalAlterConfigs => {
                let resource = incremental_alter_configs_request::AlterConfigsResource::default;
                let topic = resource().with_resource_type(2).with_resource_name(self.text());
                let request = IncrementalAlterConfigsRequest::default();
                let request = request.with_resources(vec![topic, resource().with_resource_type(4)]);
                let codes = |told: &IncrementalAlterConfigsResponse| {
                    told.responses.iter().map(|row| row.error_code).collect()
                };
                self.ask(request, &[TOPIC, CLUSTER], codes).await
            }
            ApiKey::DescribeLogDirs => {
                let codes = |told: &DescribeLogDirsResponse| {
                    assert!(told.results.is_empty(), "{told:?}");
                    vec![told.error_code]
                };
                self.ask(DescribeLogDirsRequest::default().with_topics(None), &[CLUSTER], codes).await
            }
            ApiKey::DescribeCluster => {
                let request = DescribeClusterRequest::default().with_endpoint_type(1);
                self.ask(request, &[CLUSTER], |told| vec![told.error_code]).await
            }
            ApiKey::DescribeAcls => {
                let request = DescribeAclsRequest::default();
                self.ask(request, &[CLUSTER], |told| vec![told.error_code]).await
            }
            ApiKey::ListPartitionReassignments => {
                let request = ListPartitionReassignmentsRequest::default();
                self.ask(request, &[CLUSTER], |told| vec![told.error_code]).await
            }
            ApiKey::DescribeProducers => {
                let topic = describe_producers_request::TopicRequest::default().with_name(self.topic());
                let request = DescribeProducersRequest::default()
                    .with_topics(vec![topic.with_partition_indexes(vec![0])]);
                self.ask(request, &[TOPIC], |told| vec![told.topics[0].partitions[0].error_code]).await
            }
            other => {
                panic!("{api} ({other:?}) has no row here: say what somebody is told who may not use it")
            }
        }
    }
}

/// A node with the topic, and a listener of it whose clients are `principal`.
fn start(principal: Principal) -> (Arc<TestNode>, Tried) {
    let node = TestNode::start(1, Replication::single(), json!({}));
    let broker = Broker::new(node.topics.clone(), Arc::new(Spans::none()));
    (node, Tried::new(broker, principal))
}

fn nobody() -> Principal {
    Principal::without_grants(OrgName::parse("default").unwrap())
}

#[tokio::test(start_paused = true)]
async fn who_may_do_nothing_is_refused_by_every_api_and_does_not_learn_what_there_is() {
    let (node, there) = start(nobody());
    let (without, absent) = start(nobody());
    without.carry_out(&walrus_metadata::Request::DeleteTopic { topic: TopicId::from_u128(ID) }).unwrap();
    let mut wrong = Vec::new();
    let version_before = node.cluster().routing().metadata.version;
    for (key, api, version) in offered() {
        let there = Asker { listener: &there, version }.row(key, api).await;
        let absent = Asker { listener: &absent, version }.row(key, api).await;
        if there.codes != there.expected || there.told != absent.told {
            wrong.push((api, there.codes, there.expected, there.told, absent.told));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for node in [&node, &without] {
        assert_eq!(node.cluster().control().poll(10, Duration::ZERO), [], "nothing is asked of the metadata");
    }
    assert_eq!(node.cluster().routing().metadata.version, version_before);
    assert_eq!(node.topics.reading().end_of(&place(), None).await, Ok(0), "nothing is appended");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_all_topics_leaves_out_those_that_are_hidden() {
    let somebody = Principal::anonymous(OrgName::parse("default").unwrap(), true);
    let codes = |told: &MetadataResponse| vec![i16::try_from(told.topics.len()).unwrap()];
    for (principal, seen) in [(somebody, 1), (nobody(), 0)] {
        let (_node, listener) = start(principal);
        let asker = Asker { listener: &listener, version: 11 };
        let row = asker.ask(MetadataRequest::default().with_topics(None), &[seen], codes).await;
        assert_eq!(row.codes, row.expected, "{}", row.told);
    }
}
