//! The leaders of the segments that this process leads: when one may begin, and how it ends when the metadata move on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwap;

use walrus_metadata::rolling::Limits;
use walrus_metadata::{Segment, SegmentState};
use walrus_model::SegmentId;

use crate::cluster::Cluster;
use crate::cluster::routing::Routing;
use crate::cluster::segment::label;
use crate::copies::Copies;
use crate::node::error::Result;
use crate::node::locks::Lock;
use crate::node::names::TopicPath;
use crate::partition::follower;
use crate::partition::leader::{Leader, Requeue};
use crate::partition::roll_quota::RollQuota;

/// The open segments that this process leads, and that somebody has asked for.
pub(crate) struct Leaders {
    copies: Arc<Copies>,
    limits: ArcSwap<Limits>,
    quota: RollQuota,
    led: Lock<HashMap<SegmentId, Arc<Leader>>>,
    /// Held while a leader begins, so that it begins once.
    beginning: tokio::sync::Mutex<()>,
}

impl Leaders {
    pub(crate) fn new(copies: Arc<Copies>) -> Self {
        let limits = ArcSwap::from_pointee(copies.cluster().config().limits());
        Self {
            copies,
            limits,
            quota: RollQuota::new(Instant::now()),
            led: Lock::default(),
            beginning: tokio::sync::Mutex::default(),
        }
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.copies.cluster()
    }

    /// The copies on this node, to which leaders write.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        &self.copies
    }

    /// The limits at which a segment is full.
    pub(crate) fn limits(&self) -> Limits {
        **self.limits.load()
    }

    /// Whether one more segment may be rolled for its size or age in this second: a node has an equal part of what the cluster
    /// may.
    pub(crate) fn may_roll(&self) -> bool {
        let routing = self.cluster().routing();
        let nodes = routing.metadata.nodes.len().max(1) as u64;
        let share = routing.metadata.config.rolls_per_second_max().div_ceil(nodes);
        self.quota.take(Instant::now(), share)
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.limits.store(Arc::new(limits));
    }

    /// The leader of an open segment that metadata gives to this process. It begins, and makes its log, if need be. Appends that
    /// the segment ends without go to `back`.
    pub(crate) async fn leader(
        &self,
        topic: &TopicPath,
        segment: &Segment,
        back: Weak<dyn Requeue>,
    ) -> Result<Arc<Leader>> {
        let id = segment.descriptor.id;
        let known = || self.led.lock().get(&id).cloned();
        if let Some(leader) = known() {
            return Ok(leader);
        }
        let log = self.copies().open_log(&segment.descriptor).await?;
        let _turn = self.beginning.lock().await;
        if let Some(leader) = known() {
            return Ok(leader);
        }
        let label: Arc<str> = label(topic, &segment.descriptor).into();
        let copy = self.copies().table().open(&segment.descriptor)?;
        let (opening, named, node) = (segment.clone(), label.clone(), self.cluster().node_id());
        let leader = self
            .copies
            .tasks()
            .blocking(move || Leader::open(&opening, named, log, copy, node, back))
            .await?;
        let leader = Arc::new(leader);
        tracing::info!(
            segment = label.as_ref(),
            epoch = leader.key.epoch.0,
            base = leader.log().base_offset().0,
            replicas = ?segment.descriptor.replicas.iter().map(|replica| replica.node.0).collect::<Vec<_>>(),
            "leads"
        );
        self.led.lock().insert(id, leader.clone());
        for place in leader.followers() {
            self.copies
                .tasks()
                .spawn("follower", follower::follow(self.copies.clone(), leader.clone(), place));
        }
        Ok(leader)
    }

    /// Whether this process leads a segment that metadata gives it, or may begin to, for nobody has written it yet (R7).
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
        self.led.lock().get(&segment).cloned()
    }

    pub(crate) fn leaders(&self) -> Vec<Arc<Leader>> {
        self.led.lock().values().cloned().collect()
    }

    /// Ends the leaders whose segments metadata has sealed, or does not list any more. They learn it before anybody is routed
    /// past them.
    pub(crate) fn end_leaders(&self, routing: &Routing) {
        let is_led = |segment: &SegmentId| routing.leases.by_key.contains_key(&walrus_log::LogId(segment.0));
        let ended: Vec<_> =
            self.led.lock().extract_if(|segment, _| !is_led(segment)).map(|(_, leader)| leader).collect();
        for leader in ended {
            let segment = &leader.descriptor;
            let partition =
                routing.topic(segment.topic).and_then(|route| route.partition(segment.partition).ok());
            let mut listed = partition.into_iter().flat_map(|partition| partition.segments.iter().rev());
            let state = listed.find(|listed| listed.descriptor.id == segment.id).map(|listed| &listed.state);
            if let Some(SegmentState::Sealed(value)) = state {
                leader.learn_end(&self.copies, value.clone());
            }
            leader.close();
        }
    }
}
