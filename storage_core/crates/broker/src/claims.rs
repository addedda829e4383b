//! What this node says is *not* there, or not any more: only what it may claim, else `Unavailable`, and whoever asks goes
//! elsewhere. `replication/standing.rs` decides; here is asked what it must know for that.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message as _;
use uuid::Uuid;
use walrus_metadata::{Descriptor, NodeId};

use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::peer::Request;
use crate::proto::peer::{Confirm, ConfirmAnswer, ReplicaName};
use crate::replication::standing::{self, Doubt, Tail};
use crate::routing::{is_led_by, open_segment};
use crate::segment::uuid_bytes;
use crate::topic::PartitionRef;

/// For the word of the other replicas.
const CONFIRM_PATIENCE: Duration = Duration::from_secs(1);

impl Broker {
    /// An error that calls something unknown, if this node may; else `Unavailable`. Others stay as they are.
    pub(crate) fn as_claim(&self, error: Error) -> Error {
        let is_claim = matches!(
            error,
            Error::UnknownTopic { .. } | Error::UnknownPartition { .. } | Error::UnknownSegment { .. }
        );
        match self.may_claim_unknown() {
            Err(doubt) if is_claim => Error::Unavailable { what: format!("{error}, perhaps: {doubt}") },
            _ => error,
        }
    }

    /// Whether no topic can be missing in what this node knows.
    pub(crate) fn may_claim_unknown(&self) -> Result<(), Doubt> {
        let (routing, process) = (self.routing(), self.config().process);
        let me = routing.metadata.nodes.get(&NodeId(self.node_id())).filter(|node| node.process == process);
        standing::may_claim_unknown(me.is_some(), me.is_some_and(|me| self.holds_lease(me)))
    }

    /// `Unavailable`, unless what this node knows of the end of an open segment is all there was when it was asked.
    pub(crate) async fn may_claim_end(&self, segment: &Descriptor) -> Result<()> {
        let claims = self.may_claim_ends(std::slice::from_ref(segment)).await;
        claims.into_iter().collect::<Result<(), Doubt>>().map_err(|doubt| Error::Unavailable {
            what: format!("how far segment {} goes is not sure: {doubt}", segment.uuid),
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
                replicas
                    .push(ReplicaName { segment: uuid_bytes(segment.uuid), disk: uuid_bytes(replica.disk) });
            }
        }
        let mut answers: FuturesUnordered<_> = questions
            .into_iter()
            .filter(|(node, _)| !self.liveness().is_silent(*node))
            .map(|(node, (places, replicas))| async move {
                let question = Request::Confirm(Confirm { replicas });
                let answer = self.peers().call(node, question, CONFIRM_PATIENCE).await;
                let answer = answer.ok().and_then(|payload| ConfirmAnswer::decode(payload).ok());
                (places, answer.unwrap_or_default().takes_appends)
            })
            .collect();
        while tails.iter().any(|tail| matches!(tail.may_claim_end(), Err(Doubt::TooFew { .. })))
            && let Some((places, takes_appends)) = answers.next().await
        {
            for (place, takes_appends) in places.into_iter().zip(takes_appends) {
                tails[place].confirmed += usize::from(takes_appends);
            }
        }
        tails.iter().map(Tail::may_claim_end).collect()
    }

    fn tail(&self, segment: &Descriptor) -> Tail {
        Tail {
            replicas: segment.replicas.len(),
            write_quorum: segment.write_quorum as usize,
            is_leader: is_led_by(segment.leader, self.config()),
            takes_appends: self.takes_appends(segment.uuid),
            confirmed: 0,
        }
    }

    /// Whether the own copy still takes its leader's appends. One that is not there yet has promised nothing.
    fn takes_appends(&self, segment: Uuid) -> bool {
        match self.copies().find(segment) {
            Ok(Some(copy)) => copy.takes_appends().unwrap_or(false),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The answer to another node's [`Request::Confirm`].
    pub(crate) fn confirm(&self, question: &Confirm) -> ConfirmAnswer {
        let uuid = |bytes: &Bytes| Uuid::from_slice(bytes).ok();
        let takes_appends = |name: &ReplicaName| {
            uuid(&name.disk).is_some_and(|disk| self.copies().is_me(disk))
                && uuid(&name.segment).is_some_and(|segment| self.takes_appends(segment))
        };
        ConfirmAnswer { takes_appends: question.replicas.iter().map(takes_appends).collect() }
    }

    /// Whether appends to a segment are not worth waiting for here: too few of its replicas have answered this node
    /// lately.
    pub(crate) fn is_cut_off(&self, segment: &Descriptor) -> bool {
        let lost = self.liveness().lost();
        let is_lost = |replica: &&walrus_metadata::ReplicaRef| lost.contains(&replica.node.0);
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
        let (uuid, lost) = (segment.uuid, self.liveness().lost());
        Error::Unavailable {
            what: format!("segment {uuid} needs replicas on nodes {lost:?}, which do not answer"),
        }
    }
}
