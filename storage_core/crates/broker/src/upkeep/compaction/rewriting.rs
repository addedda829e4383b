//! Neighbouring segments are written again as one: into a log that nobody knows, which is offered to the metadata when it is whole
//! and durable. Other nodes make copies of that log, and once a quorum of disks has one it takes the place of the segments.

use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;
use walrus_log::batch::Batch;
use walrus_log::{KeyMap, Log, Sieve, SieveRules};
use walrus_metadata::{
    CompactionOffer, Contents, Partition, PartitionPlace, Replacement, Request, Segment,
    disks_for_replacement, replacement,
};
use walrus_model::{Digest, LeaderRef, NodeId, Offset, ReplicaRef, SegmentId};

use super::source::{Next, Source};
use super::summary::Stay;
use crate::copies::scratch::Stage;
use crate::copies::{Copies, codec, sealing};
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;

/// About how much is written before it is made durable.
const COMMIT_BYTES: u64 = 8 << 20;

/// One run of segments that are to be written again.
pub(super) struct Rewriting<'a> {
    pub(super) source: &'a Source,
    pub(super) place: PartitionPlace,
    pub(super) run: &'a [Segment],
    pub(super) keys: &'a KeyMap,
    pub(super) rules: SieveRules,
}

impl Rewriting<'_> {
    fn copies(&self) -> &Arc<Copies> {
        self.source.copies()
    }

    /// Writes the run again as one segment, unless it is one from which nothing goes; answers which one is there then.
    pub(super) fn run(&self, all: &mut Stay) -> Result<SegmentId> {
        if let [_] = self.run
            && let Some(stays) = self.all_of_one()?
        {
            all.add(&stays);
            return Ok(self.run[0].descriptor.id);
        }
        let disks = self.disks()?;
        let id = SegmentId(Uuid::new_v4());
        let written = self.write(id);
        let (log, new, stays) = written.inspect_err(|_| self.delete(id))?;
        let offer = CompactionOffer {
            segment: id,
            compactor: self.compactor(),
            first_number: self.run[0].first_number(),
            last_number: self.run[self.run.len() - 1].descriptor.number,
            digest: new.value.digest,
            contents: Contents { bytes: log.size_bytes(), newest_ms: log.newest_timestamp() },
            copies: disks,
        };
        self.offer(offer)?;
        all.add(&stays);
        Ok(id)
    }

    /// What stays of a single segment from which nothing goes; `None` if something does.
    fn all_of_one(&self) -> Result<Option<Stay>> {
        let segment = &self.run[0];
        let base = segment.descriptor.base_offset.unwrap_or(Offset(0));
        let mut sieve = Sieve::new(self.keys, base, self.rules);
        let mut out = Vec::new();
        self.source.each_batch(segment, base, |batch| {
            sieve.batch(batch, &mut out);
            out.clear();
            Ok(if sieve.sieved().records_gone > 0 { Next::Nothing } else { Next::Batch })
        })?;
        Ok((sieve.sieved().records_gone == 0).then(|| Stay::of(&sieve)))
    }

    /// Writes what stays into a new log, durably, and seals it.
    fn write(&self, id: SegmentId) -> Result<(Log, Replacement, Stay)> {
        let unlike = || Error::Internal { message: format!("segments of {id} cannot be replaced") };
        let described = |digest| replacement(self.run, id, self.compactor(), digest).ok_or_else(unlike);
        let Replacement { descriptor, value, compacted } = described(Digest::default())?;
        let log = self.source.copies().tasks().runtime().block_on(self.copies().make_scratch(&descriptor))?;
        let failed = |error| self.copies().bucket().error(log.name(), error);
        sealing::tell_epochs(self.copies(), &log, &compacted)?;
        let base = descriptor.base_offset.unwrap_or(Offset(0));
        let mut sieve = Sieve::new(self.keys, base, self.rules);
        let (mut out, mut unsynced) = (Vec::new(), 0);
        for segment in self.run {
            let from = segment.descriptor.base_offset.unwrap_or(base);
            self.source.each_batch(segment, from, |batch| {
                sieve.batch(batch, &mut out);
                unsynced += out.len() as u64;
                self.source.note_written(out.len() as u64);
                append_all(&log, &mut out).map_err(failed)?;
                if unsynced >= COMMIT_BYTES {
                    log.commit().map_err(failed)?;
                    unsynced = 0;
                }
                Ok(Next::Batch)
            })?;
        }
        sieve.finish(value.end, &mut out);
        append_all(&log, &mut out).map_err(failed)?;
        log.commit().map_err(failed)?;
        let new = described(Digest(log.digest()))?;
        log.seal(&codec::encode_seal(&new.value)).map_err(failed)?;
        Ok((log, new, Stay::of(&sieve)))
    }

    /// Offers a candidate, and waits until it has its place.
    fn offer(&self, offer: CompactionOffer) -> Result<()> {
        let id = offer.segment;
        let scratch = self.copies().table().scratch();
        let failed = |error| self.copies().bucket().error("the note of a log", error);
        scratch.note(id, Stage::Offered).map_err(failed)?;
        let runtime = self.copies().tasks().runtime();
        let request = Request::OfferCompaction { place: self.place, offer };
        let asked = self.copies().cluster().control().ask(&request, patience::METADATA_ANSWER);
        if let Err(error) = runtime.block_on(asked) {
            // Whether it is listed after all shows when the next pass begins; the log goes then if it is not.
            return Err(Obstacle::RequestFailed { error: Box::new(error) }.into());
        }
        let shutdown = self.copies().tasks().shutdown();
        let verdict = runtime.block_on(shutdown.run_until_cancelled(self.await_place(id)));
        match verdict {
            Some(true) => scratch.forget(id).map_err(failed),
            Some(false) => {
                Err(Error::Internal { message: format!("segment {id} has not taken the place of others") })
            }
            None => Err(Obstacle::Stopping.into()),
        }
    }

    /// Waits until a candidate has its place (true), was given up, or has waited for too long.
    async fn await_place(&self, id: SegmentId) -> bool {
        let until = Instant::now() + patience::CANDIDATE_VERIFIED;
        let mut versions = self.copies().cluster().watch_metadata();
        let mut was_listed = false;
        while Instant::now() < until {
            versions.mark_unchanged();
            let metadata = self.copies().cluster().routing().metadata.clone();
            let topic = metadata.topics.get(&self.place.topic);
            let Some(partition) = topic.and_then(|topic| topic.partitions.get(self.place.partition as usize))
            else {
                return false;
            };
            if partition.segments.iter().any(|listed| listed.descriptor.id == id) {
                return true;
            }
            let is_candidate = is_candidate(partition, id);
            if was_listed && !is_candidate {
                return false;
            }
            was_listed |= is_candidate;
            drop(tokio::time::timeout(patience::UPKEEP_LOOK, versions.changed()).await);
        }
        false
    }

    fn delete(&self, id: SegmentId) {
        if let Err(error) = self.copies().table().scratch().delete(id) {
            tracing::warn!(segment = %id, %error, "what a compaction wrote in vain is still there");
        }
    }

    fn compactor(&self) -> LeaderRef {
        let config = self.copies().cluster().config();
        LeaderRef { node: NodeId(config.node_id), process: config.process }
    }

    /// The disks that are to have copies of the new segment; an error where too few nodes are there.
    fn disks(&self) -> Result<Vec<ReplicaRef>> {
        let metadata = self.copies().cluster().routing().metadata.clone();
        let present = self.copies().cluster().answering(&metadata);
        let disks =
            disks_for_replacement(&metadata, &present, self.place, self.run, self.copies().table().replica());
        let needed = self.run.iter().map(|segment| segment.descriptor.write_quorum).max().unwrap_or(1);
        if disks.len() < needed as usize {
            return Err(Obstacle::TooFewForCopies { there: disks.len(), needed }.into());
        }
        Ok(disks)
    }
}

fn is_candidate(partition: &Partition, id: SegmentId) -> bool {
    partition.compaction.candidate.as_ref().is_some_and(|candidate| candidate.descriptor.id == id)
}

/// Appends the batches of `out`, which is empty afterwards.
fn append_all(log: &Log, out: &mut Vec<u8>) -> walrus_log::Result<()> {
    let mut rest = &out[..];
    while !rest.is_empty() {
        let (batch, behind) = Batch::parse(rest)?;
        log.append_copied(&batch)?;
        rest = behind;
    }
    out.clear();
    Ok(())
}
