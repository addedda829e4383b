//! Bringing this node's copies to where the decisions are: what is missing is fetched from others, what lies behind the end
//! goes, the digest must be right, and metadata is told. Replicas learn decisions from the metadata, so a copy that was
//! away, or is new, comes to its end in the same way as one that was there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use walrus_metadata::{
    Contents, CopyReport, CopyState, Found, Request, Segment, SegmentCopy, SegmentPlace, SegmentState,
};
use walrus_model::{Digest, Offset, SegmentId};

use crate::cluster::segment::{label, log_id};
use crate::copies::Copies;
use crate::copies::holdings::{HeldCopy, partition_of, segment_of};
use crate::copies::holes;
use crate::copies::sealing;
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::upkeep::giving_up::GivingUp;
use crate::upkeep::retiring;

/// Limit on the copies that are completed at the same time.
const AT_ONCE: usize = 4;
/// Limit on what one look finds to tell.
const REPORTS_MAX: usize = 512;

/// Completes this node's copies until the node stops.
pub(crate) async fn keep_up(copies: Arc<Copies>) {
    let shutdown = copies.cluster().tasks().shutdown().clone();
    let (finished, mut completed) = mpsc::unbounded_channel();
    let mut work = Work::default();
    loop {
        let mut version = copies.cluster().watch_metadata();
        version.mark_unchanged();
        let found = work.look(&copies, &finished).await;
        if !found.report(&copies).await
            && shutdown.run_until_cancelled(tokio::time::sleep(patience::COPY_RETRY)).await.is_none()
        {
            return;
        }
        let next = async {
            tokio::select! {
                _ = version.changed() => {}
                ended = completed.recv() => if let Some(ended) = ended { work.note_completion(ended) },
                () = tokio::time::sleep(patience::UPKEEP_LOOK) => {}
            }
        };
        if shutdown.run_until_cancelled(next).await.is_none() {
            return;
        }
        while let Ok(ended) = completed.try_recv() {
            work.note_completion(ended);
        }
    }
}

/// What the metadata are told of the copies here.
#[derive(Default)]
struct Findings {
    reports: Vec<CopyReport>,
    /// Segments that took the place of others, which this disk remembers from now on.
    noted: Vec<SegmentPlace>,
}

/// How the work on a copy ended.
struct Completion {
    segment: SegmentId,
    outcome: Outcome,
}

/// What became of a copy that was worked on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Whole,
    NotYet,
    /// Nobody has what is missing, and it was not listed so.
    Lost,
}

/// The work on copies: what is under way, and what came of it.
#[derive(Default)]
struct Work {
    under_way: HashSet<SegmentId>,
    /// When the work on a copy last failed; it is tried again after a while.
    failed: HashMap<SegmentId, Instant>,
    /// Nobody has what is missing of them; the metadata are to be told.
    lost: HashSet<SegmentId>,
}

impl Work {
    /// Begins what is to be done, and answers what can be told at once.
    async fn look(&mut self, copies: &Arc<Copies>, finished: &mpsc::UnboundedSender<Completion>) -> Findings {
        self.failed.retain(|_, at| at.elapsed() < patience::LOST_COPIES_LOOK);
        let metadata = copies.cluster().routing().metadata.clone();
        let pending = copies.table().follow(&metadata);
        let mut findings = Findings::default();
        let leaving =
            pending.iter().filter(|held| held.state == CopyState::Leaving && !self.has_failed(held));
        let giving_up = GivingUp::ask(copies, &metadata, leaving).await;
        for held in pending {
            let is_busy = self.under_way.contains(&held.segment) || self.has_failed(&held);
            if is_busy || findings.len() == REPORTS_MAX {
                continue;
            }
            let whole = digest_here(copies, held.segment);
            let found = match (held.state, whole) {
                // A copy that is counted is the metadata's, whatever they may forget.
                (CopyState::Filling | CopyState::Lost, Some(digest)) => {
                    match copies.table().scratch().forget(held.segment) {
                        Ok(()) => Some(Found::Whole { digest: Digest(digest) }),
                        Err(error) => {
                            tracing::warn!(segment = %held.segment, %error, "a copy is not reported yet");
                            None
                        }
                    }
                }
                (CopyState::Filling, None) if self.lost.remove(&held.segment) => Some(Found::Lost),
                (CopyState::Filling | CopyState::Lost, None) => {
                    if self.under_way.len() < AT_ONCE
                        && let Some(segment) = segment_of(&metadata, &held)
                    {
                        self.begin(copies, segment, finished.clone());
                    }
                    None
                }
                (CopyState::Verified, Some(digest)) if held.wants_contents => {
                    Some(Found::Whole { digest: Digest(digest) })
                }
                (CopyState::Verified, Some(_)) if held.wants_note => {
                    findings.noted.extend(note(copies, &metadata, &held));
                    None
                }
                (CopyState::Verified, Some(_)) => {
                    copies.table().mark_found(&held);
                    None
                }
                (CopyState::Verified, None) if self.is_to_be_sealed_again(copies, &held) => {
                    if let Some(segment) = segment_of(&metadata, &held) {
                        self.begin(copies, segment, finished.clone());
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
                (CopyState::Leaving, _) if !giving_up.may_go(held.segment) => {
                    tracing::info!(
                        segment = %held.segment,
                        "a copy that was given up stays until enough others answer for theirs"
                    );
                    self.failed.insert(held.segment, Instant::now());
                    None
                }
                (CopyState::Leaving, _) => self.leave(copies, &metadata, &held).await,
            };
            let knows = metadata.knows_retention();
            findings.reports.extend(
                found.map(|found| copy_report(&held, found, contents_here(copies, &held, found, knows))),
            );
        }
        let (filling, damaged) = copies.table().unfinished();
        copies.cluster().metrics().copies_filling.set(i64::try_from(filling).unwrap_or(i64::MAX));
        copies.cluster().metrics().copies_damaged.set(i64::try_from(damaged).unwrap_or(i64::MAX));
        findings
    }

    /// Whether the work on a copy failed a moment ago.
    fn has_failed(&self, held: &HeldCopy) -> bool {
        let patience =
            if held.state == CopyState::Lost { patience::LOST_COPIES_LOOK } else { patience::COPY_RETRY };
        self.failed.get(&held.segment).is_some_and(|at| at.elapsed() < patience)
    }

    /// Whether the seal of a copy is all that is missing: the journal of the only node's store lost its end.
    fn is_to_be_sealed_again(&self, copies: &Arc<Copies>, held: &HeldCopy) -> bool {
        let store = copies.bucket().store();
        self.under_way.len() < AT_ONCE
            && store.has_lost_promises()
            && store.log(walrus_log::LogId(held.segment.0)).is_some_and(|log| !log.is_sealed())
    }

    fn begin(&mut self, copies: &Arc<Copies>, segment: Segment, finished: mpsc::UnboundedSender<Completion>) {
        let uuid = segment.descriptor.id;
        self.under_way.insert(uuid);
        let filling = copies.clone();
        copies.cluster().tasks().spawn("catch-up", async move {
            let shutdown = filling.cluster().tasks().shutdown().clone();
            let filled = shutdown.run_until_cancelled(fill(&filling, &segment)).await;
            if let Some(Err(error)) = &filled {
                tracing::info!(segment = %uuid, %error, "the copy is not whole yet");
            }
            let outcome = match filled {
                Some(Ok(())) => Outcome::Whole,
                Some(Err(_)) if is_lost(&filling, &segment).await => Outcome::Lost,
                _ => Outcome::NotYet,
            };
            drop(finished.send(Completion { segment: uuid, outcome })); // the loop may have ended
        });
    }

    fn note_completion(&mut self, ended: Completion) {
        self.under_way.remove(&ended.segment);
        match ended.outcome {
            Outcome::Whole => {}
            Outcome::NotYet => drop(self.failed.insert(ended.segment, Instant::now())),
            Outcome::Lost => drop(self.lost.insert(ended.segment)),
        }
    }

    /// Deletes a copy that metadata has given up.
    async fn leave(
        &mut self,
        copies: &Arc<Copies>,
        metadata: &walrus_metadata::Metadata,
        held: &HeldCopy,
    ) -> Option<Found> {
        let segment = segment_of(metadata, held)?;
        let partition = partition_of(metadata, held)?;
        if copies.table().replacements().is_forgotten((held.topic, held.partition), partition, held.segment) {
            return None; // it took the place of others, and the metadata are told so again
        }
        if partition.holder_of_place(&segment).is_some_and(|holder| !metadata.holds_its_place(holder)) {
            return None;
        }
        let (uuid, leaving) = (held.segment, copies.clone());
        let leave = move || retiring::leave(&leaving, &segment);
        match copies.cluster().tasks().blocking(leave).await {
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
}

impl Findings {
    fn len(&self) -> usize {
        self.reports.len() + self.noted.len()
    }

    /// Tells the metadata; says whether they have taken it.
    async fn report(self, copies: &Arc<Copies>) -> bool {
        let (control, replica) = (copies.cluster().control(), copies.table().replica());
        let lost: Vec<CopyReport> =
            self.reports.iter().filter(|report| report.found == Found::Lost).copied().collect();
        let count = self.len();
        let Self { reports, noted } = self;
        let states = (!reports.is_empty()).then_some(Request::ReportCopies { replica, reports });
        let notes = (!noted.is_empty()).then_some(Request::ReportBegun { replica, segments: noted });
        for request in states.iter().chain(&notes) {
            if let Err(refusal) = control.ask(request, patience::METADATA_ANSWER).await {
                tracing::info!(?refusal, count, "metadata does not know the state of some copies yet");
                return false;
            }
        }
        lost.iter().for_each(|report| tell_loss(copies, report));
        true
    }
}

/// Remembers on this disk that a listed segment took the place of others.
fn note(copies: &Arc<Copies>, metadata: &walrus_metadata::Metadata, held: &HeldCopy) -> Option<SegmentPlace> {
    let (topic, partition, segment) = (held.topic, held.partition, held.segment);
    match copies.table().replacements().remember(&segment_of(metadata, held)?) {
        Ok(()) => Some(SegmentPlace { topic, partition, segment }),
        Err(error) => {
            tracing::warn!(%segment, %error, "what it took the place of stays: this disk cannot remember it");
            None
        }
    }
}

pub(crate) fn copy_report(held: &HeldCopy, found: Found, contents: Option<Contents>) -> CopyReport {
    let HeldCopy { topic, partition, segment, since, .. } = *held;
    CopyReport { topic, partition, segment, since, found, contents }
}

/// What the own copy holds, where it is whole and the metadata `know` what to do with that.
fn contents_here(copies: &Arc<Copies>, held: &HeldCopy, found: Found, know: bool) -> Option<Contents> {
    let log = copies.bucket().log(walrus_log::LogId(held.segment.0))?;
    let is_told = know && matches!(found, Found::Whole { .. });
    is_told.then(|| Contents { bytes: log.size_bytes(), newest_ms: log.newest_timestamp() })
}

/// The digest of the own copy, if it is sealed.
fn digest_here(copies: &Arc<Copies>, segment: SegmentId) -> Option<u64> {
    Some(copies.bucket().log(walrus_log::LogId(segment.0))?.sealed()?.digest)
}

/// Whether nobody has what the own copy of a segment lacks, and nobody has said so yet: each node of the cluster was asked, and
/// each has answered. A silent one may come back with a log.
async fn is_lost(copies: &Arc<Copies>, segment: &Segment) -> bool {
    let metadata = copies.cluster().routing().metadata.clone();
    let SegmentState::Sealed(value) = &segment.state else { return false };
    let own = copies.table().replica();
    let is_source = |copy: &SegmentCopy| match copy.state {
        CopyState::Verified | CopyState::Damaged => !metadata.gone_disks.contains(&copy.replica.disk),
        CopyState::Lost => copy.replica == own,
        CopyState::Filling | CopyState::Leaving => false,
    };
    if !metadata.hears_of_losses() || segment.copies.iter().any(is_source) {
        return false;
    }
    let from = own_end(copies, segment);
    if from >= value.end {
        return false; // it has all, and is damaged
    }
    for node in metadata.nodes.keys() {
        match copies.fetch(segment.descriptor.id, node.0, from).await {
            Ok(batches) if batches.is_empty() => {}
            Err(Error::UnknownSegment { .. }) => {}
            Err(Error::OffsetOutOfRange { end, .. }) if end <= from.0 => {}
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

/// Raises the alarm for lost records, unless another holder has.
fn tell_loss(copies: &Arc<Copies>, report: &CopyReport) {
    let (routing, own) = (copies.cluster().routing(), copies.table().replica());
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
    copies.cluster().metrics().lost_ranges.inc();
    copies.cluster().metrics().alarms.inc();
    tracing::error!(
        alarm = "lost_segment", log = label(&route.path, &segment.descriptor), segment = %report.segment,
        start = segment.descriptor.base_offset.map_or(0, |base| base.0), end = value.end.0,
        left_to = own_end(copies, segment).0,
        "every disk that had all of these records is gone, and no node has the rest: readers get DataLoss"
    );
}

/// How far the own copy goes.
fn own_end(copies: &Arc<Copies>, segment: &Segment) -> Offset {
    let base = segment.descriptor.base_offset.map_or(0, |base| base.0);
    copies.bucket().log(log_id(&segment.descriptor)).map_or(Offset(base), |log| log.end_offset())
}

/// Completes the own copy of a sealed segment.
async fn fill(copies: &Arc<Copies>, segment: &Segment) -> Result<()> {
    let SegmentState::Sealed(value) = &segment.state else {
        return Err(Error::Internal { message: format!("{} is not sealed", segment.descriptor.id) });
    };
    let descriptor = &segment.descriptor;
    let votes = copies.table().place(descriptor).is_some() && !copies.table().is_buried(descriptor)?;
    if !votes {
        sealing::make_copy(copies, segment, value).await?;
    } else if let Err(error) = sealing::seal_here(copies, descriptor, value).await {
        // The holes are filled from the other copies. A copy in which that is not possible is made anew, as long as enough others
        // are whole.
        let copy = copies.table().open(descriptor)?;
        if holes::fill(copies, &copy).await? {
            return Err(error);
        }
        let is_verified = |copy: &&SegmentCopy| copy.state == CopyState::Verified;
        if segment.copies.iter().filter(is_verified).count() < descriptor.write_quorum as usize {
            return Err(error);
        }
        tracing::warn!(segment = %descriptor.id, %error, "the damaged copy is given up and made anew");
        let (burying, decided) = (copy, value.clone());
        copies.cluster().tasks().blocking(move || burying.bury(decided)).await?;
        sealing::make_copy(copies, segment, value).await?;
    }
    tracing::debug!(segment = %descriptor.id, end = value.end.0, "the copy is whole and sealed");
    Ok(())
}
