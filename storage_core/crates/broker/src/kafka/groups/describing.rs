//! DescribeGroups and ListGroups.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, GroupId, ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;
use walrus_groups::{MemberView, Phase};

use super::{errors, group, text};
use crate::edge::{Operation, Resource, is_allowed};
use crate::groups::GroupView;
use crate::kafka::context::Context;

/// The first version of DescribeGroups that tells static ids.
const INSTANCES_SINCE: i16 = 4;
/// The first version of ListGroups that tells what groups are doing.
const STATES_SINCE: i16 = 4;
/// The first version of ListGroups that tells by which protocol groups go.
const TYPES_SINCE: i16 = 5;
/// The protocol by which all groups here go: that of before KIP-848.
const CLASSIC: &str = "classic";
/// What a group is called that is not there.
const DEAD: &str = "Dead";

pub(in crate::kafka) async fn describe(
    context: &Context,
    version: i16,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut rows = Vec::with_capacity(request.groups.len());
    for id in request.groups {
        let described = described(context, version, &id).await;
        let row = described.unwrap_or_else(|code| DescribedGroup::default().with_error_code(code.code()));
        rows.push(row.with_group_id(id));
    }
    DescribeGroupsResponse::default().with_groups(rows)
}

async fn described(context: &Context, version: i16, id: &GroupId) -> Result<DescribedGroup, ResponseError> {
    let name = group(context, id, Operation::Describe)?;
    let view = context.broker.groups().describe(&name).await;
    let view = view.map_err(|error| errors::of_coordinator(&error))?;
    let row = DescribedGroup::default();
    let Some(GroupView { phase, protocol_type, protocol, members }) = view else {
        return Ok(row.with_group_state(StrBytes::from_static_str(DEAD)));
    };
    let members = members.into_iter().map(|member| {
        let MemberView { id, instance, client_id, host, subscription, share } = member;
        DescribedGroupMember::default()
            .with_member_id(text(id))
            .with_group_instance_id(instance.filter(|_| version >= INSTANCES_SINCE).map(text))
            .with_client_id(text(client_id))
            .with_client_host(text(host))
            .with_member_metadata(subscription)
            .with_member_assignment(share)
    });
    Ok(row
        .with_group_state(StrBytes::from_static_str(state(phase)))
        .with_protocol_type(text(protocol_type))
        .with_protocol_data(text(protocol))
        .with_members(members.collect()))
}

pub(in crate::kafka) async fn list(
    context: &Context,
    version: i16,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let response = ListGroupsResponse::default();
    let principal = &context.listener.principal;
    let groups = match context.broker.groups().list(&principal.org).await {
        Ok(groups) => groups,
        Err(error) => return response.with_error_code(errors::of_coordinator(&error).code()),
    };
    let is_wanted = |filter: &[StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
    };
    let rows = groups.into_iter().filter(|(id, view)| {
        is_allowed(principal, Operation::Describe, Resource::Group(id))
            && is_wanted(&request.states_filter, state(view.phase))
            && is_wanted(&request.types_filter, CLASSIC)
    });
    let rows = rows.map(|(id, view)| {
        let row = ListedGroup::default().with_group_id(GroupId(text(id)));
        let row = row.with_protocol_type(text(view.protocol_type));
        let told = |since: i16, value: &'static str| {
            StrBytes::from_static_str(if version >= since { value } else { "" })
        };
        row.with_group_state(told(STATES_SINCE, state(view.phase)))
            .with_group_type(told(TYPES_SINCE, CLASSIC))
    });
    response.with_groups(rows.collect())
}

/// What a group is doing, in Kafka's words.
fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Empty => "Empty",
        Phase::PreparingRebalance => "PreparingRebalance",
        Phase::CompletingRebalance => "CompletingRebalance",
        Phase::Stable => "Stable",
    }
}
