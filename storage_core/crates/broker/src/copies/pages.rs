//! Batches of a segment from the other copies, page by page: while one is written here, the next is on its way.

use bytes::Bytes;
use tokio::task::JoinHandle;
use walrus_log::batch::Batch;
use walrus_metadata::{CopyState, Segment, SegmentState};
use walrus_model::{Descriptor, Offset, Value};

use crate::broker::Broker;
use crate::cluster::segment::log_id;
use crate::ending::recovery;
use crate::node::error::{Error, Result};

/// A segment's batches as they come, page by page, from the other copies.
pub(crate) struct Pages<'a> {
    broker: &'a Broker,
    segment: &'a Descriptor,
    /// Nobody has what is lost, and what lies behind the end is not wanted.
    decided: Value,
    /// Asked for already: the page that begins there.
    ahead: Option<(Offset, JoinHandle<Result<Vec<Bytes>>>)>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(broker: &'a Broker, segment: &'a Descriptor, decided: Value) -> Self {
        Self { broker, segment, decided, ahead: None }
    }

    /// The page that begins at an offset, or behind what is lost there; with nothing where that is the end. What follows it
    /// is asked for.
    pub(crate) async fn take(&mut self, from: Offset) -> Result<(Offset, Vec<Bytes>)> {
        let from = self.decided.past_lost(from);
        if from >= self.decided.end {
            return Ok((from, Vec::new()));
        }
        let page = match self.ahead.take() {
            Some((at, page)) if at == from => page.await.map_err(|problem| Error::Internal {
                message: format!("a page of another copy: {problem}"),
            })??,
            _ => fetch_from_any(self.broker, self.segment, from).await?,
        };
        let next = self.decided.past_lost(end_of(&page)?);
        if next < self.decided.end {
            let (broker, segment) = (self.broker.clone(), self.segment.clone());
            let ahead = tokio::spawn(async move { fetch_from_any(&broker, &segment, next).await });
            self.ahead = Some((next, ahead));
        }
        Ok((from, page))
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        if let Some((_, page)) = &self.ahead {
            page.abort();
        }
    }
}

/// The offset behind a page.
fn end_of(page: &[Bytes]) -> Result<Offset> {
    let empty = || Error::Internal { message: "a page of another copy is empty".to_owned() };
    let invalid =
        |problem: walrus_log::batch::BatchError| Error::InvalidBatch { problem: problem.to_string() };
    let (last, _) = Batch::parse(page.last().ok_or_else(empty)?).map_err(invalid)?;
    Ok(Offset(last.end_offset()))
}

/// Whole batches from an offset on, from the first node that has them; at last from what is left here of a former disk.
pub(crate) async fn fetch_from_any(
    broker: &Broker,
    segment: &Descriptor,
    from: Offset,
) -> Result<Vec<Bytes>> {
    let mut failure = Error::Unavailable { what: format!("nobody else has segment {}", segment.id) };
    for node in holders(broker, segment).into_iter().filter(|node| *node != broker.node_id()) {
        match recovery::fetch(broker, segment.id, node, from).await {
            Ok(batches) if !batches.is_empty() => return Ok(batches),
            Ok(_) => {}
            Err(error) => failure = error,
        }
    }
    if broker.left().log(log_id(segment)).is_some() {
        return recovery::fetch(broker, segment.id, broker.node_id(), from).await;
    }
    Err(failure)
}

/// Nodes that may have a segment's batches, the best first: those that answer, then verified copies. Before the segment is
/// sealed its replicas. Where the disk of one is gone, all other nodes come last: its log may be left with any of them.
pub(crate) fn holders(broker: &Broker, segment: &Descriptor) -> Vec<u32> {
    let listed = crate::partition::roll::current(broker, segment);
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
    let metadata = broker.routing().metadata.clone();
    if segment.replicas.iter().any(|replica| metadata.gone_disks.contains(&replica.disk)) {
        const LEFT: u8 = 5;
        let others = metadata.nodes.keys().map(|node| node.0);
        let others = others.filter(|node| holders.iter().all(|(_, known)| known != node));
        holders.extend(others.map(|node| (LEFT, node)).collect::<Vec<_>>());
    }
    holders.sort_by_key(|(rank, node)| (broker.liveness().is_silent(*node), *rank));
    holders.into_iter().map(|(_, node)| node).collect()
}
