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
use crate::node::proto::peer::{Prepare, PrepareAnswer, SegmentFacts, SegmentInfo, SegmentInfoAnswer};
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
        let after = self.segment_before(segment).map(|before| log_id(&before.descriptor));
        let spec = log_spec(segment, producers, after).ok_or_else(unknown)?;
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
        let before = self.segment_before(segment);
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

    /// The segment that another one continues, as far as the metadata list it.
    fn segment_before(&self, segment: &Descriptor) -> Option<Segment> {
        let routing = self.cluster().routing();
        let partition = routing.topic(segment.topic)?.partition(segment.partition).ok()?;
        let mut listed = partition.segments.iter();
        listed.find(|listed| listed.descriptor.number + 1 == segment.number).cloned()
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
        decode(payload).map(|answer: SegmentInfoAnswer| answer.segments)
    }

    /// Makes the log of a segment that this disk will store, durably.
    pub(crate) async fn prepare(&self, segment: &Descriptor, producers: ProducerTable) -> Result<()> {
        let (cluster, leader) = (self.cluster(), segment.leader);
        // Whoever asks takes another leader then.
        if leader.node.0 == cluster.node_id() && (!is_led_by(leader, cluster.config()) || cluster.leaves()) {
            let key = Place::of(segment).to_string();
            return Err(Error::NotLeader { key, hint: None });
        }
        self.table().open(segment)?;
        self.make_log(segment, producers).await.map(drop)
    }

    /// Makes the log of a segment for another node, durably. That one sends the producers with which the log begins, or their
    /// digest only: false, and nothing is made, if they are not known here either.
    pub(crate) async fn prepare_asked(
        &self,
        segment: &Descriptor,
        producers: &[u8],
        digest: &[u8],
    ) -> Result<bool> {
        let invalid = |problem: &str| Error::InvalidRequest { problem: format!("prepare: {problem}") };
        let producers = match (producers, digest) {
            ([], digest) => {
                let digest: [u8; 16] = digest.try_into().map_err(|_| invalid("the digest has 16 bytes"))?;
                self.known_producers(segment, u128::from_le_bytes(digest))
            }
            (encoded, _) => {
                let decoded = ProducerTable::decode(encoded);
                let producers = decoded.ok_or_else(|| invalid("the producer table is damaged"))?;
                let similar = self.log_before(segment).map(|before| before.producers());
                Some(producers.sharing_with(&similar.unwrap_or_default()))
            }
        };
        match producers {
            Some(producers) => self.prepare(segment, producers).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// The producer table of that digest at a segment's base, if this disk has it: where the segment before ends in its own copy,
    /// or because the segment's log is there.
    fn known_producers(&self, segment: &Descriptor, digest: u128) -> Option<ProducerTable> {
        if let Some(log) = self.bucket().log(log_id(segment)) {
            return log.first_producers();
        }
        let before = self.segment_before(segment)?.descriptor;
        let at_end = self.bucket().log(log_id(&before))?.producers();
        // A copy that lacks records of the segment has other producers, and so another digest.
        Some(self.producers_behind(&before, at_end)).filter(|producers| producers.digest() == digest)
    }

    /// The own copy of the segment that another one continues.
    fn log_before(&self, segment: &Descriptor) -> Option<Log> {
        self.bucket().log(log_id(&self.segment_before(segment)?.descriptor))
    }

    /// Has the log of a successor made on its leader's node, durably.
    pub(crate) async fn prepare_successor(
        &self,
        successor: &Descriptor,
        producers: &ProducerTable,
    ) -> Result<()> {
        let node = successor.leader.node.0;
        if node == self.cluster().node_id() {
            return self.prepare(successor, producers.clone()).await;
        }
        self.prepare_on(node, successor, producers).await
    }

    /// Has the log of a segment made on another node, durably. The producers with which it begins go there only if that node
    /// does not know them.
    pub(crate) async fn prepare_on(
        &self,
        node: u32,
        segment: &Descriptor,
        producers: &ProducerTable,
    ) -> Result<()> {
        let mut request = Prepare {
            descriptor: Some(wire::encode_descriptor(segment)),
            producers: Bytes::new(),
            metadata_version: self.cluster().metadata_version(),
            producers_digest: producers.digest().to_le_bytes().to_vec().into(),
        };
        let ask = |request: Prepare| {
            self.cluster().peers().call(node, Request::Prepare(request), patience::PREPARE)
        };
        let answer: PrepareAnswer = decode(ask(request.clone()).await?)?;
        if answer.wants_producers {
            request.producers = producers.encode().into();
            ask(request).await?;
        }
        Ok(())
    }
}

/// Decodes a peer's answer.
fn decode<M: prost::Message + Default>(payload: Bytes) -> Result<M> {
    M::decode(payload).map_err(|problem| Error::Internal { message: format!("a peer's answer: {problem}") })
}
