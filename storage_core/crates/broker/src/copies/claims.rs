//! Claims of this node that something is *not* there, or not any more. It claims only what it may, else it is `Unavailable`,
//! and whoever asks goes elsewhere. `walrus_replica` decides; here the other nodes are asked what that needs.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message as _;
use walrus_metadata::{Segment, SegmentState};
use walrus_model::{Descriptor, DiskId, SegmentId, TopicId};
use walrus_replica::{Doubt, OwnCopy, Part, Tail};

use crate::cluster::routing::is_led_by;
use crate::cluster::segment::uuid_bytes;
use crate::cluster::standing;
use crate::copies::Copies;
use crate::node::error::Result;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{Confirm, ConfirmAnswer, ReplicaName};
use crate::peer::Request;

impl Copies {
    /// `Unavailable`, unless what this node knows of the end of an open segment is all there was when it was asked.
    pub(crate) async fn may_claim_end(&self, segment: &Descriptor) -> Result<()> {
        let claims = self.may_claim_ends(std::slice::from_ref(segment)).await;
        let claim = claims.into_iter().collect::<Result<(), Doubt>>();
        claim.map_err(|doubt| Obstacle::EndUnsure { segment: segment.id, doubt }.into())
    }

    /// Says of each of many segments whether what this node knows of its end is all there was when it was asked. Sends one
    /// request to each node.
    pub(crate) async fn may_claim_ends(&self, segments: &[Descriptor]) -> Vec<Result<(), Doubt>> {
        let mut tails: Vec<Tail> = segments.iter().map(|segment| self.tail(segment)).collect();
        let mut questions: BTreeMap<u32, (Vec<usize>, Vec<ReplicaName>)> = BTreeMap::new();
        for (place, (segment, tail)) in segments.iter().zip(&tails).enumerate() {
            // Only where others can change the answer are they asked.
            if !matches!(tail.may_claim_end(), Err(Doubt::TooFew { .. })) {
                continue;
            }
            for replica in
                segment.replicas.iter().filter(|replica| replica.node.0 != self.cluster().node_id())
            {
                let (places, replicas) = questions.entry(replica.node.0).or_default();
                places.push(place);
                replicas.push(ReplicaName {
                    segment: uuid_bytes(segment.id.0),
                    disk: uuid_bytes(replica.disk.0),
                    topic: uuid_bytes(segment.topic.0),
                    partition: segment.partition,
                });
            }
        }
        // Whoever is at the version that opened the newest of the segments knows all of them.
        let metadata_version = segments
            .iter()
            .filter_map(|segment| self.cluster().current(segment))
            .map(|listed| listed.version)
            .max();
        let metadata_version = metadata_version.unwrap_or(0);
        let mut answers: FuturesUnordered<_> = questions
            .into_iter()
            .filter(|(node, _)| !self.cluster().liveness().is_silent(*node))
            .map(|(node, (places, replicas))| async move {
                let question = Request::Confirm(Confirm { replicas, metadata_version });
                let answer = self.cluster().peers().call(node, question, patience::CONFIRM).await;
                let answer = answer.ok().and_then(|payload| ConfirmAnswer::decode(payload).ok());
                (places, answer.unwrap_or_default())
            })
            .collect();
        let mut over = vec![0; segments.len()];
        while tails.iter().any(|tail| matches!(tail.may_claim_end(), Err(Doubt::TooFew { .. })))
            && let Some((places, answer)) = answers.next().await
        {
            for (place, takes_appends) in places.iter().zip(answer.takes_appends) {
                tails[*place].confirmed += usize::from(takes_appends);
            }
            for (place, is_over) in places.iter().zip(answer.is_over) {
                over[*place] += usize::from(is_over);
            }
        }
        let claims: Vec<_> = tails.iter().map(Tail::may_claim_end).collect();
        for ((segment, claim), over) in segments.iter().zip(&claims).zip(over) {
            if claim.is_err() && is_led_by(segment.leader, self.cluster().config()) {
                if let Some(lead) = self.table().lead(segment.id)
                    && standing::is_led_in_vain(segment.replicas.len(), segment.write_quorum as usize, over)
                {
                    lead.note_left();
                }
                self.table().note_doubt(segment.id);
            }
        }
        claims
    }

    fn tail(&self, segment: &Descriptor) -> Tail {
        Tail {
            replicas: segment.replicas.len(),
            write_quorum: segment.write_quorum as usize,
            is_leader: is_led_by(segment.leader, self.cluster().config()),
            own: self.own_part(segment.topic, segment.partition, segment.id),
            confirmed: 0,
        }
    }

    /// The part that the own copy of a segment has by what the metadata here say now: asked before whatever is final is said, and
    /// before this process begins to lead.
    pub(crate) fn own_part(&self, topic: TopicId, partition: u32, segment: SegmentId) -> Result<Part, Doubt> {
        let (is_open, is_trimmed) = {
            let routing = self.cluster().routing();
            let listed = routing.topic(topic).and_then(|route| route.partition(partition).ok());
            let last = listed.and_then(|partition| partition.segments.last());
            let listed = last.filter(|last| last.descriptor.id == segment);
            let is_open = listed.is_some_and(|listed| listed.state == SegmentState::Open);
            let is_trimmed =
                listed.is_some_and(|listed| self.table().tombstones().covers(&listed.descriptor));
            (is_open, is_trimmed)
        };
        let log = self.bucket().log(walrus_log::LogId(segment.0));
        let is_written = log.is_some_and(|log| log.is_sealed() || log.end_offset() > log.base_offset());
        let copy = self.table().find(segment).map_err(|_| Doubt::Unreadable)?;
        let takes_appends =
            copy.map(|copy| copy.takes_appends()).transpose().map_err(|_| Doubt::Unreadable)?;
        OwnCopy { is_open, is_trimmed, is_written, takes_appends }.part()
    }

    /// The answer to another node's [`Request::Confirm`]; it says yes only by metadata that are as new as the question wants.
    pub(crate) async fn confirm(&self, question: &Confirm) -> ConfirmAnswer {
        self.cluster().metadata_reaches(question.metadata_version, patience::CONFIRM_NEWS).await;
        let knows_enough = self.cluster().metadata_version() >= question.metadata_version;
        let part = |name: &ReplicaName| {
            let (disk, topic) = (DiskId::from_slice(&name.disk)?, TopicId::from_slice(&name.topic)?);
            let segment = SegmentId::from_slice(&name.segment)?;
            let is_asked = knows_enough && self.table().is_me(disk);
            is_asked.then(|| self.own_part(topic, name.partition, segment))
        };
        let parts: Vec<_> = question.replicas.iter().map(part).collect();
        ConfirmAnswer {
            takes_appends: parts.iter().map(|part| matches!(part, Some(Ok(_)))).collect(),
            is_over: parts
                .iter()
                .map(|part| part.is_some_and(|part| part.is_err_and(Doubt::is_final)))
                .collect(),
        }
    }

    /// Whether metadata give an open segment to this process, and it can neither go on leading it nor begin to: somebody must
    /// decide its end, or nobody ever says how far it goes.
    pub(crate) fn leads_in_vain(&self, segment: &Segment) -> bool {
        let descriptor = &segment.descriptor;
        let may_begin =
            || self.own_part(descriptor.topic, descriptor.partition, descriptor.id) == Ok(Part::Fresh);
        is_led_by(descriptor.leader, self.cluster().config())
            && segment.state == SegmentState::Open
            && self.table().lead(descriptor.id).map_or_else(|| !may_begin(), |lead| lead.is_in_vain())
    }
}
