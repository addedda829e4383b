//! The segments that this process leads: who is asked to, who may, and what happens when their metadata moves on.

use std::sync::Arc;

use walrus_metadata::{Segment, SegmentState};
use walrus_model::{Descriptor, SegmentId};

use crate::broker::Broker;
use crate::cluster::routing::{Routing, is_led_by, open_segment};
use crate::cluster::segment::label;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicName};
use crate::partition::follower;
use crate::partition::leader::{Carried, Leader};

/// Who leads a partition's open segment, as this node's snapshot of the metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The open segment.
    pub segment: SegmentId,
    /// Its number.
    pub number: u64,
    /// Its first offset.
    pub base_offset: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Node.
    pub node: u32,
    /// This process leads it: this node, and not an earlier process of it.
    pub ours: bool,
}

impl Broker {
    /// Who leads a partition, as far as this node knows: neither an answer nor an error is final.
    pub fn leadership(&self, partition: &PartitionRef) -> Result<Leadership> {
        let routing = self.cluster().routing();
        let (_, found) = routing.partition(partition)?;
        let nobody = || Error::Unavailable { what: format!("{partition} has no open segment") };
        let Descriptor { id, number, base_offset, epoch, leader, .. } =
            &open_segment(found).ok_or_else(nobody)?.descriptor;
        Ok(Leadership {
            segment: *id,
            number: *number,
            base_offset: base_offset.map_or(0, |base| base.0),
            epoch: epoch.0,
            node: leader.node.0,
            ours: is_led_by(*leader, self.cluster().config()),
        })
    }

    /// The leader of an open segment that metadata gives to this process. Makes its log if need be.
    pub(crate) async fn leader(&self, topic: &TopicName, segment: &Segment) -> Result<Arc<Leader>> {
        let id = segment.descriptor.id;
        let known = || self.led().lock().get(&id).cloned();
        if let Some(leader) = known() {
            return Ok(leader);
        }
        let log = self.copies().open_log(&segment.descriptor).await?;
        let _turn = self.opening().lock().await;
        if let Some(leader) = known() {
            return Ok(leader);
        }
        let label: Arc<str> = label(topic.as_str(), &segment.descriptor).into();
        let copy = self.copies().table().open(&segment.descriptor)?;
        let (opening, named, node) = (segment.clone(), label.clone(), self.cluster().node_id());
        let leader =
            self.cluster().tasks().blocking(move || Leader::open(&opening, named, log, copy, node)).await?;
        let leader = Arc::new(leader);
        tracing::info!(
            segment = label.as_ref(),
            epoch = leader.key.epoch.0,
            base = leader.log().base_offset().0,
            replicas = ?segment.descriptor.replicas.iter().map(|replica| replica.node.0).collect::<Vec<_>>(),
            "leads"
        );
        self.led().lock().insert(id, leader.clone());
        for place in leader.followers() {
            self.cluster().tasks().spawn("follower", follower::follow(self.clone(), leader.clone(), place));
        }
        Ok(leader)
    }

    /// Whether this process may begin to lead a segment that metadata gives it: nobody has written it yet (R7).
    pub(crate) fn may_lead(&self, segment: &Segment) -> bool {
        let descriptor = &segment.descriptor;
        if self.known_leader(descriptor.id).is_some() {
            return true;
        }
        self.copies().own_part(descriptor.topic, descriptor.partition, descriptor.id)
            == Ok(walrus_replica::Part::Fresh)
    }

    /// A leader that has been asked for before.
    pub(crate) fn known_leader(&self, segment: SegmentId) -> Option<Arc<Leader>> {
        self.led().lock().get(&segment).cloned()
    }

    pub(crate) fn leaders(&self) -> Vec<Arc<Leader>> {
        self.led().lock().values().cloned().collect()
    }

    /// Leaders whose segments metadata has sealed, or does not list any more, learn it before anybody is routed past them.
    pub(crate) fn end_leaders(&self, routing: &Routing) {
        let is_led = |segment: &SegmentId| routing.leases.by_key.contains_key(&walrus_log::LogId(segment.0));
        let ended: Vec<_> =
            self.led().lock().extract_if(|segment, _| !is_led(segment)).map(|(_, leader)| leader).collect();
        for leader in ended {
            let segment = &leader.descriptor;
            let partition =
                routing.topic(segment.topic).and_then(|route| route.partition(segment.partition).ok());
            let mut listed = partition.into_iter().flat_map(|partition| partition.segments.iter().rev());
            let state = listed.find(|listed| listed.descriptor.id == segment.id).map(|listed| &listed.state);
            if let Some(SegmentState::Sealed(value)) = state {
                leader.learned(self, value.clone());
            }
            leader.close();
        }
    }

    /// Appends that their segment ended without go on in the next one.
    pub(crate) fn carry(&self, segment: &Descriptor, carried: Vec<Carried>) {
        let route = self.cluster().routing().topic(segment.topic).cloned();
        match route.as_ref().and_then(|route| route.sequencers.get(segment.partition as usize)) {
            Some(sequencer) => sequencer.carry(self, carried),
            None => {
                for append in carried {
                    let error = Error::UnknownTopic { topic: segment.topic.0.to_string() };
                    drop(append.reply.send(Err(error))); // whoever asked may be gone
                }
            }
        }
    }
}
