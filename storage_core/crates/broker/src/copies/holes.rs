//! Holes: batches of an unsealed copy that rotted. A segment has one writer, so every copy has the same bytes at an offset:
//! what one lacks comes from any other copy's log, acknowledged or not, also from one that cannot vote yet.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use walrus_log::batch::Batch;
use walrus_model::{Offset, OffsetRange, SegmentId};

use crate::broker::Broker;
use crate::copies::copy::Copy;
use crate::copies::pages;
use crate::ending::recovery;
use crate::node::error::{Error, Result};

/// The unsealed copies of this disk in which something rotted, as far as they were looked through.
#[derive(Default)]
pub(crate) struct Holed {
    segments: Mutex<HashSet<SegmentId>>,
    /// One was found.
    found: Notify,
    /// All that were here at the start have been looked through.
    is_complete: AtomicBool,
}

impl Holed {
    /// What a look through a copy found.
    pub(crate) fn note(&self, segment: SegmentId, is_holed: bool) {
        if !is_holed {
            self.segments.lock().remove(&segment);
        } else if self.segments.lock().insert(segment) {
            self.found.notify_one();
        }
    }

    /// Segments with holes here.
    pub(crate) fn all(&self) -> Vec<SegmentId> {
        self.segments.lock().iter().copied().collect()
    }

    /// Whether a copy is known to have everything below its end.
    pub(crate) fn knows_as_whole(&self, segment: SegmentId) -> bool {
        self.is_complete.load(Ordering::Acquire) && !self.segments.lock().contains(&segment)
    }

    /// All copies that a start found were looked through.
    pub(crate) fn set_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Returns when one was found.
    pub(crate) async fn found(&self) {
        self.found.notified().await;
    }
}

/// Fills what the other copies of the segment have, as far as their nodes answer. True: nothing is missing any more. What
/// does not fit in its place stays a hole: such a copy is made anew once the segment is sealed.
pub(crate) async fn fill(broker: &Broker, copy: &Arc<Copy>) -> Result<bool> {
    for hole in look(broker, copy).await? {
        match fill_one(broker, copy, hole).await {
            Ok(()) => broker.metrics().mended_ranges.inc(),
            Err(error) => {
                let segment = copy.descriptor().id;
                tracing::info!(%segment, start = hole.start.0, end = hole.end.0, %error, "a hole is not filled yet");
                continue;
            }
        };
        tracing::info!(
            segment = %copy.descriptor().id, start = hole.start.0, end = hole.end.0,
            "a hole is filled, as far as one other copy reaches"
        );
    }
    Ok(look(broker, copy).await?.is_empty())
}

async fn look(broker: &Broker, copy: &Arc<Copy>) -> Result<Vec<OffsetRange>> {
    let looking = copy.clone();
    broker.blocking(move || looking.holes()).await
}

/// The front of a hole from a copy that has it, or its back.
async fn fill_one(broker: &Broker, copy: &Arc<Copy>, hole: OffsetRange) -> Result<()> {
    let segment = copy.descriptor();
    let what = format!("no other copy of segment {} that answers has it", segment.id);
    let mut failure = Error::Unavailable { what };
    let others = pages::holders(broker, segment).into_iter();
    for node in others.filter(|node| *node != broker.node_id() && !broker.liveness().is_silent(*node)) {
        for from in [hole.start, Offset(hole.end.0 - 1)] {
            let fetched = recovery::fetch(broker, segment.id, node, from).await;
            let (from, bytes) = match fetched.and_then(|batches| within(&batches, hole)) {
                Ok(Some(part)) => part,
                Ok(None) => continue,
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            let filling = copy.clone();
            if broker.blocking(move || filling.fill_hole(from, &bytes)).await? {
                return Ok(());
            }
            failure = Error::Unavailable { what: format!("node {node}'s batches do not fit there") };
        }
    }
    Err(failure)
}

/// Those of some batches that follow each other from the first on and lie within a hole, and the offset of the first.
fn within(batches: &[Bytes], hole: OffsetRange) -> Result<Option<(Offset, Vec<u8>)>> {
    let (mut from, mut next, mut bytes) = (None, hole.start.0, Vec::new());
    for fetched in batches {
        let (batch, _) =
            Batch::parse(fetched).map_err(|problem| Error::InvalidBatch { problem: problem.to_string() })?;
        let follows = from.is_none() || batch.base_offset() == next;
        if batch.base_offset() < hole.start.0 || batch.end_offset() > hole.end.0 || !follows {
            break;
        }
        from.get_or_insert(Offset(batch.base_offset()));
        next = batch.end_offset();
        bytes.extend_from_slice(fetched);
    }
    Ok(from.map(|from| (from, bytes)))
}
