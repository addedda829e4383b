//! Repair of copies that rot: all sealed ones are read now and then, slowly, and damage that is found, here or by a reader, is
//! mended from the other copies. What cannot be mended is told to the metadata, which has the copy made anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use walrus_log::batch::Batch;
use walrus_log::{Log, LogId};
use walrus_metadata::{CopyState, Found, Request, Segment, SegmentState};
use walrus_model::{Descriptor, Digest, Offset, SegmentId};
use walrus_replica::Mark;

use crate::copies::Copies;
use crate::copies::holdings::{HeldCopy, segment_of};
use crate::copies::marks::mark_batches;
use crate::copies::pace::Pace;
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::upkeep::catch_up;

/// About how much is read at once.
const READ_BYTES: usize = 1 << 20;

/// The state in which a copy was found.
enum Health {
    Whole(Digest),
    /// It differs from what was decided, or could not be mended.
    Damaged,
    /// It is not there any more.
    Away,
}

/// Reads all sealed copies, round after round, until the node stops.
pub(crate) async fn scrub(copies: Arc<Copies>) {
    let rounds = async {
        let mut pace = Pace::new();
        loop {
            let began = Instant::now();
            for held in copies.table().found_copies() {
                look_after(&copies, &held, Some(&mut pace)).await;
            }
            while began.elapsed() < interval(&copies) {
                tokio::time::sleep(patience::UPKEEP_LOOK.min(interval(&copies))).await;
            }
        }
    };
    copies.tasks().until_stopped(rounds).await;
}

fn interval(copies: &Arc<Copies>) -> Duration {
    Duration::from_millis(copies.cluster().routing().metadata.config.scrub_interval_ms())
}

/// Mends what readers found damaged and what is listed so, until the node stops.
pub(crate) async fn keep_whole(copies: Arc<Copies>) {
    let mending = async {
        loop {
            let (sealed, open) = copies.table().to_mend();
            for held in sealed {
                look_after(&copies, &held, None).await;
            }
            for segment in open {
                if let Err(error) = mend_open(&copies, segment).await {
                    tracing::warn!(%segment, %error, "a copy in use cannot be mended yet");
                }
            }
            drop(tokio::time::timeout(patience::REPAIR_RETRY, copies.table().await_damage()).await); // both ends are fine
        }
    };
    copies.tasks().until_stopped(mending).await;
}

/// Reads a copy, mends it, and tells the metadata if it is not what is listed.
async fn look_after(copies: &Arc<Copies>, held: &HeldCopy, pace: Option<&mut Pace>) {
    let health = match read_through(copies, held, pace).await {
        Ok(health) => health,
        Err(error) => {
            tracing::warn!(segment = %held.segment, %error, "a copy cannot be checked");
            return;
        }
    };
    let found = match (health, held.state) {
        (Health::Whole(digest), CopyState::Damaged) => Found::Whole { digest },
        (Health::Damaged, CopyState::Verified) => Found::Damaged,
        _ => return,
    };
    tracing::warn!(segment = %held.segment, ?found, "metadata is told about a copy");
    let reports = vec![catch_up::copy_report(held, found, None)];
    let request = Request::ReportCopies { replica: copies.table().replica(), reports };
    if let Err(refusal) = copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await {
        tracing::warn!(segment = %held.segment, ?refusal, "metadata was not told about a copy");
        copies.table().note_damage(held.segment);
    }
}

/// Reads a copy from end to end, at a pace if there is one, and mends what is damaged.
async fn read_through(copies: &Arc<Copies>, held: &HeldCopy, mut pace: Option<&mut Pace>) -> Result<Health> {
    let metadata = copies.cluster().routing().metadata.clone();
    let segment = segment_of(&metadata, held);
    let log = copies.bucket().log(LogId(held.segment.0));
    let (Some(segment), Some((log, sealed))) =
        (segment, log.and_then(|log| log.sealed().map(|sealed| (log, sealed))))
    else {
        return Ok(Health::Away);
    };
    let mut mark = Mark { end: log.base_offset(), digest: Digest::default() };
    let mut mended_at = None;
    while mark.end.0 < sealed.end.0 {
        let (reading, from) = (log.clone(), mark.end);
        let read = copies.cluster().tasks().blocking(move || Ok(reading.read(from, READ_BYTES))).await?;
        match read {
            Ok(slices) if slices.batches.is_empty() => return Ok(Health::Damaged),
            Ok(slices) => {
                let bytes = slices.batches.iter().map(Bytes::len).sum::<usize>() as u64;
                mark = mark_batches(mark, &slices.batches)?.last().map_or(mark, |last| last.mark());
                if let Some(pace) = pace.as_deref_mut() {
                    copies.cluster().metrics().scrubbed_bytes.inc_by(bytes);
                    let rate = copies.cluster().routing().metadata.config.scrub_bytes_per_second();
                    tokio::time::sleep(pace.take(Instant::now(), bytes, rate)).await;
                }
            }
            // No copy has this range: that was decided, and readers are told.
            Err(walrus_log::Error::Corrupted { end, .. }) if is_lost(&segment, mark.end) => {
                mark.end = end;
            }
            Err(walrus_log::Error::Corrupted { start, end, .. }) => {
                copies.cluster().metrics().damaged_ranges.inc();
                tracing::error!(
                    alarm = "damaged_copy", log = log.name(), segment = %held.segment, start = start.0, end = end.0,
                    "a sealed copy is damaged; it is served from others and mended"
                );
                // A disk that gives back something else than was written is not asked a third time.
                if mended_at.replace(start) == Some(start)
                    || !mend(copies, &segment.descriptor, &log, (start.0, end.0)).await
                {
                    return Ok(Health::Damaged);
                }
                copies.cluster().metrics().mended_ranges.inc();
                tracing::info!(segment = %held.segment, start = start.0, end = end.0, "the damage is mended");
            }
            // The segment was trimmed or deleted meanwhile.
            Err(walrus_log::Error::OffsetOutOfRange { .. } | walrus_log::Error::UnknownLog { .. }) => {
                return Ok(Health::Away);
            }
            Err(error) => return Err(copies.bucket().error(log.name(), error)),
        }
    }
    if mark.digest.0 == sealed.digest {
        return Ok(Health::Whole(mark.digest));
    }
    tracing::error!(
        alarm = "copy_diverged", segment = %held.segment, expected = sealed.digest, found = mark.digest.0,
        "a sealed copy has other bytes than were decided"
    );
    copies.cluster().metrics().alarms.inc();
    Ok(Health::Damaged)
}

/// Mends what rotted of an unsealed copy while it was in use. Its machine counts on the batches, which are there again
/// afterwards. What had rotted before the start is left to `upkeep/holes.rs`: of those holes the machine knows.
async fn mend_open(copies: &Arc<Copies>, segment: SegmentId) -> Result<()> {
    let Some(copy) = copies.table().find(segment)? else { return Ok(()) };
    let Some(log) = copy.log().filter(|log| !log.is_sealed()) else { return Ok(()) };
    let mut next = log.base_offset();
    while copies.table().holed().knows_as_whole(segment) {
        let (reading, from) = (log.clone(), next);
        match copies.cluster().tasks().blocking(move || Ok(reading.read(from, READ_BYTES))).await? {
            Ok(slices) if slices.next_offset > next => next = slices.next_offset,
            Ok(_) => break,
            Err(walrus_log::Error::Corrupted { start, end, .. }) if end > next => {
                copies.cluster().metrics().damaged_ranges.inc();
                tracing::error!(
                    alarm = "damaged_copy", log = log.name(), %segment, start = start.0, end = end.0,
                    "the copy of an open segment is damaged; it is mended from others"
                );
                if mend(copies, copy.descriptor(), &log, (start.0, end.0)).await {
                    copies.cluster().metrics().mended_ranges.inc();
                    tracing::info!(%segment, start = start.0, end = end.0, "the damage is mended");
                }
                next = end;
            }
            Err(error) => return Err(copies.bucket().error(log.name(), error)),
        }
    }
    Ok(())
}

fn is_lost(segment: &Segment, offset: Offset) -> bool {
    let SegmentState::Sealed(value) = &segment.state else { return false };
    value.lost.iter().any(|range| range.start.0 <= offset.0 && offset.0 < range.end.0)
}

/// Writes a damaged range again from the other copies. `false` if it cannot be had, or does not fit.
async fn mend(copies: &Arc<Copies>, segment: &Descriptor, log: &Log, (start, end): (u64, u64)) -> bool {
    let mended = async {
        let bytes = range_of_others(copies, segment, start, end).await?;
        let (mending, named, failed) = (log.clone(), log.name().to_owned(), copies.clone());
        let write = move || {
            let mended = mending.mend(Offset(start), &bytes);
            mended.map_err(|error| failed.bucket().error(&named, error))
        };
        copies.cluster().tasks().blocking(write).await
    };
    match mended.await {
        Ok(true) => true,
        Ok(false) => {
            tracing::warn!(log = log.name(), start, end, "the damage cannot be mended in its place");
            false
        }
        Err(error) => {
            tracing::warn!(log = log.name(), start, end, %error, "the damage is not mended yet");
            false
        }
    }
}

/// The batches of a range, each from whichever other copy has it sound.
async fn range_of_others(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    start: u64,
    end: u64,
) -> Result<Vec<u8>> {
    let invalid = |problem: String| Error::InvalidBatch { problem };
    let (mut next, mut bytes) = (start, Vec::new());
    while next < end {
        let before = next;
        for fetched in copies.fetch_from_any(segment, Offset(next)).await? {
            let (batch, _) = Batch::parse(&fetched).map_err(|problem| invalid(problem.to_string()))?;
            if batch.base_offset() != next || batch.end_offset() > end {
                break;
            }
            next = batch.end_offset();
            bytes.extend_from_slice(&fetched);
        }
        if next == before {
            return Err(invalid(format!("no batch of another copy begins at {next}")));
        }
    }
    Ok(bytes)
}
