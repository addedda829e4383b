//! Bringing the own copy of a segment to its decided end: what it lacks is fetched from others, what lies behind goes.

use std::sync::Arc;

use bytes::Bytes;
use walrus_log::Log;
use walrus_log::batch::Batch;
use walrus_metadata::{Compacted, Segment};
use walrus_model::{Descriptor, Epoch, Offset, Value};

use crate::copies::Copies;
use crate::copies::codec;
use crate::copies::pages::Pages;
use crate::node::error::{Error, Result};

/// Seals the own copy of a segment as decided, fetching what it lacks.
pub(crate) async fn seal_here(copies: &Arc<Copies>, segment: &Descriptor, value: &Value) -> Result<()> {
    let copy = copies.table().open(segment)?;
    let decided = value.clone();
    copies.open_log(segment).await?;
    let mut pages = Pages::new(copies, segment, decided.clone());
    let mut from = decided.end;
    let mut batches = Vec::new();
    loop {
        let (sealing, decided) = (copy.clone(), decided.clone());
        let lacks = copies.cluster().tasks().blocking(move || sealing.seal(decided, from, batches)).await?;
        let Some(end) = lacks else {
            return Ok(());
        };
        (from, batches) = pages.take(end).await?;
    }
}

/// Makes a copy on a disk that has no vote about the segment: a log with the decided bytes, and nothing else.
pub(crate) async fn make_copy(copies: &Arc<Copies>, listed: &Segment, value: &Value) -> Result<()> {
    let segment = &listed.descriptor;
    let log = copies.open_log(segment).await?;
    if let Some(compacted) = listed.compacted.as_ref().filter(|_| !log.is_sealed()) {
        tell_epochs(copies, &log, compacted)?;
    }
    let mut pages = Pages::new(copies, segment, value.clone());
    while log.end_offset().0 < value.end.0 {
        let (from, batches) = pages.take(log.end_offset()).await?;
        if from.0 > log.end_offset().0 {
            let (leaving_out, failing) = (log.clone(), copies.clone());
            let skip = move || leaving_out.skip_to(from);
            copies
                .cluster()
                .tasks()
                .blocking(move || skip().map_err(|error| failing.bucket().error("a copy", error)))
                .await?;
        }
        let bytes = batches.iter().map(Bytes::len).sum::<usize>() as u64;
        copies.cluster().metrics().copied_bytes.inc_by(bytes);
        let (writing, end) = (log.clone(), value.end.0);
        let failed = copies.clone();
        copies.cluster().tasks().blocking(move || append_copied(&failed, &writing, &batches, end)).await?;
        let pace = copies.cluster().routing().metadata.config.copies_bytes_per_second();
        copies.table().breathe(bytes, pace).await;
    }
    let sealed = codec::encode_seal(value);
    let (sealing, digest, named) = (copies.clone(), value.digest, log.name().to_owned());
    copies
        .cluster().tasks().blocking(move || {
            let failed = |error| sealing.bucket().error(&named, error);
            log.commit().map_err(failed)?;
            if log.digest() != digest.0 {
                // Whoever sent these bytes sent others than were decided.
                tracing::error!(alarm = "copy_diverged", log = %named, "a copy that was made has another digest");
                sealing.cluster().metrics().alarms.inc();
                sealing.bucket().store().delete_log(log.id()).map_err(failed)?;
                return Err(Error::Internal { message: format!("{named} was copied with another digest") });
            }
            log.seal(&sealed).map(drop).map_err(failed)
        })
        .await?;
    copies.table().revived(segment)
}

/// Tells a log under which epochs its batches were written, where several segments' are in it.
pub(crate) fn tell_epochs(copies: &Copies, log: &Log, compacted: &Compacted) -> Result<()> {
    let runs: Vec<(Offset, Epoch)> =
        compacted.epochs.iter().map(|start| (start.first_offset, start.epoch)).collect();
    log.set_epochs(&runs).map_err(|error| copies.bucket().error(log.name(), error))
}

fn append_copied(copies: &Arc<Copies>, log: &walrus_log::Log, batches: &[Bytes], end: u64) -> Result<()> {
    let failed = |error| copies.bucket().error(log.name(), error);
    for bytes in batches {
        let invalid = |problem: String| Error::InvalidBatch { problem };
        let (batch, _) = Batch::parse(bytes).map_err(|problem| invalid(problem.to_string()))?;
        let next = log.end_offset().0;
        if batch.base_offset() < next {
            continue; // it holds what is here already
        }
        if next == end {
            break; // a source that is not sealed yet has more than was decided
        }
        if batch.base_offset() > next || batch.end_offset() > end {
            return Err(invalid(format!("{} at {next}, end {end}", batch.base_offset())));
        }
        let appended = log.append_copied(&batch).map_err(failed)?;
        if appended.base_offset.0 != next {
            return Err(invalid(format!("a batch for {next} went to {}", appended.base_offset)));
        }
    }
    log.commit().map_err(failed)
}
