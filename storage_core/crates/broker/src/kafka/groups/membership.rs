//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: being a member of a group.

use std::net::IpAddr;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;
use walrus_groups::{Join, Joined, Leave, Protocol, Refusal, Sync, Who};

use super::{errors, group, text};
use crate::edge::Operation;
use crate::kafka::context::Context;

/// The first version of JoinGroup in which a new member is given an id first (KIP-394).
const KNOWN_ID_SINCE: i16 = 4;
/// The first version of JoinGroup that tells the static ids of members.
const INSTANCES_SINCE: i16 = 5;
/// The first version of JoinGroup that tells the kind of the group, and may tell no protocol.
const KIND_TOLD_SINCE: i16 = 7;
/// The first version of JoinGroup in which a leader can be told that it has nothing to share out (KIP-814).
const SKIPS_SINCE: i16 = 9;
/// The first version of SyncGroup that tells the kind of the group and its protocol.
const SYNC_TELLS_SINCE: i16 = 5;
/// The first version of LeaveGroup in which many leave at once.
const MANY_LEAVE_SINCE: i16 = 3;

/// Who asks, as groups show it.
pub(in crate::kafka) struct Client {
    /// What it calls itself.
    pub(in crate::kafka) id: String,
    pub(in crate::kafka) host: IpAddr,
}

pub(in crate::kafka) async fn join(
    context: &Context,
    version: i16,
    client: Client,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let asked = request.member_id.clone();
    let joined = match group(context, &request.group_id, Operation::Read) {
        Ok(name) => {
            let joined = context.broker.groups().join(&name, wish(version, client, request)).await;
            joined.map_err(|error| errors::of_coordinator(&error))
        }
        Err(code) => Err(code),
    };
    let response = JoinGroupResponse::default();
    let refused = |code: ResponseError, member: StrBytes| {
        let response = response.clone().with_error_code(code.code()).with_generation_id(-1);
        let nothing = (version < KIND_TOLD_SINCE).then(StrBytes::default);
        response.with_protocol_name(nothing).with_member_id(member)
    };
    match joined {
        Ok(Ok(joined)) => told(version, joined, response),
        Ok(Err(Refusal::MemberIdRequired(id))) => refused(ResponseError::MemberIdRequired, text(id)),
        Ok(Err(refusal)) => refused(errors::of_refusal(&refusal), asked),
        Err(code) => refused(code, asked),
    }
}

fn wish(version: i16, client: Client, request: JoinGroupRequest) -> Join {
    let instance = request.group_instance_id.map(|instance| instance.to_string());
    let begins = instance.as_ref().unwrap_or(&client.id);
    let millis = |timeout: i32| u64::try_from(timeout).unwrap_or(0);
    let session_timeout_ms = millis(request.session_timeout_ms);
    let rebalance_timeout_ms = match request.rebalance_timeout_ms {
        -1 => session_timeout_ms, // it came with version 1
        timeout => millis(timeout),
    };
    let protocols = request
        .protocols
        .into_iter()
        .map(|protocol| Protocol { name: protocol.name.to_string(), metadata: protocol.metadata });
    Join {
        member: request.member_id.to_string(),
        fresh_id: format!("{begins}-{}", Uuid::new_v4()),
        instance,
        needs_known_id: version >= KNOWN_ID_SINCE,
        client_id: client.id,
        host: format!("/{}", client.host.to_canonical()),
        session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.collect(),
    }
}

fn told(version: i16, joined: Joined, response: JoinGroupResponse) -> JoinGroupResponse {
    let Joined { member, generation, protocol_type, protocol, mut leader, mut members, skips_sharing } =
        joined;
    if skips_sharing && version < SKIPS_SINCE {
        // A client that cannot be told so must not take itself for the leader, or it would share out anew.
        (leader, members) = (String::new(), Vec::new());
    }
    let members = members.into_iter().map(|(id, instance, metadata)| {
        let row = JoinGroupResponseMember::default().with_member_id(text(id)).with_metadata(metadata);
        row.with_group_instance_id(instance.filter(|_| version >= INSTANCES_SINCE).map(text))
    });
    response
        .with_generation_id(generation)
        .with_protocol_type((version >= KIND_TOLD_SINCE).then(|| text(protocol_type)))
        .with_protocol_name(Some(text(protocol)))
        .with_leader(text(leader))
        .with_skip_assignment(skips_sharing && version >= SKIPS_SINCE)
        .with_member_id(text(member))
        .with_members(members.collect())
}

pub(in crate::kafka) async fn sync(
    context: &Context,
    version: i16,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let response = SyncGroupResponse::default();
    let refused = |code: ResponseError| response.clone().with_error_code(code.code());
    let name = match group(context, &request.group_id, Operation::Read) {
        Ok(name) => name,
        Err(code) => return refused(code),
    };
    let shares = request.assignments.into_iter().map(|share| (share.member_id.to_string(), share.assignment));
    let wish = Sync {
        who: who(&request.member_id, request.group_instance_id.as_deref(), request.generation_id),
        protocol_type: request.protocol_type.map(|kind| kind.to_string()),
        protocol: request.protocol_name.map(|protocol| protocol.to_string()),
        shares: shares.collect(),
    };
    match context.broker.groups().sync(&name, wish).await {
        Ok(Ok(synced)) => {
            let response = response.clone().with_assignment(synced.share);
            if version < SYNC_TELLS_SINCE {
                return response;
            }
            let response = response.with_protocol_type(Some(text(synced.protocol_type)));
            response.with_protocol_name(Some(text(synced.protocol)))
        }
        Ok(Err(refusal)) => refused(errors::of_refusal(&refusal)),
        Err(error) => refused(errors::of_coordinator(&error)),
    }
}

pub(in crate::kafka) async fn heartbeat(context: &Context, request: HeartbeatRequest) -> HeartbeatResponse {
    let heard = match group(context, &request.group_id, Operation::Read) {
        Ok(name) => {
            let who = who(&request.member_id, request.group_instance_id.as_deref(), request.generation_id);
            match context.broker.groups().heartbeat(&name, &who).await {
                Ok(heard) => heard.map_err(|refusal| errors::of_refusal(&refusal)),
                Err(error) => Err(errors::of_coordinator(&error)),
            }
        }
        Err(code) => Err(code),
    };
    HeartbeatResponse::default().with_error_code(heard.err().map_or(0, |code| code.code()))
}

pub(in crate::kafka) async fn leave(
    context: &Context,
    version: i16,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let leave = |member: &StrBytes, instance: Option<&StrBytes>| Leave {
        member: member.to_string(),
        instance: instance.map(StrBytes::to_string),
    };
    let leaves: Vec<Leave> = if version < MANY_LEAVE_SINCE {
        vec![leave(&request.member_id, None)]
    } else {
        let members = request.members.iter();
        members.map(|member| leave(&member.member_id, member.group_instance_id.as_ref())).collect()
    };
    let left = match group(context, &request.group_id, Operation::Read) {
        Ok(name) => {
            let left = context.broker.groups().leave(&name, &leaves).await;
            left.map_err(|error| errors::of_coordinator(&error))
        }
        Err(code) => Err(code),
    };
    let response = LeaveGroupResponse::default();
    let left = match left {
        Ok(left) => left,
        Err(code) => return response.with_error_code(code.code()),
    };
    let codes =
        left.iter().map(|left| left.as_ref().err().map_or(0, |refusal| errors::of_refusal(refusal).code()));
    if version < MANY_LEAVE_SINCE {
        return response.with_error_code(codes.max().unwrap_or(0));
    }
    let rows = codes.zip(request.members).map(|(code, member)| {
        MemberResponse::default()
            .with_member_id(member.member_id)
            .with_group_instance_id(member.group_instance_id)
            .with_error_code(code)
    });
    response.with_members(rows.collect())
}

fn who(member: &StrBytes, instance: Option<&str>, generation: i32) -> Who {
    Who { member: member.to_string(), instance: instance.map(str::to_owned), generation }
}
