//! The choice of who leads and who stores the next segment. As its topic wants it, leaders take turns among healthy nodes, or
//! stay where they are and are spread evenly; n distinct nodes, in as many zones as there are, store the segment. Pure.

use std::collections::BTreeMap;

use walrus_model::{
    AttemptId, Ballot, Descriptor, Epoch, LeaderRef, NodeId, Offset, ReplicaRef, Replication, SegmentId,
    TopicId,
};

use crate::presence::Present;
use crate::rolling::Reason;
use crate::state::{Metadata, Node, NodeState, Partition, Topic};
use crate::topic_config::TopicConfig;

/// Epoch of the first segment of every partition.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(1);

/// Descriptor of the first segment of a partition of a new topic with these settings; `None` when fewer than w nodes are
/// healthy. The partitions of a topic spread over the nodes in turn, beginning with a node that follows from the topic's
/// uuid, or with the one that leads fewest partitions where leaders stay.
#[must_use]
pub fn first_descriptor(
    metadata: &Metadata,
    config: &TopicConfig,
    (topic, partition, id): (TopicId, u32, SegmentId),
    present: &Present,
) -> Option<Descriptor> {
    let view = View { metadata, avoid: &[], present };
    let mut healthy: Vec<&Node> = metadata.nodes.values().filter(|node| view.is_healthy(node)).collect();
    let first = topic.as_u128().checked_rem(healthy.len() as u128)?;
    healthy.rotate_left(usize::try_from(first).ok()?);
    if config.has_sticky_leaders() {
        healthy.sort_by_key(|node| metadata.leads.of(node.id)); // the sort is stable, so the ring's order stays
    }
    let leader = healthy.get(usize::try_from(partition).ok()? % healthy.len())?;
    let replication = config.replication(metadata.replication);
    let replicas = view.replica_set(leader, replication)?;
    Some(Descriptor {
        id,
        topic,
        partition,
        number: 0,
        base_offset: Some(Offset(0)),
        epoch: FIRST_EPOCH,
        leader: LeaderRef { node: leader.id, process: leader.process },
        replicas,
        write_quorum: replication.write_quorum,
        fsync: config.fsync(),
    })
}

/// Descriptor of the segment that follows the partition's last one, its base not known yet: led by the next healthy
/// node after the present leader in order of ids, leaving out `avoid`. Where leaders stay it is the present one while that
/// is healthy and not avoided, else the one that leads fewest partitions. `None` when no leader is left, fewer than w nodes
/// are healthy, or the partition does not exist.
#[must_use]
pub fn successor(
    metadata: &Metadata,
    topic: TopicId,
    partition: u32,
    id: SegmentId,
    avoid: &[NodeId],
    present: &Present,
) -> Option<Descriptor> {
    let (in_topic, in_partition) = find(metadata, topic, partition)?;
    let view = View { metadata, avoid, present };
    view.following(in_topic, in_partition, in_partition.next_epoch, id)
}

/// An attempt to decide a segment's end, as a recoverer proposes it with `BeginRecovery`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Attempt {
    /// Ballot with which it fences the replicas.
    pub ballot: Ballot,
    /// The segment that it proposes to follow this one.
    pub successor: Descriptor,
}

/// The next attempt to decide the end of the partition's last segment, at a fresh epoch, which is above `above` too: the
/// highest epoch that a refused fence has named, if one was. `None` as for [`successor`].
#[must_use]
pub fn recovery(
    metadata: &Metadata,
    (topic, partition): (TopicId, u32),
    (attempt, successor_id): (AttemptId, SegmentId),
    above: Epoch,
    avoid: &[NodeId],
    present: &Present,
) -> Option<Attempt> {
    let (in_topic, in_partition) = find(metadata, topic, partition)?;
    let epoch = in_partition.next_epoch.max(Epoch(above.0.checked_add(1)?));
    let view = View { metadata, avoid, present };
    let successor = view.following(in_topic, in_partition, epoch, successor_id)?;
    Some(Attempt { ballot: Ballot { epoch, attempt }, successor })
}

/// Why the partition's open segment should be rolled because of who stores it, if it should: neither the replica set nor the
/// quorum of an open segment ever changes. A set chosen now would have fewer replicas on nodes that leave (drained, full, gone,
/// or silent for longer than the grace), or more on nodes that stay, or as many in better spread zones; or the topic wants a larger
/// quorum. After such a roll there is no reason any more, so that rolls come to an end.
#[must_use]
pub fn reason_to_roll(
    metadata: &Metadata,
    topic: TopicId,
    partition: u32,
    present: &Present,
) -> Option<Reason> {
    let (in_topic, in_partition) = find(metadata, topic, partition)?;
    let open = in_partition.segments.last()?;
    let view = View { metadata, avoid: &[], present };
    let leaving = |set: &[ReplicaRef]| set.iter().filter(|replica| !view.stays(**replica)).count();
    let now = &open.descriptor.replicas;
    let leave_now = leaving(now);
    let wanted = in_topic.config.replication(metadata.replication);
    let is_raised = in_topic.config.sets_replication() && open.descriptor.write_quorum < wanted.write_quorum;
    let crowding = view.crowding(now);
    let may_spread = crowding > now.len() && view.has_zones();
    if leave_now == 0 && now.len() >= wanted.factor as usize && !is_raised && !may_spread {
        return None; // nearly always
    }
    let next = view.following(in_topic, in_partition, in_partition.next_epoch, SegmentId::from_u128(0));
    let then = next?.replicas;
    let leave_then = leaving(&then);
    let (stay_then, stay_now) = (then.len() - leave_then, now.len() - leave_now);
    let is_as_good = leave_then == leave_now && stay_then == stay_now;
    let is_spread = is_as_good && view.crowding(&then) < crowding;
    let is_better = leave_then < leave_now || stay_then > stay_now || is_spread;
    is_better.then_some(Reason::Moved).or(is_raised.then_some(Reason::Quorum))
}

/// The number of partitions that a node should give away now, of those that it goes on leading (`walrus.leaders`), so that all
/// healthy nodes lead as many: those above its fair share, and where nobody has more than that, one if another node leads two
/// fewer. Such moves come to an end. A node that is not healthy gives away none here: its segments leave it for that reason.
#[must_use]
pub fn leads_to_give_away(metadata: &Metadata, node: NodeId, present: &Present) -> u64 {
    let view = View { metadata, avoid: &[], present };
    let healthy = metadata.nodes.values().filter(|node| view.is_healthy(node));
    let led: BTreeMap<NodeId, u64> = healthy.map(|node| (node.id, metadata.leads.of(node.id))).collect();
    let (Some(own), Some(least), Some(most)) = (led.get(&node), led.values().min(), led.values().max())
    else {
        return 0;
    };
    let fair = led.values().sum::<u64>().div_ceil(led.len() as u64);
    let is_last_step = *most <= fair && *own > least + 1;
    own.saturating_sub(fair).max(u64::from(is_last_step))
}

/// Whether a node other than this one may lead new segments.
#[must_use]
pub fn has_other_leaders(metadata: &Metadata, node: NodeId, present: &Present) -> bool {
    let view = View { metadata, avoid: &[node], present };
    metadata.nodes.values().any(|node| view.is_preferred(node))
}

fn find(metadata: &Metadata, topic: TopicId, partition: u32) -> Option<(&Topic, &Partition)> {
    let topic = metadata.topics.get(&topic)?;
    Some((topic, topic.partitions.get(usize::try_from(partition).ok()?)?))
}

/// Everything on which the choice depends.
struct View<'a> {
    metadata: &'a Metadata,
    avoid: &'a [NodeId],
    present: &'a Present,
}

impl<'a> View<'a> {
    fn following(
        &self,
        topic: &Topic,
        partition: &Partition,
        epoch: Epoch,
        id: SegmentId,
    ) -> Option<Descriptor> {
        let last = &partition.segments.last()?.descriptor;
        let candidates = || self.metadata.nodes.values().filter(|node| self.is_preferred(node));
        let ring = || {
            let behind = candidates().filter(|node| node.id > last.leader.node);
            behind.chain(candidates().filter(|node| node.id <= last.leader.node))
        };
        let leader = if topic.has_standing_leaders() {
            let stays = candidates().find(|node| node.id == last.leader.node);
            stays.or_else(|| ring().min_by_key(|node| self.metadata.leads.of(node.id)))?
        } else {
            ring().next()?
        };
        let replication = topic.config.replication(self.metadata.replication);
        let replicas = self.replica_set(leader, replication)?;
        Some(Descriptor {
            id,
            topic: topic.id,
            partition: partition.index,
            number: last.number + 1,
            base_offset: None,
            epoch,
            leader: LeaderRef { node: leader.id, process: leader.process },
            replicas,
            write_quorum: replication.write_quorum,
            fsync: topic.config.fsync(),
        })
    }

    /// The leader and the nodes behind it in the ring of ids: first healthy ones, then avoided ones, then those that stop
    /// or are silent, which catch up once they are back, and the long silent ones last; none that is full or gone. Of nodes that are
    /// equal so far, the one whose zone has fewest of the set is next. A cluster smaller than n gets a smaller set. `None` where
    /// fewer than w of the set are healthy.
    fn replica_set(
        &self,
        leader: &Node,
        Replication { factor, write_quorum }: Replication,
    ) -> Option<Vec<ReplicaRef>> {
        let behind = self.metadata.nodes.values().filter(|node| node.id > leader.id);
        let before = self.metadata.nodes.values().filter(|node| node.id < leader.id);
        let mut others: Vec<&Node> = behind.chain(before).filter(|node| self.may_store(node)).collect();
        // How many nodes stay, and how they are spread over zones, does not depend on the leader, so rolls for a better set come to
        // an end.
        let rank = |node: &Node| {
            let replica = ReplicaRef { node: node.id, disk: node.disk };
            (!self.is_healthy(node), !self.is_preferred(node), !self.stays(replica))
        };
        let mut set = vec![leader];
        while set.len() < usize::try_from(factor).ok()? && !others.is_empty() {
            let neighbours = |node: &Node| set.iter().filter(|other| other.zone == node.zone).count();
            // The first of equal ones is taken, so the ring's order stays.
            let (next, _) =
                others.iter().enumerate().min_by_key(|(_, node)| (rank(node), neighbours(node)))?;
            set.push(others.remove(next));
        }
        let healthy = set.iter().filter(|node| self.is_healthy(node)).count();
        let replicas = set.iter().map(|node| ReplicaRef { node: node.id, disk: node.disk }).collect();
        (healthy >= usize::try_from(write_quorum).ok()?).then_some(replicas)
    }

    /// How many pairs of these replicas are in one zone, each replica and itself included, without those that do not stay: the
    /// fewer, the better they are spread.
    fn crowding(&self, set: &[ReplicaRef]) -> usize {
        let stay = set.iter().filter(|replica| self.stays(**replica));
        let zones: Vec<&str> =
            stay.filter_map(|replica| Some(self.metadata.nodes.get(&replica.node)?.zone.as_str())).collect();
        zones.iter().map(|zone| zones.iter().filter(|other| *other == zone).count()).sum()
    }

    /// Whether the nodes are in more than one zone.
    fn has_zones(&self) -> bool {
        let mut zones = self.metadata.nodes.values().map(|node| &node.zone);
        zones.next().is_some_and(|first| zones.any(|zone| zone != first))
    }

    fn stays(&self, replica: ReplicaRef) -> bool {
        let node = self.metadata.nodes.get(&replica.node).filter(|node| node.disk == replica.disk);
        node.is_some_and(|node| self.may_store(node) && self.present.staying.contains(&node.id))
    }

    fn may_store(&self, node: &Node) -> bool {
        node.may_store() && !self.metadata.gone_disks.contains(&node.disk)
    }

    /// Whether a node may lead, and counts towards the w that a segment needs: one that is about to stop does neither.
    fn is_healthy(&self, node: &Node) -> bool {
        let is_about_to_go = node.state == NodeState::Stopping;
        self.may_store(node) && !is_about_to_go && self.present.alive.contains(&node.id)
    }

    fn is_preferred(&self, node: &'a Node) -> bool {
        self.is_healthy(node) && !self.avoid.contains(&node.id)
    }
}
