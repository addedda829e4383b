//! What this node says is *not* there, or not any more: only what it may claim, else `Unavailable`, and whoever asks goes
//! elsewhere. `cluster/standing.rs` decides; here is asked what it must know for that.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message as _;
use walrus_metadata::SegmentState;
use walrus_model::{Descriptor, DiskId, NodeId, ReplicaRef, SegmentId, TopicId};
use walrus_replica::{Doubt, OwnCopy, Part, Tail};

use crate::broker::Broker;
use crate::cluster::routing::{is_led_by, open_segment};
use crate::cluster::segment::uuid_bytes;
use crate::cluster::standing;
use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::node::proto::peer::{Confirm, ConfirmAnswer, ReplicaName};
use crate::partition::roll;
use crate::peer::Request;

/// For the word of the other replicas.
const CONFIRM_PATIENCE: Duration = Duration::from_secs(1);
/// How long such a question waits for the metadata that its sender has heard of.
const NEWS_PATIENCE: Duration = Duration::from_millis(500);

impl Broker {
    /// What is found in the metadata here. Before something is called unknown they are made as new as the question, and
    /// looked through again; where that cannot be, it is `Unavailable`.
    pub(crate) async fn confirmed<T>(&self, look: impl Fn() -> Result<T>) -> Result<T> {
        match look() {
            Err(unknown) if unknown.is_unknown() => {
                self.knows_all(&format!("{unknown}, perhaps")).await?;
                look()
            }
            found => found,
        }
    }

    /// Returns when this node knows all metadata that were committed before the call; else `Unavailable`, with what is
    /// doubted.
    pub(crate) async fn knows_all(&self, doubted: &str) -> Result<()> {
        let unavailable =
            |why: &dyn std::fmt::Display| Error::Unavailable { what: format!("{doubted}: {why}") };
        self.may_be_told().map_err(|doubt| unavailable(&doubt))?;
        let passed = self.barrier().pass(self.control()).await;
        passed.map_err(|refusal| unavailable(&refusal.message))
    }

    /// Whether it is worth asking the metadata store: one that has not answered for seconds would be waited for in vain.
    fn may_be_told(&self) -> Result<(), Doubt> {
        let (routing, process) = (self.routing(), self.config().process);
        let me = routing.metadata.nodes.get(&NodeId(self.node_id())).filter(|node| node.process == process);
        standing::may_claim_unknown(me.is_some(), me.is_some_and(|me| self.holds_lease(me)))
    }

    /// `Unavailable`, unless what this node knows of the end of an open segment is all there was when it was asked.
    pub(crate) async fn may_claim_end(&self, segment: &Descriptor) -> Result<()> {
        let claims = self.may_claim_ends(std::slice::from_ref(segment)).await;
        claims.into_iter().collect::<Result<(), Doubt>>().map_err(|doubt| Error::Unavailable {
            what: format!("how far segment {} goes is not sure: {doubt}", segment.id),
        })
    }

    /// The same for many, with one request to each node.
    pub(crate) async fn may_claim_ends(&self, segments: &[Descriptor]) -> Vec<Result<(), Doubt>> {
        let mut tails: Vec<Tail> = segments.iter().map(|segment| self.tail(segment)).collect();
        let mut questions: BTreeMap<u32, (Vec<usize>, Vec<ReplicaName>)> = BTreeMap::new();
        for (place, (segment, tail)) in segments.iter().zip(&tails).enumerate() {
            // Where others can change the answer.
            if !matches!(tail.may_claim_end(), Err(Doubt::TooFew { .. })) {
                continue;
            }
            for replica in segment.replicas.iter().filter(|replica| replica.node.0 != self.node_id()) {
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
        // Whoever is at the version that opened the newest of them knows all of them.
        let metadata_version = segments
            .iter()
            .filter_map(|segment| roll::current(self, segment))
            .map(|listed| listed.version)
            .max();
        let metadata_version = metadata_version.unwrap_or(0);
        let mut answers: FuturesUnordered<_> = questions
            .into_iter()
            .filter(|(node, _)| !self.liveness().is_silent(*node))
            .map(|(node, (places, replicas))| async move {
                let question = Request::Confirm(Confirm { replicas, metadata_version });
                let answer = self.peers().call(node, question, CONFIRM_PATIENCE).await;
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
            if claim.is_err() && is_led_by(segment.leader, self.config()) {
                if let Some(leader) = self.known_leader(segment.id)
                    && standing::is_led_in_vain(segment.replicas.len(), segment.write_quorum as usize, over)
                {
                    leader.note_left();
                }
                self.copies().note_doubt(segment.id);
            }
        }
        claims
    }

    fn tail(&self, segment: &Descriptor) -> Tail {
        Tail {
            replicas: segment.replicas.len(),
            write_quorum: segment.write_quorum as usize,
            is_leader: is_led_by(segment.leader, self.config()),
            own: self.own_part(segment.topic, segment.partition, segment.id),
            confirmed: 0,
        }
    }

    /// How the own copy of a segment stands by what the metadata here say now: asked before whatever is final, and before
    /// this process begins to lead.
    pub(crate) fn own_part(&self, topic: TopicId, partition: u32, segment: SegmentId) -> Result<Part, Doubt> {
        let (is_open, is_trimmed) = {
            let routing = self.routing();
            let listed = routing.topic(topic).and_then(|route| route.partition(partition).ok());
            let last = listed.and_then(|partition| partition.segments.last());
            let listed = last.filter(|last| last.descriptor.id == segment);
            let is_open = listed.is_some_and(|listed| listed.state == SegmentState::Open);
            let is_trimmed =
                listed.is_some_and(|listed| self.copies().tombstones().covers(&listed.descriptor));
            (is_open, is_trimmed)
        };
        let log = self.bucket().log(walrus_log::LogId(segment.0));
        let is_written = log.is_some_and(|log| log.is_sealed() || log.end_offset() > log.base_offset());
        let copy = self.copies().find(segment).map_err(|_| Doubt::Unreadable)?;
        let takes_appends =
            copy.map(|copy| copy.takes_appends()).transpose().map_err(|_| Doubt::Unreadable)?;
        OwnCopy { is_open, is_trimmed, is_written, takes_appends }.part()
    }

    /// The answer to another node's [`Request::Confirm`]: yes by metadata that are as new as the question wants.
    pub(crate) async fn confirm(&self, question: &Confirm) -> ConfirmAnswer {
        self.metadata_reaches(question.metadata_version, NEWS_PATIENCE).await;
        let knows_enough = self.metadata_version() >= question.metadata_version;
        let part = |name: &ReplicaName| {
            let (disk, topic) = (DiskId::from_slice(&name.disk)?, TopicId::from_slice(&name.topic)?);
            let segment = SegmentId::from_slice(&name.segment)?;
            let is_asked = knows_enough && self.copies().is_me(disk);
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

    /// Whether appends to a segment are not worth waiting for here: too few of its replicas have answered this node
    /// lately.
    pub(crate) fn is_cut_off(&self, segment: &Descriptor) -> bool {
        let lost = self.liveness().lost();
        let is_lost = |replica: &&ReplicaRef| lost.contains(&replica.node.0);
        let (replicas, write_quorum) = (segment.replicas.len(), segment.write_quorum as usize);
        !lost.is_empty()
            && standing::is_cut_off(replicas, write_quorum, segment.replicas.iter().filter(is_lost).count())
    }

    /// The same for the open segment of a partition, as the error that is said then.
    pub(crate) fn check_reach(&self, partition: &PartitionRef) -> Result<()> {
        let routing = self.routing();
        let listed = routing.partition(partition).ok();
        let open = listed.and_then(|(_, found)| open_segment(found));
        match open.filter(|open| self.is_cut_off(&open.descriptor)) {
            Some(open) => Err(self.cut_off(&open.descriptor)),
            None => Ok(()),
        }
    }

    /// What is said then.
    pub(crate) fn cut_off(&self, segment: &Descriptor) -> Error {
        let (uuid, lost) = (segment.id, self.liveness().lost());
        Error::Unavailable {
            what: format!("segment {uuid} needs replicas on nodes {lost:?}, which do not answer"),
        }
    }
}
