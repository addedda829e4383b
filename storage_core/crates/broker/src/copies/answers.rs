//! The answers of this node for its own copies: to leaders and recoverers, to those who fetch, and to those who ask how far
//! a segment goes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;
use walrus_log::Log;
use walrus_metadata::{Segment, check_follows};
use walrus_model::{Descriptor, SegmentId, Value};
use walrus_replica::Mark;

use crate::cluster::routing::{is_led_by, open_segment};
use crate::cluster::segment::uuid_bytes;
use crate::copies::Copies;
use crate::copies::copy::{Copy, Readable, Said};
use crate::copies::left;
use crate::copies::wire;
use crate::node::budget::Purpose;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{ReplicaAnswer, ReplicaRequest, SegmentFacts, SegmentInfo, SegmentInfoAnswer};

/// Limit on the logs of former disks that are read from end to end for one answer.
const LEFT_LOGS_MAX: usize = 1;

/// Limit on the segments whose producers are told in one answer: a table may have megabytes.
const PRODUCER_TABLES_MAX: usize = 4;

/// A message to a replica on its way to the answer.
pub(crate) enum PendingReply {
    Answered(walrus_replica::Reply),
    /// It has its place in the order; the answer may wait for the disk.
    Said {
        copy: Arc<Copy>,
        said: Said,
    },
    /// It needs no place and was not given to the copy yet, for that waits for the disk.
    Waits {
        segment: SegmentId,
        ask: wire::Ask,
        /// What the peer that asks knows of the metadata.
        metadata_version: u64,
    },
}

impl PendingReply {
    /// Waits here until an append is durable, where that is quicker than to have it committed by another thread.
    pub(crate) fn commit_if_quicker(&self) {
        if let Self::Said { said: Said { commit: Some(commit), .. }, .. } = self
            && commit.is_better_waited_for()
        {
            drop(commit.wait()); // whoever awaits it meets the same error
        }
    }
}

/// Refuses a value whose successor cannot follow its segment: it would be decided, and taken by no metadata.
fn check_value(segment: &Descriptor, value: &Value) -> Result<()> {
    let wrong = |problem: String| Error::InvalidRequest { problem };
    if segment.number == u64::MAX {
        return Err(wrong(format!("segment {} has a number above which there is none", segment.id)));
    }
    check_follows(segment, &value.successor, Some(value.end)).map_err(|problem| wrong(problem.to_string()))
}

impl Copies {
    /// Takes a message to a replica on this node. What must have a place in an order has it when this returns.
    pub(crate) fn ask_replica(&self, request: ReplicaRequest) -> Result<PendingReply> {
        let metadata_version = request.metadata_version;
        let (segment, disk, ask) = wire::decode_ask(request)?;
        if !self.table().is_me(disk) {
            let reply = walrus_replica::Reply::Refused(walrus_replica::Refusal::OtherReplica);
            return Ok(PendingReply::Answered(reply));
        }
        match ask {
            wire::Ask::Append(_) | wire::Ask::Assigned(_) => {
                let unknown = || Error::UnknownSegment { segment: segment.to_string() };
                let copy = self.table().find(segment)?.ok_or_else(unknown)?;
                let said = copy.ask(ask)?;
                Ok(PendingReply::Said { copy, said })
            }
            ask => Ok(PendingReply::Waits { segment, ask, metadata_version }),
        }
    }

    /// The answer of a replica on this node, to an append when it is durable.
    pub(crate) async fn finish_replica(&self, asked: PendingReply) -> Result<ReplicaAnswer> {
        let (copy, said) = match asked {
            PendingReply::Answered(reply) => return Ok(wire::encode_reply(reply)),
            PendingReply::Said { copy, said } => (copy, said),
            PendingReply::Waits { segment, ask, metadata_version } => {
                let (descriptor, ballot) = match &ask {
                    wire::Ask::Fence(fence, descriptor) => (descriptor, fence.ballot),
                    wire::Ask::Accept(accept, _, _, descriptor) => {
                        check_value(descriptor, &accept.value)?;
                        (descriptor, accept.ballot)
                    }
                    _ => return Err(Error::InvalidRequest { problem: "nothing to wait for".to_owned() }),
                };
                if descriptor.id != segment {
                    return Err(Error::InvalidRequest { problem: "another segment's descriptor".to_owned() });
                }
                self.knows(descriptor, ballot.epoch, metadata_version).await?;
                let copy = self.table().open(descriptor)?;
                let needs_log = matches!(&ask, wire::Ask::Accept(accept, ..)
                    if Some(accept.value.end.0) > descriptor.base_offset.map(|base| base.0));
                if needs_log {
                    self.open_log(descriptor).await?;
                }
                let asked = copy.clone();
                (copy, self.cluster().tasks().blocking(move || asked.ask(ask)).await?)
            }
        };
        let silent = || Error::from(Obstacle::NothingToSay);
        if let Said { answer: Some(reply), .. } = said {
            return Ok(wire::encode_reply(reply));
        }
        let commit = said.commit.ok_or_else(silent)?;
        commit
            .await
            .map_err(|error| Error::Storage { node: self.cluster().node_id(), message: error.to_string() })?;
        copy.note_durable()?.map(wire::encode_reply).ok_or_else(silent)
    }

    /// Asks a replica on this node, for this very node, and waits for the answer.
    pub(crate) async fn answer_replica(&self, request: ReplicaRequest) -> Result<ReplicaAnswer> {
        let asked = self.ask_replica(request)?;
        self.finish_replica(asked).await
    }

    /// Batches of the own copy of a segment, acknowledged or not, or of a log that a former disk left of it: for its other
    /// replicas.
    pub(crate) async fn durable_batches(
        &self,
        segment: SegmentId,
        from: u64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>> {
        let unknown = || Error::UnknownSegment { segment: segment.to_string() };
        let own = self.bucket().log(walrus_log::LogId(segment.0));
        let reaches = |log: &Log| from < log.end_offset().0;
        let left = || self.left().log(walrus_log::LogId(segment.0)).filter(reaches);
        let log = own.clone().filter(reaches).or_else(left).or(own).ok_or_else(unknown)?;
        Ok(self.batches_of(&log, from, bytes_max, Purpose::Repairs).await?.batches)
    }

    /// How far a segment may be read on this node.
    pub(crate) fn readable(&self, segment: SegmentId, log: &Log) -> Result<Readable> {
        let all = |end| Ok(Readable { end, is_all: true });
        if let Some(sealed) = log.sealed() {
            return all(sealed.end.0);
        }
        match self.table().find(segment)? {
            Some(copy) => copy.lead().map_or_else(|| copy.readable(), |lead| all(lead.high_watermark.get())),
            // Nobody has written to it.
            None => all(log.base_offset().0),
        }
    }

    /// The question for facts about segments that this node knows of.
    pub(crate) fn segment_info(&self, segments: Vec<Bytes>, producers: bool) -> SegmentInfo {
        SegmentInfo { segments, producers, metadata_version: self.cluster().metadata_version(), left: false }
    }

    /// The answer to another node's question for facts, which may be about segments that this one has yet to hear of. See
    /// [`Copies::segment_facts`].
    pub(crate) async fn segment_facts_asked(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        let is_known = |segment: &Bytes| {
            let log = Uuid::from_slice(segment).map(walrus_log::LogId);
            log.is_ok_and(|log| {
                self.bucket().log(log).is_some() || self.cluster().routing().leases.by_key.contains_key(&log)
            })
        };
        if !wanted.segments.iter().all(is_known) {
            self.cluster().metadata_reaches(wanted.metadata_version, patience::SEGMENT_INFO_NEWS).await;
        }
        self.segment_facts(wanted).await
    }

    /// Facts about own copies of segments, and about open ones that this process leads and has not written yet.
    pub(crate) async fn segment_facts(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        if wanted.left {
            return self.left_facts(wanted).await;
        }
        let mut answer = self.known_facts(wanted);
        if !wanted.producers {
            self.mark_doubts(wanted, &mut answer.segments).await;
        }
        answer
    }

    /// Marks the ends of open segments of which this node cannot say that they are all there is.
    async fn mark_doubts(&self, wanted: &SegmentInfo, known: &mut Vec<SegmentFacts>) {
        let mut open = Vec::new();
        {
            let routing = self.cluster().routing();
            let wanted: HashSet<&Bytes> = wanted.segments.iter().collect();
            let partitions = routing.metadata.topics.values().flat_map(|topic| &topic.partitions);
            for Segment { descriptor, .. } in partitions.filter_map(|partition| open_segment(partition)) {
                let segment = uuid_bytes(descriptor.id.0);
                if !wanted.contains(&segment) {
                    continue;
                }
                match known.iter().position(|facts| facts.segment == segment) {
                    // The metadata here list it as open: they were set back, or have yet to hear of its end.
                    Some(place) if known[place].sealed => self.table().note_doubt(descriptor.id),
                    Some(place) => open.push((place, descriptor.clone())),
                    None if is_led_by(descriptor.leader, self.cluster().config()) => {
                        let end_offset = descriptor.base_offset.map_or(0, |base| base.0);
                        open.push((known.len(), descriptor.clone()));
                        known.push(SegmentFacts { segment, end_offset, ..SegmentFacts::default() });
                    }
                    None => {}
                }
            }
        }
        let (places, descriptors): (Vec<usize>, Vec<Descriptor>) = open.into_iter().unzip();
        let claims = self.may_claim_ends(&descriptors).await;
        for (place, claim) in places.into_iter().zip(claims) {
            if let Err(doubt) = claim {
                known[place].unsettled = true;
                known[place].doubt = doubt.to_string();
            }
        }
    }

    /// Facts about logs that former disks left here, as far as they are whole.
    async fn left_facts(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        let asked: BTreeSet<SegmentId> =
            wanted.segments.iter().filter_map(|segment| SegmentId::from_slice(segment)).collect();
        let logs = asked.into_iter().filter_map(|segment| self.left().log(walrus_log::LogId(segment.0)));
        let logs: Vec<Log> = logs.take(LEFT_LOGS_MAX).collect();
        let producers = wanted.producers;
        let facts = move |log: &Log| {
            let Mark { end, digest } = left::whole_to(log).ok()??;
            let (segment, bytes) = (uuid_bytes(log.id().0), log.size_bytes());
            let first_producers = if producers { encoded_first(log) } else { Bytes::new() };
            Some(SegmentFacts {
                segment,
                end_offset: end.0,
                bytes,
                first_producers,
                digest: digest.0,
                left: true,
                ..SegmentFacts::default()
            })
        };
        let looked =
            self.cluster().tasks().blocking(move || Ok(logs.iter().filter_map(facts).collect())).await;
        SegmentInfoAnswer { segments: looked.unwrap_or_default() }
    }

    fn known_facts(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        let facts = |bytes: &Bytes| {
            let segment = SegmentId::from_slice(bytes)?;
            let log = self.bucket().log(walrus_log::LogId(segment.0))?;
            let Readable { end: end_offset, is_all } = self.readable(segment, &log).ok()?;
            let (producers, first_producers) = match wanted.producers {
                true => (log.producers().encode().into(), encoded_first(&log)),
                false => Default::default(),
            };
            let bytes = self.bucket().size_bytes(log.id()).unwrap_or(0);
            let (sealed, digest) = (log.is_sealed(), log.sealed().map_or(0, |seal| seal.digest));
            let stays = sealed && !self.table().is_about_to_go(segment);
            let segment = uuid_bytes(segment.0);
            let doubt = if is_all { String::new() } else { walrus_replica::Doubt::Ending.to_string() };
            Some(SegmentFacts {
                segment,
                end_offset,
                bytes,
                sealed,
                producers,
                first_producers,
                unsettled: !is_all,
                doubt,
                digest,
                stays,
                ..SegmentFacts::default()
            })
        };
        // Each segment is answered once: else a question that repeats itself has an answer of any size.
        let asked: BTreeSet<&Bytes> = wanted.segments.iter().collect();
        let most = if wanted.producers { PRODUCER_TABLES_MAX } else { usize::MAX };
        SegmentInfoAnswer { segments: asked.into_iter().take(most).filter_map(facts).collect() }
    }
}

/// The producer table with which a log began, encoded; no bytes if its journal has lost it.
fn encoded_first(log: &Log) -> Bytes {
    log.first_producers().map(|producers| producers.encode().into()).unwrap_or_default()
}
