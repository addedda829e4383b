//! The calls of `walrus.v1.Log`, each mapped to one call of the broker.

use std::collections::BTreeMap;

use futures_util::stream::{self, Empty};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;
use walrus_metadata::{Effect, Kept, Protocol, SettingInForce, Source};
use walrus_model::{NodeId, TopicId};

use super::append::{append, batch_of};
use super::append_stream;
use super::groups;
use super::offsets;
use super::pages::PageCarrier;
use super::read::ReadCall;
use super::status::status_of;
use crate::broker::Broker;
use crate::edge::{Operation, Principal, Resource, check_allowed};
use crate::node::budget::Purpose;
use crate::node::error::Error;
use crate::node::names::TopicPath;
use crate::node::patience;
use crate::node::proto::v1::{
    AddPartitionsRequest, AddPartitionsResponse, AlterTopicRequest, AppendRequest, AppendResponse,
    CreateTopicRequest, CreateTopicResponse, DeleteGroupRequest, DeleteGroupResponse, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteTopicRequest, DeleteTopicResponse, DescribeGroupRequest,
    DescribeGroupResponse, DescribeTopicRequest, DescribeTopicResponse, EpochStart, InitProducerRequest,
    InitProducerResponse, KeptPartition, ListGroupsRequest, ListGroupsResponse, ListNodesRequest,
    ListNodesResponse, ListOffsetsRequest, ListOffsetsResponse, ListSegmentsRequest, ListSegmentsResponse,
    ListTopicsRequest, ListTopicsResponse, Node, Partition, PartitionStart, ReadRequest, ReadResponse,
    ResetGroupRequest, ResetGroupResponse, Segment, Topic, TopicSetting, group, kept_partition, log_server,
    segment, topic_setting,
};
use crate::topics::catalogue::{ConfigChange, NewTopic};
use crate::topics::view::{
    KeptView, NodeView, PartitionView, SegmentStateView, SegmentView, TopicDescription, TopicInfo,
};

/// Limit on the answers of a stream that wait for the client.
const ANSWERS_MAX: usize = 16;

type Answer<T> = Result<Response<T>, Status>;

/// The service of one listener of one broker for one principal.
pub(super) struct LogService {
    broker: Broker,
    principal: Principal,
    /// The listener's name, which the listeners have that its clients are told of, one on each node.
    listener: String,
}

impl LogService {
    pub(super) fn new(broker: Broker, principal: Principal, listener: String) -> Self {
        Self { broker, principal, listener }
    }
}

#[tonic::async_trait]
impl log_server::Log for LogService {
    async fn create_topic(&self, request: Request<CreateTopicRequest>) -> Answer<CreateTopicResponse> {
        let CreateTopicRequest { topic, partitions, config } = request.into_inner();
        let path = self.topic(&topic, Operation::Create)?;
        let new = NewTopic { partitions, config: config.into_iter().collect() };
        let (topic, created) = self.broker.create_topic(&path, new).await.map_err(failed)?;
        Ok(Response::new(CreateTopicResponse { topic: Some(topic_message(topic)), created }))
    }

    async fn add_partitions(&self, request: Request<AddPartitionsRequest>) -> Answer<AddPartitionsResponse> {
        let AddPartitionsRequest { topic, partitions } = request.into_inner();
        let path = self.topic(&topic, Operation::Alter)?;
        let topic = self.broker.add_partitions(&path, partitions).await.map_err(failed)?;
        Ok(Response::new(AddPartitionsResponse { topic: Some(topic_message(topic)) }))
    }

    async fn describe_topic(&self, request: Request<DescribeTopicRequest>) -> Answer<DescribeTopicResponse> {
        self.room().await?;
        let path = self.principal.topic(&request.into_inner().topic).map_err(failed)?;
        let described = self.broker.describe_topic(&path).await.map_err(failed)?;
        Ok(Response::new(description_message(described)))
    }

    async fn alter_topic(&self, request: Request<AlterTopicRequest>) -> Answer<DescribeTopicResponse> {
        let AlterTopicRequest { topic, set, unset, expect_version } = request.into_inner();
        let path = self.topic(&topic, Operation::Alter)?;
        let (set, unset) = (set.into_iter().collect(), unset.into_iter().collect());
        let change = ConfigChange { set, unset, expect: expect_version };
        let described = self.broker.alter_topic(&path, change).await.map_err(failed)?;
        Ok(Response::new(description_message(described)))
    }

    async fn delete_records(&self, request: Request<DeleteRecordsRequest>) -> Answer<DeleteRecordsResponse> {
        self.room().await?;
        let DeleteRecordsRequest { topic, starts } = request.into_inner();
        let path = self.topic(&topic, Operation::Delete)?;
        let mut before = BTreeMap::new();
        for PartitionStart { partition, offset } in starts {
            if before.insert(partition, offset).is_some() {
                let problem = format!("partition {partition} is named twice");
                return Err(failed(Error::InvalidRequest { problem }));
            }
        }
        let starts = self.broker.delete_records(&path, before).await.map_err(failed)?;
        let start = |(partition, offset)| PartitionStart { partition, offset: Some(offset) };
        Ok(Response::new(DeleteRecordsResponse { starts: starts.into_iter().map(start).collect() }))
    }

    async fn list_offsets(&self, request: Request<ListOffsetsRequest>) -> Answer<ListOffsetsResponse> {
        self.room().await?;
        let ListOffsetsRequest { topic, questions } = request.into_inner();
        let path = self.principal.topic(&topic).map_err(failed)?;
        let answers = offsets::answers(&self.broker, &path, &questions).await.map_err(failed)?;
        Ok(Response::new(ListOffsetsResponse { answers }))
    }

    async fn delete_topic(&self, request: Request<DeleteTopicRequest>) -> Answer<DeleteTopicResponse> {
        let DeleteTopicRequest { topic, uuid } = request.into_inner();
        let path = self.topic(&topic, Operation::Delete)?;
        let only = uuid.map(|uuid| Uuid::try_parse(&uuid).map(TopicId).map_err(|_| no_uuid(&uuid)));
        let only = only.transpose().map_err(failed)?;
        self.broker.delete_topic(&path, only).await.map_err(failed)?;
        Ok(Response::new(DeleteTopicResponse {}))
    }

    async fn list_topics(&self, request: Request<ListTopicsRequest>) -> Answer<ListTopicsResponse> {
        self.room().await?;
        let (org, internal) = (&self.principal.org, request.into_inner().internal);
        let topics = self.broker.list_topics(org, internal).await.map_err(failed)?;
        Ok(Response::new(ListTopicsResponse { topics: topics.into_iter().map(topic_message).collect() }))
    }

    async fn list_groups(&self, _: Request<ListGroupsRequest>) -> Answer<ListGroupsResponse> {
        self.room().await?;
        let groups = groups::list(&self.broker, &self.principal).await.map_err(failed)?;
        Ok(Response::new(ListGroupsResponse { groups }))
    }

    async fn describe_group(&self, request: Request<DescribeGroupRequest>) -> Answer<DescribeGroupResponse> {
        self.room().await?;
        let request = request.into_inner();
        let described = if request.kind() == group::Kind::Cursor {
            let path = self.principal.topic(&request.name).map_err(failed)?;
            groups::describe_cursor(&self.broker, &path).await
        } else {
            let name = groups::group_name(&self.principal, &request.name).map_err(failed)?;
            groups::describe(&self.broker, &name).await
        };
        described.map(Response::new).map_err(failed)
    }

    async fn reset_group(&self, request: Request<ResetGroupRequest>) -> Answer<ResetGroupResponse> {
        let ResetGroupRequest { name, topic, starts } = request.into_inner();
        let name = groups::group_name(&self.principal, &name).map_err(failed)?;
        let path = self.principal.topic(&topic).map_err(failed)?;
        let offsets = groups::starts(&self.broker, &path, starts).map_err(failed)?;
        self.broker.groups().reset(&name, &offsets).await.map_err(failed)?;
        Ok(Response::new(ResetGroupResponse {}))
    }

    async fn delete_group(&self, request: Request<DeleteGroupRequest>) -> Answer<DeleteGroupResponse> {
        let name = groups::group_name(&self.principal, &request.into_inner().name).map_err(failed)?;
        self.broker.groups().remove(&name).await.map_err(failed)?;
        Ok(Response::new(DeleteGroupResponse {}))
    }

    async fn init_producer(&self, _: Request<InitProducerRequest>) -> Answer<InitProducerResponse> {
        let (producer_id, epoch) = self.broker.init_producer();
        Ok(Response::new(InitProducerResponse { producer_id, producer_epoch: epoch.into() }))
    }

    async fn append(&self, request: Request<AppendRequest>) -> Answer<AppendResponse> {
        let request = request.into_inner();
        let correlation = request.correlation;
        let (to, batch) = batch_of(request, &self.principal).map_err(failed)?;
        let _held = self.broker.cluster().share(Purpose::Appends).hold(batch.len());
        let ack = append(&self.broker, &self.principal, &to, batch).await.map_err(failed)?;
        Ok(Response::new(AppendResponse {
            correlation,
            base_offset: ack.base_offset,
            end_offset: ack.end_offset,
            duplicate: ack.duplicate,
            error: None,
        }))
    }

    type AppendStreamStream = ReceiverStream<Result<AppendResponse, Status>>;

    async fn append_stream(
        &self,
        request: Request<Streaming<AppendRequest>>,
    ) -> Answer<Self::AppendStreamStream> {
        let (answers, stream) = mpsc::channel(ANSWERS_MAX);
        let (broker, principal) = (self.broker.clone(), self.principal.clone());
        tokio::spawn(append_stream::run(broker, principal, request.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    type ReadStream = Empty<Result<ReadResponse, Status>>;

    /// The pages become the response's body in `pages::respond`, and no message goes through tonic's encoder.
    async fn read(&self, request: Request<ReadRequest>) -> Answer<Self::ReadStream> {
        let reading =
            ReadCall::start(self.broker.clone(), &self.principal, request.get_ref()).map_err(failed)?;
        let mut response = Response::new(stream::empty());
        response.extensions_mut().insert(PageCarrier::new(reading.into_stream()));
        Ok(response)
    }

    async fn list_segments(&self, request: Request<ListSegmentsRequest>) -> Answer<ListSegmentsResponse> {
        self.room().await?;
        let path = self.principal.topic(&request.into_inner().topic).map_err(failed)?;
        let unknown = || Error::UnknownTopic { topic: path.to_string() };
        let topic = self
            .broker
            .cluster()
            .find_confirmed(|| self.broker.topic(&path).ok_or_else(unknown))
            .await
            .map_err(failed)?;
        let partitions = self.broker.segments(&path).await.map_err(failed)?;
        let told = self.told();
        let message = |partition| partition_message(partition, &told);
        Ok(Response::new(ListSegmentsResponse {
            topic: Some(topic_message(topic)),
            partitions: partitions.into_iter().map(message).collect(),
        }))
    }

    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Answer<ListNodesResponse> {
        self.room().await?;
        let routing = self.broker.cluster().routing();
        Ok(Response::new(ListNodesResponse {
            former_cluster_ids: routing.metadata.former_ids.iter().map(ToString::to_string).collect(),
            cluster_id: self.broker.cluster().config().cluster_id.to_string(),
            nodes: self.broker.nodes().into_iter().map(self.told()).collect(),
        }))
    }
}

impl LogService {
    /// The topic that the principal means, if they may do this with it.
    fn topic(&self, name: &str, operation: Operation) -> Result<TopicPath, Status> {
        let path = self.principal.topic(name).map_err(failed)?;
        check_allowed(&self.principal, operation, Resource::Topic(&path)).map_err(failed)?;
        Ok(path)
    }

    /// Tells of a node as clients of this listener reach it: no address where the node has none for them, or is not listed any
    /// more.
    fn told(&self) -> impl Fn(NodeView) -> Node {
        let routing = self.broker.cluster().routing();
        move |NodeView { id, alive }| {
            let node = routing.metadata.nodes.get(&NodeId(id));
            let address = node.and_then(|node| {
                node.address_of(Protocol::Grpc, &self.listener, self.principal.org.as_str())
            });
            Node { id, grpc_address: address.unwrap_or_default().to_owned(), alive }
        }
    }

    /// Waits for room before an answer of any length is made, which counts only once it is there.
    async fn room(&self) -> Result<(), Status> {
        self.broker.cluster().share(Purpose::Reads).room(patience::ANSWER_MEMORY).await.map_err(failed)
    }
}

fn no_uuid(text: &str) -> Error {
    Error::InvalidRequest { problem: format!("{text:.64?} is not a uuid") }
}

fn failed(error: Error) -> Status {
    status_of(&error)
}

fn topic_message(topic: TopicInfo) -> Topic {
    Topic {
        name: topic.name,
        uuid: topic.id.to_string(),
        partitions: topic.partitions,
        internal: topic.internal,
    }
}

fn description_message(described: TopicDescription) -> DescribeTopicResponse {
    DescribeTopicResponse {
        topic: Some(topic_message(described.topic)),
        version: described.version,
        settings: described.settings.into_iter().map(setting_message).collect(),
        partitions: described.kept.into_iter().map(kept_message).collect(),
    }
}

fn kept_message(view: KeptView) -> KeptPartition {
    let KeptView { partition, log_start, sealed_segments, sealed_bytes, kept, compacted_to } = view;
    let (mut until, mut reader) = (None, None);
    let reason = match kept {
        Kept::Open => kept_partition::Reason::Open,
        Kept::ForEver => kept_partition::Reason::ForEver,
        Kept::Age { until_ms } => {
            until = Some(until_ms);
            kept_partition::Reason::Age
        }
        Kept::Bytes => kept_partition::Reason::Bytes,
        Kept::Archive => kept_partition::Reason::Archive,
        Kept::Reader { name } => {
            reader = Some(name);
            kept_partition::Reason::Reader
        }
        Kept::Unreported => kept_partition::Reason::Unreported,
        Kept::Successor => kept_partition::Reason::Successor,
    };
    KeptPartition {
        partition,
        log_start,
        sealed_segments,
        sealed_bytes,
        reason: reason.into(),
        until_ms: until,
        compacted_to,
        reader,
    }
}

fn setting_message(setting: SettingInForce) -> TopicSetting {
    let SettingInForce { definition, value, source } = setting;
    let source = match source {
        Source::Topic => topic_setting::Source::Topic,
        Source::Cluster => topic_setting::Source::Cluster,
        Source::Node => topic_setting::Source::Node,
        Source::BuiltIn => topic_setting::Source::BuiltIn,
    };
    let effect = match definition.effect {
        Effect::NextAppend => topic_setting::Effect::NextAppend,
        Effect::NextSegment => topic_setting::Effect::NextSegment,
        Effect::WithinAMinute => topic_setting::Effect::WithinAMinute,
        Effect::Never => topic_setting::Effect::Never,
    };
    TopicSetting {
        name: definition.name.to_owned(),
        value,
        source: source.into(),
        effect: effect.into(),
        what: definition.what.to_owned(),
    }
}

fn partition_message(partition: PartitionView, told: &impl Fn(NodeView) -> Node) -> Partition {
    Partition {
        partition: partition.partition,
        log_start: partition.log_start,
        high_watermark: partition.high_watermark,
        segments: partition.segments.into_iter().map(|segment| segment_message(segment, told)).collect(),
    }
}

fn segment_message(view: SegmentView, told: &impl Fn(NodeView) -> Node) -> Segment {
    let state = match view.state {
        SegmentStateView::Open => segment::State::Open,
        SegmentStateView::Sealing => segment::State::Sealing,
        SegmentStateView::Sealed => segment::State::Sealed,
    };
    Segment {
        uuid: view.uuid.to_string(),
        number: view.number,
        epoch: view.epoch,
        base_offset: view.base_offset,
        end_offset: view.end_offset,
        state: state.into(),
        leader: Some(told(view.leader)),
        replicas: view.replicas.into_iter().map(told).collect(),
        bytes: view.bytes,
        epochs: view.epochs.into_iter().map(epoch_message).collect(),
    }
}

fn epoch_message(start: walrus_metadata::EpochStart) -> EpochStart {
    EpochStart { epoch: start.epoch.0, first_offset: start.first_offset.0 }
}
