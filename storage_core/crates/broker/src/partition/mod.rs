//! The appends of partitions: their order, the leaders of the open segments, and the planned ends of those.

pub(crate) mod ack;
mod follower;
mod fullness;
mod keys;
pub(crate) mod leader;
pub(crate) mod leaders;
mod link;
mod roll;
mod roll_quota;
pub(crate) mod sequencer;
pub(crate) mod submission;
pub(crate) mod ticket;
mod timestamps;
pub(crate) mod walking;
mod window;

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::HashMap;
use leader::Leader;
use leaders::Leaders;
use sequencer::Sequencer;
use walrus_metadata::Segment;
use walrus_metadata::rolling::Reason;
use walrus_model::{Descriptor, TopicId};

use crate::cluster::Cluster;
use crate::cluster::routing::{ChangedTopic, Changes, TopicRoute, open_segment};
use crate::copies::Copies;
use crate::node::error::{Error, Result};

/// All partitions, each with what orders its appends on this node.
pub(crate) struct Partitions {
    leaders: Arc<Leaders>,
    /// The sequencers by topic and partition. They stay the same as long as the topic lives.
    sequencers: ArcSwap<HashMap<TopicId, Arc<[Arc<Sequencer>]>>>,
}

impl Partitions {
    pub(crate) fn new(copies: Arc<Copies>) -> Self {
        Self { leaders: Arc::new(Leaders::new(copies)), sequencers: ArcSwap::default() }
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.leaders.cluster()
    }

    /// The copies on this node.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        self.leaders.copies()
    }

    /// The segments that this process leads.
    pub(crate) fn leaders(&self) -> &Arc<Leaders> {
        &self.leaders
    }

    /// Makes the sequencers that a changed table of routes needs, before anybody goes by it, and drops those of topics that are
    /// gone.
    pub(crate) fn follow(&self, changes: &Changes) {
        let mut next = HashMap::clone(&self.sequencers.load());
        for topic in &changes.removed {
            next.remove(topic);
        }
        for ChangedTopic { route, .. } in &changes.changed {
            let known = next.get(&route.topic.id).cloned();
            if known.as_ref().is_some_and(|known| known.len() == route.topic.partitions.len()) {
                continue;
            }
            let sequencer =
                |(place, partition): (usize, &Arc<walrus_metadata::Partition>)| {
                    known.as_ref().and_then(|known| known.get(place)).cloned().unwrap_or_else(|| {
                        Arc::new(Sequencer::new(self.leaders.clone(), route, partition.index))
                    })
                };
            next.insert(route.topic.id, route.topic.partitions.iter().enumerate().map(sequencer).collect());
        }
        self.sequencers.store(Arc::new(next));
    }

    /// Gives up the targets that topics whose metadata have changed do not have any more.
    pub(crate) fn metadata_changed(&self, changed: &[ChangedTopic]) {
        let sequencers = self.sequencers.load();
        for ChangedTopic { route, partitions } in changed {
            let Some(of_topic) = sequencers.get(&route.topic.id) else { continue };
            for place in partitions.iter().map(|index| *index as usize) {
                if let (Some(partition), Some(sequencer)) =
                    (route.topic.partitions.get(place), of_topic.get(place))
                {
                    sequencer.metadata_changed(open_segment(partition), route.settings);
                }
            }
        }
    }

    fn sequencer(&self, route: &TopicRoute, partition: u32) -> Result<Arc<Sequencer>> {
        let unknown = || Error::UnknownTopic { topic: route.path.to_string() };
        self.sequencer_of(route.topic.id, partition).ok_or_else(unknown)
    }

    /// Whether a partition has what orders its appends.
    #[cfg(test)]
    pub(crate) fn has_sequencer(&self, route: &TopicRoute, partition: u32) -> bool {
        self.sequencer(route, partition).is_ok()
    }

    fn sequencer_of(&self, topic: TopicId, partition: u32) -> Option<Arc<Sequencer>> {
        self.sequencers.load().get(&topic)?.get(partition as usize).cloned()
    }

    /// The leader of an open segment that metadata gives to this process. Makes its log if need be.
    pub(crate) async fn leader(&self, segment: &Segment) -> Result<Arc<Leader>> {
        let Descriptor { topic, partition, .. } = segment.descriptor;
        let unknown = || Error::UnknownTopic { topic: topic.0.to_string() };
        self.sequencer_of(topic, partition).ok_or_else(unknown)?.leader(segment).await
    }

    /// Ends segments that this process leads and that are full, or too old. Appends do that themselves; this is for segments to
    /// which nobody appends. Says whether some must wait, for this node has rolled as many in this second as it may.
    pub(crate) fn check_fullness(&self) -> bool {
        let mut were_put_off = false;
        for leader in self.leaders.leaders() {
            let Descriptor { topic, partition, .. } = leader.descriptor;
            if let Some(sequencer) = self.sequencer_of(topic, partition) {
                were_put_off |= sequencer.check_fullness(&leader);
            }
        }
        were_put_off
    }

    /// Ends an open segment that this process leads, empty or not.
    pub(crate) async fn end_segment(&self, segment: &Segment, reason: Reason) -> Result<()> {
        let leader = self.leader(segment).await?;
        let Descriptor { topic, partition, .. } = leader.descriptor;
        if let Some(sequencer) = self.sequencer_of(topic, partition) {
            sequencer.end_segment(&leader, reason);
        }
        Ok(())
    }
}
