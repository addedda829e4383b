//! Filling holes, which are batches of an unsealed copy that rotted. A segment has one writer, so every copy has the same
//! bytes at an offset: what one lacks comes from any other copy's log, acknowledged or not, also from one that cannot vote yet.

use std::sync::Arc;

use bytes::Bytes;
use walrus_log::batch::Batch;
use walrus_model::{Offset, OffsetRange};

use crate::copies::Copies;
use crate::copies::copy::Copy;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;

/// Fills the holes of a copy with what the other copies of the segment have, as far as their nodes answer, and says whether
/// nothing is missing any more. What does not fit in its place stays a hole: such a copy is made anew once the segment is sealed.
pub(crate) async fn fill(copies: &Arc<Copies>, copy: &Arc<Copy>) -> Result<bool> {
    for hole in look(copies, copy).await? {
        match fill_one(copies, copy, hole).await {
            Ok(()) => copies.cluster().metrics().mended_ranges.inc(),
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
    Ok(look(copies, copy).await?.is_empty())
}

async fn look(copies: &Arc<Copies>, copy: &Arc<Copy>) -> Result<Vec<OffsetRange>> {
    let looking = copy.clone();
    copies.cluster().tasks().blocking(move || looking.holes()).await
}

/// Fills the front of a hole from a copy that has it, or its back.
async fn fill_one(copies: &Arc<Copies>, copy: &Arc<Copy>, hole: OffsetRange) -> Result<()> {
    let segment = copy.descriptor();
    let mut failure = Error::from(Obstacle::HoleNowhereFilled { segment: segment.id });
    let others = copies.holders(segment).into_iter();
    for node in others
        .filter(|node| *node != copies.cluster().node_id() && !copies.cluster().liveness().is_silent(*node))
    {
        for from in [hole.start, Offset(hole.end.0 - 1)] {
            let fetched = copies.fetch(segment.id, node, from).await;
            let (from, bytes) = match fetched.and_then(|batches| within(&batches, hole)) {
                Ok(Some(part)) => part,
                Ok(None) => continue,
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            let filling = copy.clone();
            if copies.cluster().tasks().blocking(move || filling.fill_hole(from, &bytes)).await? {
                return Ok(());
            }
            failure = Obstacle::BatchesUnfit { node }.into();
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
