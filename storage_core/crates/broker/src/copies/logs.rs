//! The logs of this node's copies: made once, with the producers that were known at their base.

use std::time::Duration;

use bytes::Bytes;
use walrus_log::{Log, ProducerTable};
use walrus_metadata::{Segment, SegmentState};
use walrus_model::Descriptor;

use crate::copies::wire;
use crate::node::obstacle::Obstacle;

use crate::cluster::routing::is_led_by;
use crate::cluster::segment::{Place, log_id, log_spec, uuid_bytes};
use crate::copies::scratch::Stage;
use crate::copies::{Copies, remains};
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::node::proto::peer::{Prepare, SegmentFacts, SegmentInfo, SegmentInfoAnswer};
use crate::peer::Request;

impl Copies {
    /// The log of a segment that this node stores. A first segment's is made on the spot, another's was prepared; one
    /// that was not gets its producer table from a node that stores the segment before.
    pub(crate) async fn open_log(&self, segment: &Descriptor) -> Result<Log> {
        if let Some(log) = self.bucket().log(log_id(segment)) {
            return Ok(log);
        }
        // Nobody asks a segment that took the place of others who has written what: the one behind it has begun long ago.
        let needs_none = segment.number == 0 || segment.replicas.is_empty();
        let producers =
            if needs_none { ProducerTable::new() } else { self.producers_at_base(segment).await? };
        tracing::info!(log = %Place::of(segment), "log created");
        self.make_log(segment, producers).await
    }

    /// Makes the log of a segment that the metadata do not know yet, which is to take the place of others. It is noted as scratch
    /// before.
    pub(crate) async fn make_scratch(&self, segment: &Descriptor) -> Result<Log> {
        let failed = |error| self.bucket().error("the note of a log", error);
        self.table().scratch().note(segment.id, Stage::Writing).map_err(failed)?;
        self.make_log(segment, ProducerTable::new()).await
    }

    /// Makes the log of a segment, durably, or answers the one that is there.
    async fn make_log(&self, segment: &Descriptor, producers: ProducerTable) -> Result<Log> {
        let _turn = self.making.lock().await;
        if let Some(log) = self.bucket().log(log_id(segment)) {
            return Ok(log);
        }
        if self.cluster().routing().metadata.deleted.contains(&segment.topic) {
            return Err(Error::UnknownSegment { segment: segment.id.to_string() }); // nothing of it may come back
        }
        let unknown =
            || Error::InvalidRequest { problem: format!("the base of segment {} is missing", segment.id) };
        let spec = log_spec(segment, producers).ok_or_else(unknown)?;
        let route = self.cluster().routing().topic(segment.topic).cloned();
        let bucket = self.bucket().clone();
        let make = move || {
            // Metadata that do not list the topic yet list it soon; what leaves the disk is looked at then, and this again.
            if let Some(route) = route {
                let noted = remains::note(bucket.store(), &route.topic);
                noted.map_err(|error| bucket.error("the note of a topic", error))?;
            }
            bucket.create(spec)
        };
        self.tasks().blocking(make).await
    }

    /// The producer table at a segment's base: from another copy of it, or of the sealed segment before.
    async fn producers_at_base(&self, segment: &Descriptor) -> Result<ProducerTable> {
        let first = |facts: &SegmentFacts| {
            let is_there = !facts.first_producers.is_empty();
            is_there.then(|| ProducerTable::decode(&facts.first_producers)).flatten()
        };
        if let Some(table) = self.find_fact(segment, first).await {
            return Ok(table);
        }
        let before = {
            let routing = self.cluster().routing();
            let partition =
                routing.topic(segment.topic).and_then(|route| route.partition(segment.partition).ok());
            let mut listed = partition.into_iter().flat_map(|partition| &partition.segments);
            listed.find(|listed| listed.descriptor.number + 1 == segment.number).cloned()
        };
        let Some(Segment { descriptor, state: SegmentState::Sealed(_), compacted: None, .. }) = before else {
            return Err(Obstacle::Unprepared { segment: segment.id }.into());
        };
        let last =
            |facts: &SegmentFacts| facts.sealed.then(|| ProducerTable::decode(&facts.producers)).flatten();
        if let Some(table) = self.find_fact(&descriptor, last).await {
            return Ok(self.producers_behind(&descriptor, table));
        }
        Err(Obstacle::ProducersUnknown { segment: descriptor.id }.into())
    }

    /// The producers with which the successor of a segment begins: those at its end, but who had been silent for a day when it
    /// was opened, and of those who had been for a quarter of an hour as many as there are too many. The metadata say who that
    /// is, so that all copies forget alike.
    pub(crate) fn producers_behind(&self, segment: &Descriptor, mut at_end: ProducerTable) -> ProducerTable {
        if let Some(listed) = self.cluster().current(segment) {
            at_end.forget_silent(listed.silent_below.0, listed.quiet_below.0);
        }
        at_end
    }

    /// Asks the replicas of a segment about their copies, producers included, until one knows what is wanted: the own one
    /// first, those that do not answer last. What is left of disks without votes knows how its log began, and is asked when
    /// nobody else knows.
    async fn find_fact<T>(
        &self,
        segment: &Descriptor,
        pick: impl Fn(&SegmentFacts) -> Option<T>,
    ) -> Option<T> {
        let of_copies = self.segment_info(vec![uuid_bytes(segment.id.0)], true);
        let of_left = SegmentInfo { left: true, ..of_copies.clone() };
        for question in [of_copies, of_left] {
            let others = self.holders(segment).into_iter().filter(|node| *node != self.cluster().node_id());
            for node in std::iter::once(self.cluster().node_id()).chain(others) {
                let facts = self.facts_of(node, &question, patience::SEGMENT_INFO).await.unwrap_or_default();
                if let Some(found) = facts.iter().find_map(&pick) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// What a node answers to a question about segments, this one included.
    pub(crate) async fn facts_of(
        &self,
        node: u32,
        question: &SegmentInfo,
        patience: Duration,
    ) -> Result<Vec<SegmentFacts>> {
        if node == self.cluster().node_id() {
            return Ok(self.segment_facts(question).await.segments);
        }
        let payload =
            self.cluster().peers().call(node, Request::SegmentInfo(question.clone()), patience).await?;
        let answer = <SegmentInfoAnswer as prost::Message>::decode(payload);
        let wrong =
            |problem: prost::DecodeError| Error::Internal { message: format!("a peer's facts: {problem}") };
        answer.map(|answer| answer.segments).map_err(wrong)
    }

    /// Makes the log of a segment that this disk will store, durably.
    pub(crate) async fn prepare(&self, segment: &Descriptor, producers: &[u8]) -> Result<()> {
        let invalid = |problem: &str| Error::InvalidRequest { problem: format!("prepare: {problem}") };
        let (cluster, leader) = (self.cluster(), segment.leader);
        // Whoever asks takes another leader then.
        if leader.node.0 == cluster.node_id() && (!is_led_by(leader, cluster.config()) || cluster.leaves()) {
            let key = Place::of(segment).to_string();
            return Err(Error::NotLeader { key, hint: None });
        }
        let producers =
            ProducerTable::decode(producers).ok_or_else(|| invalid("the producer table is damaged"))?;
        self.table().open(segment)?;
        self.make_log(segment, producers).await.map(drop)
    }

    /// Has the log of a successor made on its leader's node, durably.
    pub(crate) async fn prepare_successor(&self, successor: &Descriptor, producers: &Bytes) -> Result<()> {
        let node = successor.leader.node.0;
        if node == self.cluster().node_id() {
            return self.prepare(successor, producers).await;
        }
        let descriptor = Some(wire::encode_descriptor(successor));
        let metadata_version = self.cluster().metadata_version();
        let request =
            Request::Prepare(Prepare { descriptor, producers: producers.clone(), metadata_version });
        self.cluster().peers().call(node, request, patience::PREPARE).await.map(drop)
    }
}
