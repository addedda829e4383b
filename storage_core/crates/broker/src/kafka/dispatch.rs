//! From a request to its answer.

use std::net::IpAddr;

use super::answer::Outcome;
use super::context::Context;
use super::frame::Header;
use super::request::Request;
use super::telling::Telling;
use super::window::Answering;
use super::{
    admin, api_versions, fetch, groups, init_producer_id, list_offsets, metadata, offset_for_leader_epoch,
    produce, refusals,
};

/// The future that answers a request; it does nothing before it is polled.
pub(super) fn begin<'a>(
    context: &'a Context,
    telling: &'a Telling,
    from: IpAddr,
    header: Header,
    request: Option<Request>,
) -> Answering<'a> {
    let version = header.version;
    macro_rules! answered {
        ($answer:expr) => {
            Box::pin(async move { Outcome::of(header, &$answer.await) })
        };
    }
    let Some(request) = request else {
        return Box::pin(async move { refuse(header) });
    };
    macro_rules! at_once {
        ($answer:expr) => {
            Box::pin(async move { Outcome::of(header, &$answer) })
        };
    }
    match request {
        Request::Produce(request) => Box::pin(produce::outcome(context, telling, header, request)),
        Request::Fetch(request) => Box::pin(fetch::outcome(context, header, request)),
        Request::ListOffsets(request) => answered!(list_offsets::answer(context, version, request)),
        Request::Metadata(request) => answered!(metadata::answer(context, version, request)),
        Request::OffsetCommit(request) => answered!(groups::commit(context, request)),
        Request::OffsetFetch(request) => answered!(groups::fetch(context, version, request)),
        Request::FindCoordinator(request) => answered!(groups::find(context, version, request)),
        Request::JoinGroup(request, id) => {
            let client = groups::Client { id, host: from };
            answered!(groups::join(context, version, client, request))
        }
        Request::Heartbeat(request) => answered!(groups::heartbeat(context, request)),
        Request::LeaveGroup(request) => answered!(groups::leave(context, version, request)),
        Request::SyncGroup(request) => answered!(groups::sync(context, version, request)),
        Request::DescribeGroups(request) => answered!(groups::describe(context, version, request)),
        Request::ListGroups(request) => answered!(groups::list(context, version, request)),
        Request::DeleteGroups(request) => answered!(groups::delete_groups(context, request)),
        Request::OffsetDelete(request) => answered!(groups::delete_offsets(context, request)),
        Request::CreateTopics(request) => answered!(admin::create(context, version, request)),
        Request::DeleteTopics(request) => answered!(admin::delete(context, version, request)),
        Request::CreatePartitions(request) => answered!(admin::add_partitions(context, request)),
        Request::DeleteRecords(request) => answered!(admin::delete_records(context, request)),
        Request::DescribeConfigs(request) => answered!(admin::describe(context, version, request)),
        Request::AlterConfigs(request) => answered!(admin::alter(context, request)),
        Request::IncrementalAlterConfigs(request) => answered!(admin::alter_incrementally(context, request)),
        Request::DescribeLogDirs(request) => answered!(admin::describe_log_dirs(context, version, request)),
        Request::DescribeCluster(request) => at_once!(admin::describe_cluster(context, &request)),
        Request::DescribeAcls => at_once!(admin::describe_acls(context)),
        Request::ListPartitionReassignments => at_once!(admin::list_reassignments(context)),
        Request::DescribeProducers(request) => at_once!(admin::describe_producers(context, request)),
        Request::ApiVersions(request) => Box::pin(async move {
            let (name, version) = (&request.client_software_name, &request.client_software_version);
            tracing::debug!(?name, ?version, "a Kafka client asks for the APIs");
            Outcome::of(header, &api_versions::answer(&request))
        }),
        Request::InitProducerId(request) => at_once!(init_producer_id::answer(context, &request)),
        Request::OffsetForLeaderEpoch(request) => {
            answered!(offset_for_leader_epoch::answer(context, request))
        }
    }
}

fn refuse(header: Header) -> Outcome {
    let Header { api, version, .. } = header;
    let why = || format!("API {api} in version {version} is not served, and has no answer that could say so");
    refusals::answer(header).map_or_else(|| Outcome::Closed { why: why() }, Outcome::Answered)
}
