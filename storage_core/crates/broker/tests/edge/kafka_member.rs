//! A member of a consumer group that speaks frame by frame.

use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::harness::{Cluster, PATIENCE};
use crate::kafka_client::{KafkaClient, topic_name};

/// Versions of the requests of a member.
#[derive(Clone, Copy)]
pub(crate) struct Versions {
    pub(crate) join: i16,
    pub(crate) sync: i16,
    pub(crate) heartbeat: i16,
    pub(crate) leave: i16,
    pub(crate) commit: i16,
    pub(crate) fetch: i16,
}

/// The newest ones.
pub(crate) const NEWEST: Versions =
    Versions { join: 9, sync: 5, heartbeat: 4, leave: 5, commit: 9, fetch: 9 };
/// The oldest ones.
pub(crate) const OLDEST: Versions =
    Versions { join: 0, sync: 0, heartbeat: 0, leave: 0, commit: 2, fetch: 1 };

/// A member of a group, and its connection to the coordinator.
pub(crate) struct Member {
    pub(crate) client: KafkaClient,
    pub(crate) versions: Versions,
    pub(crate) group: GroupId,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) id: StrBytes,
    pub(crate) generation: i32,
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// The address of a group's coordinator, by any node.
pub(crate) fn coordinator(cluster: &Cluster, by: u32, group: &str) -> (u32, String) {
    let mut client = KafkaClient::connect(cluster, by);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = client.ask(2, &FindCoordinatorRequest::default().with_key(text(group)));
        match found.error_code {
            0 => return (found.node_id.0.try_into().unwrap(), format!("{}:{}", found.host, found.port)),
            15 | 16 if Instant::now() < deadline => {} // nobody, just now
            other => panic!("FindCoordinator: {other}"),
        }
    }
}

impl Member {
    /// A member of a group that has asked for nothing yet, at the coordinator.
    pub(crate) fn new(cluster: &Cluster, group: &str, versions: Versions) -> Self {
        let (_, address) = coordinator(cluster, *cluster.ids().start(), group);
        Self::at(&address, group, versions)
    }

    pub(crate) fn at(address: &str, group: &str, versions: Versions) -> Self {
        Self {
            client: KafkaClient::connect_to(address),
            versions,
            group: GroupId(text(group)),
            instance: None,
            id: StrBytes::default(),
            generation: -1,
        }
    }

    fn instance(&self, since: i16, version: i16) -> Option<StrBytes> {
        self.instance.clone().filter(|_| version >= since)
    }

    pub(crate) fn send_join(&mut self) {
        let version = self.versions.join;
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(Bytes::from_static(&[0, 0, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff]));
        let request = JoinGroupRequest::default()
            .with_group_id(self.group.clone())
            .with_session_timeout_ms(30_000)
            .with_rebalance_timeout_ms(if version > 0 { 30_000 } else { -1 })
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance(5, version))
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        self.client.send(version, &request);
    }

    pub(crate) fn joined(&mut self) -> JoinGroupResponse {
        let joined = self.client.answer::<JoinGroupRequest>(self.versions.join);
        if joined.error_code == 0 || joined.error_code == 79 {
            self.id = joined.member_id.clone();
        }
        if joined.error_code == 0 {
            self.generation = joined.generation_id;
        }
        joined
    }

    /// Joins, in two steps where that is asked for.
    pub(crate) fn join(&mut self) -> JoinGroupResponse {
        self.send_join();
        let joined = self.joined();
        if joined.error_code != 79 {
            return joined;
        }
        self.send_join();
        self.joined()
    }

    /// Asks for the own share, and brings the shares of all where it leads.
    pub(crate) fn sync(&mut self, shares: &[(StrBytes, &str)]) -> SyncGroupResponse {
        let share = |(id, share): &(StrBytes, &str)| {
            let share = Bytes::copy_from_slice(share.as_bytes());
            SyncGroupRequestAssignment::default().with_member_id(id.clone()).with_assignment(share)
        };
        let request = SyncGroupRequest::default()
            .with_group_id(self.group.clone())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance(3, self.versions.sync))
            .with_assignments(shares.iter().map(share).collect());
        self.client.ask(self.versions.sync, &request)
    }

    pub(crate) fn heartbeat(&mut self) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(self.group.clone())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance(3, self.versions.heartbeat));
        self.client.ask(self.versions.heartbeat, &request).error_code
    }

    pub(crate) fn leave(&mut self) -> i16 {
        let request = LeaveGroupRequest::default().with_group_id(self.group.clone());
        if self.versions.leave < 3 {
            let request = request.with_member_id(self.id.clone());
            return self.client.ask(self.versions.leave, &request).error_code;
        }
        let member = MemberIdentity::default().with_member_id(self.id.clone());
        let response = self.client.ask(self.versions.leave, &request.with_members(vec![member]));
        response.members.first().map_or(response.error_code, |member| member.error_code)
    }

    /// Commits an offset of partition 0 of a topic, with this as metadata.
    pub(crate) fn commit(&mut self, topic: &str, offset: i64, metadata: &str) -> i16 {
        self.send_commit(topic, offset, metadata);
        self.committed()
    }

    pub(crate) fn send_commit(&mut self, topic: &str, offset: i64, metadata: &str) {
        let partition = OffsetCommitRequestPartition::default()
            .with_committed_offset(offset)
            .with_committed_leader_epoch(if self.versions.commit >= 6 { 0 } else { -1 })
            .with_committed_metadata(Some(text(metadata)));
        let topic =
            OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(self.group.clone())
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance(7, self.versions.commit))
            .with_topics(vec![topic]);
        self.client.send(self.versions.commit, &request);
    }

    pub(crate) fn committed(&mut self) -> i16 {
        let response = self.client.answer::<OffsetCommitRequest>(self.versions.commit);
        response.topics[0].partitions[0].error_code
    }

    /// The committed offset of partition 0 of a topic, and its metadata; or the error.
    pub(crate) fn fetch(&mut self, topic: &str) -> Result<(i64, String), i16> {
        let (version, group, name) = (self.versions.fetch, self.group.clone(), topic_name(topic));
        let request = OffsetFetchRequest::default();
        if version < 8 {
            let topic = OffsetFetchRequestTopic::default().with_name(name).with_partition_indexes(vec![0]);
            let request = request.with_group_id(group).with_topics(Some(vec![topic]));
            let response = self.client.ask(version, &request);
            let Some(topic) = response.topics.first() else { return Err(response.error_code) };
            let row = &topic.partitions[0];
            let metadata = row.metadata.as_ref().map(StrBytes::to_string).unwrap_or_default();
            return if row.error_code == 0 {
                Ok((row.committed_offset, metadata))
            } else {
                Err(row.error_code)
            };
        }
        let topic = OffsetFetchRequestTopics::default().with_name(name).with_partition_indexes(vec![0]);
        let group = OffsetFetchRequestGroup::default().with_group_id(group).with_topics(Some(vec![topic]));
        let mut response = self.client.ask(version, &request.with_groups(vec![group]));
        let group = response.groups.remove(0);
        let Some(topic) = group.topics.first() else { return Err(group.error_code) };
        let row = &topic.partitions[0];
        let metadata = row.metadata.as_ref().map(StrBytes::to_string).unwrap_or_default();
        Ok((row.committed_offset, metadata))
    }
}
