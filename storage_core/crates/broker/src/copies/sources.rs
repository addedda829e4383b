//! The sources of a segment's batches: which nodes may have them, and how they are asked for.

use bytes::Bytes;
use prost::Message as _;
use walrus_metadata::{CopyState, Segment, SegmentState};
use walrus_model::{Descriptor, Offset, SegmentId};

use crate::cluster::segment::{log_id, uuid_bytes};
use crate::copies::Copies;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{Fetch, FetchAnswer};
use crate::peer::Request;

/// Limit on the bytes of one answer, which has one batch at least.
const FETCH_BYTES: u32 = 8 << 20;

impl Copies {
    /// Fetches batches of the copy on a node, acknowledged or not, from an offset on.
    pub(crate) async fn fetch(&self, segment: SegmentId, node: u32, from: Offset) -> Result<Vec<Bytes>> {
        if node == self.cluster().node_id() {
            return self.durable_batches(segment, from.0, FETCH_BYTES as usize).await;
        }
        let segment = uuid_bytes(segment.0);
        let fetch = Fetch {
            segment,
            offset: from.0,
            bytes_max: FETCH_BYTES,
            wait_ms: 0,
            durable: true,
            unconfirmed: false,
        };
        let payload = self.cluster().peers().call(node, Request::Fetch(fetch), patience::COPY_FETCH).await?;
        let answer = FetchAnswer::decode(payload)
            .map_err(|problem| Error::Internal { message: format!("a peer's page: {problem}") })?;
        Ok(answer.batches)
    }

    /// Fetches whole batches from an offset on, from the first node that has them; at last from what a former disk left here.
    pub(crate) async fn fetch_from_any(&self, segment: &Descriptor, from: Offset) -> Result<Vec<Bytes>> {
        let mut failure = Error::from(Obstacle::NobodyElseHas { segment: segment.id });
        for node in self.holders(segment).into_iter().filter(|node| *node != self.cluster().node_id()) {
            match self.fetch(segment.id, node, from).await {
                Ok(batches) if !batches.is_empty() => return Ok(batches),
                Ok(_) => {}
                Err(error) => failure = error,
            }
        }
        if self.left().log(log_id(segment)).is_some() {
            return self.fetch(segment.id, self.cluster().node_id(), from).await;
        }
        Err(failure)
    }

    /// Nodes that may have a segment's batches, the best first: those that answer, and among them verified copies. They are the
    /// segment's replicas until it is sealed. If the disk of one is gone, all other nodes come last: its log may be left with
    /// any of them.
    pub(crate) fn holders(&self, segment: &Descriptor) -> Vec<u32> {
        let listed = self.cluster().current(segment);
        let mut holders: Vec<(u8, u32)> = match listed {
            Some(Segment { state: SegmentState::Sealed(_), copies, .. }) => {
                let rank = |state| match state {
                    CopyState::Verified => 0,
                    CopyState::Filling => 1,
                    CopyState::Damaged => 2,
                    CopyState::Leaving => 3,
                    CopyState::Lost => 4,
                };
                copies.iter().map(|copy| (rank(copy.state), copy.replica.node.0)).collect()
            }
            _ => segment.replicas.iter().map(|replica| (0, replica.node.0)).collect(),
        };
        let metadata = self.cluster().routing().metadata.clone();
        if segment.replicas.iter().any(|replica| metadata.gone_disks.contains(&replica.disk)) {
            const LEFT: u8 = 5;
            let others = metadata.nodes.keys().map(|node| node.0);
            let others = others.filter(|node| holders.iter().all(|(_, known)| known != node));
            holders.extend(others.map(|node| (LEFT, node)).collect::<Vec<_>>());
        }
        holders.sort_by_key(|(rank, node)| (self.cluster().liveness().is_silent(*node), *rank));
        holders.into_iter().map(|(_, node)| node).collect()
    }
}
