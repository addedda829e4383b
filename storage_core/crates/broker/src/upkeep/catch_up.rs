//! Bringing this node's copies to where the decisions are: what is missing is fetched from others, what lies behind the end
//! goes, the digest must be right, and metadata is told. Replicas learn decisions from the metadata, so a copy that was
//! away, or is new, comes to its end in the same way as one that was there.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use walrus_log::ProducerTable;
use walrus_log::batch::Batch;
use walrus_metadata::{CopyReport, CopyState, Found, Segment, SegmentCopy, SegmentState};
use walrus_model::{Descriptor, Digest, Offset, SegmentId, Value};

use crate::broker::Broker;
use crate::cluster::control::Event;
use crate::cluster::segment::{label, log_id};
use crate::copies::holdings::{Held, segment_of};
use crate::copies::holes;
use crate::copies::pages::Pages;
use crate::copies::wire;
use crate::ending::recovery;
use crate::node::error::{Error, Result};
use crate::upkeep::retiring;

/// Where nothing tells to look earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A copy that could not be completed waits so long, and so does a report that was not taken.
const RETRY: Duration = Duration::from_secs(1);
/// Copies that are completed at the same time.
const AT_ONCE: usize = 4;
/// Reports in one command.
const REPORTS_MAX: usize = 512;
/// For one answer of the metadata store.
const CONTROL_PATIENCE: Duration = Duration::from_secs(5);

/// Until the node stops.
pub(crate) async fn keep_up(broker: Broker) {
    let shutdown = broker.shutdown_signal().clone();
    let (finished, mut completed) = mpsc::unbounded_channel();
    let mut work = Work::default();
    loop {
        let mut version = broker.watch_metadata();
        version.mark_unchanged();
        let reports = work.look(&broker, &finished).await;
        if !reports.is_empty()
            && !work.report(&broker, reports).await
            && shutdown.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none()
        {
            return;
        }
        let next = async {
            tokio::select! {
                _ = version.changed() => {}
                ended = completed.recv() => if let Some(ended) = ended { work.ended(ended) },
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        };
        if shutdown.run_until_cancelled(next).await.is_none() {
            return;
        }
        while let Ok(ended) = completed.try_recv() {
            work.ended(ended);
        }
    }
}

/// What is lost is looked for again after so long.
const LOOK_FOR_LOST: Duration = Duration::from_secs(30);

/// A copy was completed, or not.
struct Ended {
    segment: SegmentId,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Whole,
    NotYet,
    /// Nobody has what is missing, and it was not listed so.
    Lost,
}

#[derive(Default)]
struct Work {
    under_way: HashSet<SegmentId>,
    failed: HashMap<SegmentId, Instant>,
    /// Nobody has what is missing of them; the metadata are to be told.
    lost: HashSet<SegmentId>,
}

impl Work {
    /// Begins what is to be done, and answers what can be told at once.
    async fn look(&mut self, broker: &Broker, finished: &mpsc::UnboundedSender<Ended>) -> Vec<CopyReport> {
        self.failed.retain(|_, at| at.elapsed() < LOOK_FOR_LOST);
        let metadata = broker.routing().metadata.clone();
        let unsettled = broker.copies().follow(&metadata);
        let mut reports = Vec::new();
        for held in unsettled {
            let patience = if held.state == CopyState::Lost { LOOK_FOR_LOST } else { RETRY };
            let failed = self.failed.get(&held.segment).is_some_and(|at| at.elapsed() < patience);
            let is_busy = self.under_way.contains(&held.segment) || failed;
            if is_busy || reports.len() == REPORTS_MAX {
                continue;
            }
            let whole = digest_here(broker, held.segment);
            let found = match (held.state, whole) {
                (CopyState::Filling | CopyState::Lost, Some(digest)) => {
                    Some(Found::Whole { digest: Digest(digest) })
                }
                (CopyState::Filling, None) if self.lost.remove(&held.segment) => Some(Found::Lost),
                (CopyState::Filling | CopyState::Lost, None) => {
                    if self.under_way.len() < AT_ONCE
                        && let Some(segment) = segment_of(&metadata, &held)
                    {
                        self.begin(broker, segment, finished.clone());
                    }
                    None
                }
                (CopyState::Verified, Some(_)) => {
                    broker.copies().settle(&held);
                    None
                }
                (CopyState::Verified, None) if self.is_to_be_sealed_again(broker, &held) => {
                    if let Some(segment) = segment_of(&metadata, &held) {
                        self.begin(broker, segment, finished.clone());
                    }
                    None
                }
                (CopyState::Verified, None) => {
                    tracing::warn!(segment = %held.segment, "a copy that metadata lists as verified is not here");
                    Some(Found::Gone)
                }
                // Mending is the repair's business.
                (CopyState::Damaged, Some(_)) => None,
                (CopyState::Damaged, None) => Some(Found::Gone),
                (CopyState::Leaving, _) => self.leave(broker, &metadata, &held).await,
            };
            reports.extend(found.map(|found| report(&held, found)));
        }
        let (filling, damaged) = broker.copies().unfinished();
        broker.metrics().copies_filling.set(i64::try_from(filling).unwrap_or(i64::MAX));
        broker.metrics().copies_damaged.set(i64::try_from(damaged).unwrap_or(i64::MAX));
        reports
    }

    /// Whether the seal of a copy is all that is missing: the journal of the only node's store lost its end.
    fn is_to_be_sealed_again(&self, broker: &Broker, held: &Held) -> bool {
        let store = broker.bucket().store();
        self.under_way.len() < AT_ONCE
            && store.has_lost_promises()
            && store.log(walrus_log::LogId(held.segment.0)).is_some_and(|log| !log.is_sealed())
    }

    fn begin(&mut self, broker: &Broker, segment: Segment, finished: mpsc::UnboundedSender<Ended>) {
        let uuid = segment.descriptor.id;
        self.under_way.insert(uuid);
        let filling = broker.clone();
        broker.spawn("catch-up", async move {
            let shutdown = filling.shutdown_signal().clone();
            let filled = shutdown.run_until_cancelled(fill(&filling, &segment)).await;
            if let Some(Err(error)) = &filled {
                tracing::info!(segment = %uuid, %error, "the copy is not whole yet");
            }
            let outcome = match filled {
                Some(Ok(())) => Outcome::Whole,
                Some(Err(_)) if is_lost(&filling, &segment).await => Outcome::Lost,
                _ => Outcome::NotYet,
            };
            drop(finished.send(Ended { segment: uuid, outcome })); // the loop may have ended
        });
    }

    fn ended(&mut self, ended: Ended) {
        self.under_way.remove(&ended.segment);
        match ended.outcome {
            Outcome::Whole => {}
            Outcome::NotYet => drop(self.failed.insert(ended.segment, Instant::now())),
            Outcome::Lost => drop(self.lost.insert(ended.segment)),
        }
    }

    /// Metadata has given the copy up: it is deleted.
    async fn leave(
        &mut self,
        broker: &Broker,
        metadata: &walrus_metadata::Metadata,
        held: &Held,
    ) -> Option<Found> {
        let segment = segment_of(metadata, held)?;
        let (uuid, leaving) = (held.segment, broker.clone());
        match broker.blocking(move || retiring::leave(&leaving, &segment)).await {
            Ok(()) => {
                tracing::info!(segment = %uuid, "the copy is given up and deleted: metadata says so");
                Some(Found::Gone)
            }
            Err(error) => {
                tracing::warn!(segment = %uuid, %error, "a copy that was given up is still there");
                self.failed.insert(uuid, Instant::now());
                None
            }
        }
    }

    /// False: metadata has not taken them.
    async fn report(&self, broker: &Broker, reports: Vec<CopyReport>) -> bool {
        let count = reports.len();
        let is_lost = |report: &&CopyReport| report.found == Found::Lost;
        let lost: Vec<CopyReport> = reports.iter().filter(is_lost).copied().collect();
        let event = Event::ReportCopies { replica: broker.copies().replica(), reports };
        match broker.control().ask(&event, CONTROL_PATIENCE).await {
            Ok(_) => {
                lost.iter().for_each(|report| tell_loss(broker, report));
                true
            }
            Err(refusal) => {
                tracing::info!(?refusal, count, "metadata does not know the state of some copies yet");
                false
            }
        }
    }
}

pub(crate) fn report(held: &Held, found: Found) -> CopyReport {
    let Held { topic, partition, segment, since, .. } = *held;
    CopyReport { topic, partition, segment, since, found }
}

/// The digest of the own copy, if it is sealed.
fn digest_here(broker: &Broker, segment: SegmentId) -> Option<u64> {
    Some(broker.bucket().log(walrus_log::LogId(segment.0))?.sealed()?.digest)
}

/// Whether nobody has what the own copy of a segment lacks, and nobody has said so yet: each node of the cluster was asked, and
/// each has answered. A silent one may come back with a log.
async fn is_lost(broker: &Broker, segment: &Segment) -> bool {
    let metadata = broker.routing().metadata.clone();
    let SegmentState::Sealed(value) = &segment.state else { return false };
    let own = broker.copies().replica();
    let is_source = |copy: &SegmentCopy| match copy.state {
        CopyState::Verified | CopyState::Damaged => !metadata.gone_disks.contains(&copy.replica.disk),
        CopyState::Lost => copy.replica == own,
        CopyState::Filling | CopyState::Leaving => false,
    };
    if !metadata.hears_of_losses() || segment.copies.iter().any(is_source) {
        return false;
    }
    let from = own_end(broker, segment);
    if from >= value.end {
        return false; // it has all, and is damaged
    }
    for node in metadata.nodes.keys() {
        match recovery::fetch(broker, segment.descriptor.id, node.0, from).await {
            Ok(batches) if batches.is_empty() => {}
            Err(Error::UnknownSegment { .. }) => {}
            Err(Error::OffsetOutOfRange { end, .. }) if end <= from.0 => {}
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

/// Says what is lost, and where, unless another holder has.
fn tell_loss(broker: &Broker, report: &CopyReport) {
    let (routing, own) = (broker.routing(), broker.copies().replica());
    let Some(route) = routing.topic(report.topic) else { return };
    let partition = route.topic.partitions.get(report.partition as usize);
    let listed = partition.and_then(|partition| {
        partition.segments.iter().find(|segment| segment.descriptor.id == report.segment)
    });
    let Some(segment) = listed else { return };
    let SegmentState::Sealed(value) = &segment.state else { return };
    if segment.copies.iter().any(|copy| copy.state == CopyState::Lost && copy.replica != own) {
        return;
    }
    broker.metrics().lost_ranges.inc();
    broker.metrics().alarms.inc();
    tracing::error!(
        alarm = "lost_segment", log = label(route.name.as_str(), &segment.descriptor), segment = %report.segment,
        start = segment.descriptor.base_offset.map_or(0, |base| base.0), end = value.end.0,
        left_to = own_end(broker, segment).0,
        "every disk that had all of these records is gone, and no node has the rest: readers get DataLoss"
    );
}

/// How far the own copy goes.
fn own_end(broker: &Broker, segment: &Segment) -> Offset {
    let base = segment.descriptor.base_offset.map_or(0, |base| base.0);
    broker.bucket().log(log_id(&segment.descriptor)).map_or(Offset(base), |log| log.end_offset())
}

/// Completes the own copy of a sealed segment.
async fn fill(broker: &Broker, segment: &Segment) -> Result<()> {
    let SegmentState::Sealed(value) = &segment.state else {
        return Err(Error::Internal { message: format!("{} is not sealed", segment.descriptor.id) });
    };
    let descriptor = &segment.descriptor;
    let votes = broker.copies().place(descriptor).is_some() && !broker.copies().is_buried(descriptor)?;
    if !votes {
        make_copy(broker, descriptor, value).await?;
    } else if let Err(error) = seal_here(broker, descriptor, value).await {
        // What rotted comes from the others; a copy in which it has no place any more is made anew, as long as enough
        // others are whole.
        let copy = broker.copies().open(descriptor)?;
        if holes::fill(broker, &copy).await? {
            return Err(error);
        }
        let is_verified = |copy: &&SegmentCopy| copy.state == CopyState::Verified;
        if segment.copies.iter().filter(is_verified).count() < descriptor.write_quorum as usize {
            return Err(error);
        }
        tracing::warn!(segment = %descriptor.id, %error, "the damaged copy is given up and made anew");
        let (burying, decided) = (copy, value.clone());
        broker.blocking(move || burying.bury(decided)).await?;
        make_copy(broker, descriptor, value).await?;
    }
    tracing::debug!(segment = %descriptor.id, end = value.end.0, "the copy is whole and sealed");
    Ok(())
}

/// Seals the own copy of a segment as decided, fetching what it lacks.
pub(crate) async fn seal_here(broker: &Broker, segment: &Descriptor, value: &Value) -> Result<()> {
    let copy = broker.copies().open(segment)?;
    let decided = value.clone();
    if copy.log().is_none() {
        make_log(broker, segment).await?;
    }
    let mut pages = Pages::new(broker, segment, decided.clone());
    let mut from = decided.end;
    let mut batches = Vec::new();
    loop {
        let (sealing, decided) = (copy.clone(), decided.clone());
        let lacks = broker.blocking(move || sealing.seal(decided, from, batches)).await?;
        let Some(end) = lacks else {
            return Ok(());
        };
        (from, batches) = pages.take(end).await?;
    }
}

/// Makes a copy on a disk that has no vote about the segment: a log with the decided bytes, and nothing else.
async fn make_copy(broker: &Broker, segment: &Descriptor, value: &Value) -> Result<()> {
    make_log(broker, segment).await?;
    let unknown = || Error::UnknownSegment { segment: segment.id.to_string() };
    let log = broker.bucket().log(log_id(segment)).ok_or_else(unknown)?;
    let mut pages = Pages::new(broker, segment, value.clone());
    while log.end_offset().0 < value.end.0 {
        let (from, batches) = pages.take(log.end_offset()).await?;
        if from.0 > log.end_offset().0 {
            let (leaving_out, failing) = (log.clone(), broker.clone());
            let skip = move || leaving_out.skip_to(from);
            broker.blocking(move || skip().map_err(|error| failing.bucket().error("a copy", error))).await?;
        }
        let bytes = batches.iter().map(Bytes::len).sum::<usize>() as u64;
        broker.metrics().copied_bytes.inc_by(bytes);
        let (writing, end) = (log.clone(), value.end.0);
        let failed = broker.clone();
        broker.blocking(move || append_copied(&failed, &writing, &batches, end)).await?;
        let pace = broker.routing().metadata.config.copies_bytes_per_second();
        broker.copies().breathe(bytes, pace).await;
    }
    let sealed = wire::encode_value(value);
    let (sealing, digest, named) = (broker.clone(), value.digest, log.name().to_owned());
    broker
        .blocking(move || {
            let failed = |error| sealing.bucket().error(&named, error);
            log.commit().map_err(failed)?;
            if log.digest() != digest.0 {
                // Whoever sent these bytes sent others than were decided.
                tracing::error!(alarm = "copy_diverged", log = %named, "a copy that was made has another digest");
                sealing.metrics().alarms.inc();
                sealing.bucket().store().delete_log(log.id()).map_err(failed)?;
                return Err(Error::Internal { message: format!("{named} was copied with another digest") });
            }
            log.seal(&sealed).map(drop).map_err(failed)
        })
        .await?;
    broker.copies().revived(segment)
}

fn append_copied(broker: &Broker, log: &walrus_log::Log, batches: &[Bytes], end: u64) -> Result<()> {
    let failed = |error| broker.bucket().error(log.name(), error);
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

/// The log of a copy, with the producers that were known at its base.
pub(crate) async fn make_log(broker: &Broker, segment: &Descriptor) -> Result<()> {
    let producers =
        if segment.number == 0 { ProducerTable::new() } else { broker.producers_at_base(segment).await? };
    broker.make_log(segment, producers).await.map(drop)
}
