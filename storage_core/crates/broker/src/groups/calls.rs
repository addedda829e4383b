//! Calls about groups that any node takes: it asks their coordinators, here or on other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use walrus_groups::{Commit, Committed, GroupName, MemberView, Phase, Place, Refusal};
use walrus_model::TopicId;

use super::service::{GroupService, GroupView, PARTITIONS, partition_of, unexpected};
use crate::cluster::leadership::Leadership;
use crate::cluster::segment::uuid_bytes;
use crate::node::error::{Error, Result};
use crate::node::names::OrgName;
use crate::node::patience;
use crate::node::proto::peer::{
    GroupAnswer, GroupChangeAnswer, GroupCommit, GroupDelete, GroupDescribe, GroupDescribeAnswer,
    GroupHandOver, GroupHandOverAnswer, GroupList, GroupListAnswer, GroupMemberState, GroupOffset,
    GroupPlace, GroupPlaces, GroupRequest, GroupState, group_answer, group_request,
};
use crate::peer::Request as PeerRequest;

/// A group as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct GroupSummary {
    pub(crate) name: String,
    pub(crate) phase: Phase,
    /// By which the members share the work; empty before they have agreed on one.
    pub(crate) protocol: String,
    pub(crate) members: u32,
    /// Records left to read, when that was measured last.
    pub(crate) lag: Option<u64>,
}

/// A group with its members and offsets.
#[derive(Clone, Debug)]
pub(crate) struct GroupDetails {
    pub(crate) summary: GroupSummary,
    pub(crate) members: Vec<MemberView>,
    pub(crate) offsets: BTreeMap<Place, Committed>,
}

impl GroupService {
    /// Answers a [`crate::peer::Request::Group`] of another node.
    pub(crate) async fn answer_peer(&self, from: u32, request: GroupRequest) -> Result<GroupAnswer> {
        let malformed =
            |what: &str| Error::InvalidRequest { problem: format!("group request of node {from}: {what}") };
        let request = request.request.ok_or_else(|| malformed("a kind that this node does not know"))?;
        let answer = match request {
            group_request::Request::HandOver(GroupHandOver { partition, number, metadata_version }) => {
                let owner = self.owners().get(partition as usize);
                let owner = owner.ok_or_else(|| malformed("no such partition"))?;
                // A hand-over is final, so the segment must be known: below its number this node never serves again.
                let cluster = self.topics().cluster();
                cluster.await_listed(owner.log(), number, metadata_version).await?;
                owner.hand_over(number);
                group_answer::Answer::HandOver(GroupHandOverAnswer {})
            }
            request => answer(self, request).await?,
        };
        Ok(GroupAnswer { answer: Some(answer) })
    }

    /// Asks the coordinator of a partition, wherever it is, again when it moves. What is asked may be asked twice.
    async fn ask_coordinator(
        &self,
        partition: u32,
        request: &group_request::Request,
    ) -> Result<group_answer::Answer> {
        let ask = |leadership: Leadership, deadline: Instant| async move {
            let cluster = self.topics().cluster();
            if leadership.ours {
                return answer(self, request.clone()).await;
            }
            if leadership.node == cluster.node_id() {
                return Err(self.finder().led_by_an_earlier_process(&leadership));
            }
            let limit = patience::GROUP_CALL.min(deadline.saturating_duration_since(Instant::now()));
            let request = PeerRequest::Group(GroupRequest { request: Some(request.clone()) });
            let answer = cluster.peers().call(leadership.node, request, limit).await?;
            let answer = GroupAnswer::decode(answer)
                .map_err(|problem| Error::Internal { message: problem.to_string() })?;
            answer.answer.ok_or_else(unexpected)
        };
        self.finder().ask(partition, patience::GROUP_COORDINATOR, ask).await
    }

    /// All groups of an organisation, by name, wherever they are coordinated.
    pub(crate) async fn list_all(&self, org: &OrgName) -> Result<Vec<GroupSummary>> {
        if !self.has_groups().await? {
            return Ok(Vec::new());
        }
        let mut groups = Vec::new();
        for partition in 0..PARTITIONS {
            let request = group_request::Request::List(GroupList { partition, org: org.to_string() });
            let group_answer::Answer::List(GroupListAnswer { groups: found }) =
                self.ask_coordinator(partition, &request).await?
            else {
                return Err(unexpected());
            };
            groups.extend(found.iter().map(summary_of).collect::<Result<Vec<_>>>()?);
        }
        groups.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(groups)
    }

    /// A group, wherever it is coordinated; `UnknownGroup` if there is none.
    pub(crate) async fn details(&self, name: &GroupName) -> Result<GroupDetails> {
        let state = self.describe_anywhere(name, None).await?;
        details_of(state.ok_or_else(|| Error::UnknownGroup { group: name.name.clone() })?)
    }

    /// A group with everything, or with some of its offsets only, wherever it is coordinated; `None` if there is none of that name.
    async fn describe_anywhere(
        &self,
        name: &GroupName,
        of: Option<&BTreeSet<Place>>,
    ) -> Result<Option<GroupState>> {
        if !self.has_groups().await? {
            return Ok(None);
        }
        let of = of.map(|places| GroupPlaces { places: places.iter().map(place_message).collect() });
        let GroupName { org, name: id } = name.clone();
        let request = group_request::Request::Describe(GroupDescribe { org, name: id, of });
        let group_answer::Answer::Describe(GroupDescribeAnswer { group }) =
            self.ask_coordinator(partition_of(name), &request).await?
        else {
            return Err(unexpected());
        };
        Ok(group)
    }

    /// The offsets that a group has committed, of all places or of some, wherever it is coordinated. A client of Kafka tells its
    /// application when it is sent on from here to another coordinator, which moves with a leader: so this node asks for it.
    pub(crate) async fn offsets_anywhere(
        &self,
        name: &GroupName,
        of: Option<&BTreeSet<Place>>,
    ) -> Result<BTreeMap<Place, Committed>> {
        match self.offsets(name, of).await {
            Err(Error::NotLeader { .. } | Error::UnknownTopic { .. }) => {
                let group = self.describe_anywhere(name, of).await?.unwrap_or_default();
                group.offsets.into_iter().map(offset_of).collect()
            }
            offsets => offsets,
        }
    }

    /// Commits offsets of a group without members, which is made if there is none; durable on return.
    pub(crate) async fn reset(&self, name: &GroupName, offsets: &BTreeMap<Place, Committed>) -> Result<()> {
        let GroupName { org, name: id } = name.clone();
        let offsets = offsets.iter().map(offset_message).collect();
        let request = group_request::Request::Commit(GroupCommit { org, name: id, offsets });
        self.change(name, &request).await
    }

    /// Forgets a group without members; durable on return.
    pub(crate) async fn remove(&self, name: &GroupName) -> Result<()> {
        let GroupName { org, name: id } = name.clone();
        if !self.has_groups().await? {
            return Err(Error::UnknownGroup { group: id });
        }
        self.change(name, &group_request::Request::Delete(GroupDelete { org, name: id })).await
    }

    async fn change(&self, name: &GroupName, request: &group_request::Request) -> Result<()> {
        let answer = self.ask_coordinator(partition_of(name), request).await?;
        let group_answer::Answer::Change(GroupChangeAnswer { unknown, has_members }) = answer else {
            return Err(unexpected());
        };
        let group = name.name.clone();
        match (unknown, has_members) {
            (true, _) => Err(Error::UnknownGroup { group }),
            (_, true) => Err(Error::GroupHasMembers { group }),
            (false, false) => Ok(()),
        }
    }
}

/// Answers as the coordinator.
pub(super) async fn answer(
    service: &GroupService,
    request: group_request::Request,
) -> Result<group_answer::Answer> {
    Ok(match request {
        group_request::Request::List(GroupList { partition, org }) => {
            let groups = service.list_in(partition, &org).await?;
            let groups = groups.into_iter().map(|(name, view)| {
                let name = GroupName { org: org.clone(), name };
                let lag = service.lag(&name);
                GroupState { lag, ..state_of(name.name, &view) }
            });
            group_answer::Answer::List(GroupListAnswer { groups: groups.collect() })
        }
        group_request::Request::Describe(GroupDescribe { org, name, of }) => {
            let name = GroupName { org, name };
            let is_whole = of.is_none();
            let of: Option<BTreeSet<Place>> =
                of.map(|of| of.places.iter().map(place_of).collect::<Result<_>>()).transpose()?;
            let offsets = service.offsets(&name, of.as_ref()).await?;
            let view = service.describe(&name).await?;
            let group = view.map(|view| GroupState {
                members: view.members.iter().filter(|_| is_whole).map(member_message).collect(),
                offsets: offsets.iter().map(offset_message).collect(),
                ..state_of(name.name, &view)
            });
            group_answer::Answer::Describe(GroupDescribeAnswer { group })
        }
        group_request::Request::Commit(GroupCommit { org, name, offsets }) => {
            let offsets = offsets.into_iter().map(offset_of).collect::<Result<_>>()?;
            let commit = Commit { who: None, offsets };
            let told = service.commit(&GroupName { org, name }, commit).await?;
            group_answer::Answer::Change(changed(Some(told))?)
        }
        group_request::Request::Delete(GroupDelete { org, name }) => {
            let told = service.delete(&GroupName { org, name }).await?;
            group_answer::Answer::Change(changed(told)?)
        }
        group_request::Request::HandOver(_) => return Err(unexpected()),
    })
}

fn changed(told: Option<std::result::Result<(), Refusal>>) -> Result<GroupChangeAnswer> {
    match told {
        None => Ok(GroupChangeAnswer { unknown: true, has_members: false }),
        Some(Ok(())) => Ok(GroupChangeAnswer { unknown: false, has_members: false }),
        Some(Err(Refusal::NonEmpty | Refusal::UnknownMember)) => {
            Ok(GroupChangeAnswer { unknown: false, has_members: true })
        }
        Some(Err(Refusal::NotCoordinator)) => Err(Error::NotLeader { key: "a group".to_owned(), hint: None }),
        Some(Err(refusal)) => Err(Error::Internal { message: format!("a group refused: {refusal:?}") }),
    }
}

fn state_of(name: String, view: &GroupView) -> GroupState {
    let phase = match view.phase {
        Phase::Empty => 1,
        Phase::PreparingRebalance => 2,
        Phase::CompletingRebalance => 3,
        Phase::Stable => 4,
    };
    GroupState {
        name,
        phase,
        protocol: view.protocol.clone(),
        member_count: u32::try_from(view.members.len()).unwrap_or(u32::MAX),
        members: Vec::new(),
        offsets: Vec::new(),
        lag: None,
    }
}

fn summary_of(state: &GroupState) -> Result<GroupSummary> {
    let phase = match state.phase {
        1 => Phase::Empty,
        2 => Phase::PreparingRebalance,
        3 => Phase::CompletingRebalance,
        4 => Phase::Stable,
        _ => return Err(unexpected()),
    };
    let (name, protocol) = (state.name.clone(), state.protocol.clone());
    Ok(GroupSummary { name, phase, protocol, members: state.member_count, lag: state.lag })
}

fn details_of(state: GroupState) -> Result<GroupDetails> {
    let summary = summary_of(&state)?;
    let members = state.members.into_iter().map(|member| MemberView {
        id: member.id,
        instance: member.instance,
        client_id: member.client_id,
        host: member.host,
        subscription: Bytes::new(),
        share: member.share,
    });
    let offsets = state.offsets.into_iter().map(offset_of).collect::<Result<_>>()?;
    Ok(GroupDetails { summary, members: members.collect(), offsets })
}

fn member_message(member: &MemberView) -> GroupMemberState {
    GroupMemberState {
        id: member.id.clone(),
        instance: member.instance.clone(),
        client_id: member.client_id.clone(),
        host: member.host.clone(),
        share: member.share.clone(),
    }
}

fn offset_message((place, committed): (&Place, &Committed)) -> GroupOffset {
    GroupOffset {
        topic: uuid_bytes(place.topic.0),
        partition: place.partition,
        offset: committed.offset,
        leader_epoch: committed.leader_epoch,
        metadata: committed.metadata.clone(),
    }
}

fn offset_of(message: GroupOffset) -> Result<(Place, Committed)> {
    let GroupOffset { topic, partition, offset, leader_epoch, metadata } = message;
    let place = place_of(&GroupPlace { topic, partition })?;
    Ok((place, Committed { offset, leader_epoch, metadata }))
}

fn place_message(place: &Place) -> GroupPlace {
    GroupPlace { topic: uuid_bytes(place.topic.0), partition: place.partition }
}

fn place_of(message: &GroupPlace) -> Result<Place> {
    let malformed = || Error::InvalidRequest { problem: "a partition of a topic without a uuid".to_owned() };
    let topic = TopicId::from_slice(&message.topic).ok_or_else(malformed)?;
    Ok(Place { topic, partition: message.partition })
}
