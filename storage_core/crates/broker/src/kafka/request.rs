//! Requests: from the bytes of a frame to what a client asks, by way of the check of all lengths.

use bytes::Bytes;
use kafka_protocol::messages::{
    AlterConfigsRequest, ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteGroupsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeAclsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest, DescribeLogDirsRequest,
    DescribeProducersRequest, FetchRequest, FindCoordinatorRequest, HeartbeatRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, ListOffsetsRequest, ListPartitionReassignmentsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::Decodable;

use super::apis::{self, Offer, Offered};
use super::frame::{BadFrame, Header};
use super::schema::header_rest;

/// A request of an API that is offered.
pub(crate) enum Request {
    Produce(ProduceRequest),
    Fetch(FetchRequest),
    ListOffsets(ListOffsetsRequest),
    Metadata(MetadataRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetFetch(OffsetFetchRequest),
    FindCoordinator(FindCoordinatorRequest),
    /// With what the client calls itself, which groups show.
    JoinGroup(JoinGroupRequest, String),
    Heartbeat(HeartbeatRequest),
    LeaveGroup(LeaveGroupRequest),
    SyncGroup(SyncGroupRequest),
    DescribeGroups(DescribeGroupsRequest),
    ListGroups(ListGroupsRequest),
    ApiVersions(ApiVersionsRequest),
    CreateTopics(CreateTopicsRequest),
    DeleteTopics(DeleteTopicsRequest),
    DeleteRecords(DeleteRecordsRequest),
    InitProducerId(InitProducerIdRequest),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    /// For whatever it asks, the answer is the same.
    DescribeAcls,
    DescribeConfigs(DescribeConfigsRequest),
    AlterConfigs(AlterConfigsRequest),
    DescribeLogDirs(DescribeLogDirsRequest),
    CreatePartitions(CreatePartitionsRequest),
    DeleteGroups(DeleteGroupsRequest),
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest),
    /// For whatever topics it asks, there are none.
    ListPartitionReassignments,
    OffsetDelete(OffsetDeleteRequest),
    DescribeCluster(DescribeClusterRequest),
    DescribeProducers(DescribeProducersRequest),
}

/// Takes the header off a frame and decodes the rest; `None` if that API or version is not served.
pub(crate) fn decode(mut frame: Bytes) -> Result<(Header, Option<Request>), BadFrame> {
    let header = Header::take(&mut frame);
    let offer = apis::find(header.api).filter(|offer| offer.serves(header.version));
    let request = offer.map(|offer| decode_body(offer, header, frame)).transpose()?;
    Ok((header, request))
}

fn decode_body(offer: &Offer, header: Header, mut frame: Bytes) -> Result<Request, BadFrame> {
    let version = header.version;
    let rest = header_rest(offer.schema.is_flexible(version), &frame);
    let mut body = frame.split_off(rest.map_err(|problem| header.malformed(problem))?);
    offer.schema.check(version, &body).map_err(|problem| header.malformed(problem))?;
    macro_rules! decoded {
        ($request:ty, $kind:expr) => {
            <$request>::decode(&mut body, version).map($kind)
        };
    }
    let decoded = match offer.api {
        Offered::Produce => decoded!(ProduceRequest, Request::Produce),
        Offered::Fetch => decoded!(FetchRequest, Request::Fetch),
        Offered::ListOffsets => decoded!(ListOffsetsRequest, Request::ListOffsets),
        Offered::Metadata => decoded!(MetadataRequest, Request::Metadata),
        Offered::OffsetCommit => decoded!(OffsetCommitRequest, Request::OffsetCommit),
        Offered::OffsetFetch => decoded!(OffsetFetchRequest, Request::OffsetFetch),
        Offered::FindCoordinator => decoded!(FindCoordinatorRequest, Request::FindCoordinator),
        Offered::JoinGroup => {
            decoded!(JoinGroupRequest, |request| Request::JoinGroup(request, client_id(&frame)))
        }
        Offered::Heartbeat => decoded!(HeartbeatRequest, Request::Heartbeat),
        Offered::LeaveGroup => decoded!(LeaveGroupRequest, Request::LeaveGroup),
        Offered::SyncGroup => decoded!(SyncGroupRequest, Request::SyncGroup),
        Offered::DescribeGroups => decoded!(DescribeGroupsRequest, Request::DescribeGroups),
        Offered::ListGroups => decoded!(ListGroupsRequest, Request::ListGroups),
        Offered::ApiVersions => decoded!(ApiVersionsRequest, Request::ApiVersions),
        Offered::CreateTopics => decoded!(CreateTopicsRequest, Request::CreateTopics),
        Offered::DeleteTopics => decoded!(DeleteTopicsRequest, Request::DeleteTopics),
        Offered::DeleteRecords => decoded!(DeleteRecordsRequest, Request::DeleteRecords),
        Offered::InitProducerId => decoded!(InitProducerIdRequest, Request::InitProducerId),
        Offered::OffsetForLeaderEpoch => decoded!(OffsetForLeaderEpochRequest, Request::OffsetForLeaderEpoch),
        Offered::DescribeAcls => decoded!(DescribeAclsRequest, |_| Request::DescribeAcls),
        Offered::DescribeConfigs => decoded!(DescribeConfigsRequest, Request::DescribeConfigs),
        Offered::AlterConfigs => decoded!(AlterConfigsRequest, Request::AlterConfigs),
        Offered::DescribeLogDirs => decoded!(DescribeLogDirsRequest, Request::DescribeLogDirs),
        Offered::CreatePartitions => decoded!(CreatePartitionsRequest, Request::CreatePartitions),
        Offered::DeleteGroups => decoded!(DeleteGroupsRequest, Request::DeleteGroups),
        Offered::IncrementalAlterConfigs => {
            decoded!(IncrementalAlterConfigsRequest, Request::IncrementalAlterConfigs)
        }
        Offered::ListPartitionReassignments => {
            decoded!(ListPartitionReassignmentsRequest, |_| Request::ListPartitionReassignments)
        }
        Offered::OffsetDelete => decoded!(OffsetDeleteRequest, Request::OffsetDelete),
        Offered::DescribeCluster => decoded!(DescribeClusterRequest, Request::DescribeCluster),
        Offered::DescribeProducers => decoded!(DescribeProducersRequest, Request::DescribeProducers),
    };
    decoded.map_err(|problem| header.malformed(problem))
}

/// What the client calls itself, by the rest of a request's header: a string, or none.
fn client_id(header_rest: &[u8]) -> String {
    let (length, rest) = header_rest.split_first_chunk().unwrap_or((&[0; 2], &[]));
    let length = usize::try_from(i16::from_be_bytes(*length)).unwrap_or(0);
    String::from_utf8_lossy(rest.get(..length).unwrap_or_default()).into_owned()
}
