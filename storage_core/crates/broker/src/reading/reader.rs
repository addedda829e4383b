//! Reads records: sealed segments from a node that stores them, the open one from its leader below the high watermark. A
//! long poll waits at the leader, as a future and not as a thread.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;
use walrus_log::batch::{Batch, BatchError, BatchHeader};
use walrus_log::{Log, LogId};
use walrus_metadata::{Segment, SegmentState};
use walrus_model::{Descriptor, SegmentId};

use crate::cluster::routing::{base_of, is_led_by, is_open, open_segment, segment_at};
use crate::cluster::segment::{label, uuid_bytes};
use crate::copies::copy::Readable;
use crate::node::budget::Purpose;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{Fetch, FetchAnswer};
use crate::peer::Request;
use crate::reading::Reading;
use crate::reading::failures::Failures;

/// Options of a read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// About how many bytes to answer; at least one batch is always answered.
    pub bytes_max: usize,
    /// Longest wait at the high watermark.
    pub wait: Duration,
    /// The only segment to read from; at its end the page is empty. `None` reads from whichever has the offset.
    pub segment: Option<SegmentId>,
    /// An empty page says that nothing is there as far as one node knows, and no other is asked whether that is so: whoever reads
    /// comes again.
    pub unconfirmed: bool,
}

/// What is asked of one copy of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// First offset that is wanted.
    pub(crate) offset: u64,
    /// See [`ReadOptions::bytes_max`].
    pub(crate) bytes_max: usize,
    /// See [`ReadOptions::wait`].
    pub(crate) wait: Duration,
    /// See [`ReadOptions::unconfirmed`].
    pub(crate) unconfirmed: bool,
}

/// Whole batches of one segment; the first contains the wanted offset. Empty at the high watermark.
#[derive(Clone, Debug)]
pub struct ReadPage {
    /// RecordBatches v2, as stored: each piece is one batch, or several one behind the other.
    pub pieces: Vec<Bytes>,
    /// Offset at which to go on.
    pub next_offset: u64,
    /// First offset not readable yet, as far as known; for a page from a sealed segment its end.
    pub high_watermark: u64,
    /// First offset still there.
    pub log_start: u64,
}

impl ReadPage {
    /// Number of records in all batches, by their headers.
    pub(crate) fn record_count(&self) -> u64 {
        let mut count = 0;
        for piece in &self.pieces {
            let mut rest = &piece[..];
            while let Ok(header) = BatchHeader::peek(rest) {
                count += u64::from(header.records_left());
                rest = rest.get(header.size_bytes()..).unwrap_or_default();
            }
        }
        count
    }

    /// The batches one by one. An error where what a node answered is no batch; nothing follows it.
    pub fn batches(&self) -> impl Iterator<Item = Result<Bytes, BatchError>> {
        self.pieces.iter().flat_map(|piece| {
            let mut rest = piece.clone();
            std::iter::from_fn(move || {
                let length = (!rest.is_empty()).then(|| Ok(Batch::parse(&rest)?.0.bytes().len()))?;
                // Behind an error nobody knows where the next batch begins.
                Some(length.map(|length| rest.split_to(length)).inspect_err(|_| rest.clear()))
            })
        })
    }
}

/// Limit on the bytes of one page, whatever was asked for.
pub(crate) const PAGE_BYTES_MAX: usize = 16 << 20;

impl Reading {
    /// Reads below the high watermark. Waits at it for `options.wait`, then answers an empty page.
    pub(crate) async fn read(
        &self,
        from: &PartitionRef,
        offset: u64,
        options: ReadOptions,
    ) -> Result<ReadPage> {
        let page = self.read_page(from, offset, options).await;
        if let Err(error) = &page {
            self.cluster().metrics().count_error(error);
        }
        page
    }

    async fn read_page(&self, from: &PartitionRef, offset: u64, options: ReadOptions) -> Result<ReadPage> {
        let until = Instant::now() + options.wait;
        let decided_by = Instant::now() + patience::END_DECIDED;
        let bytes_max = options.bytes_max.min(PAGE_BYTES_MAX);
        loop {
            let news = self.cluster().news();
            let (topic, segment, log_start) = self.locate_confirmed(from, offset, options.segment).await?;
            let end = match &segment.state {
                SegmentState::Sealed(value) => Some(value.end.0),
                _ => None,
            };
            let wait =
                if end.is_some() { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) };
            let page = |pieces, next_offset, high_watermark| {
                Ok(ReadPage { pieces, next_offset, high_watermark, log_start })
            };
            if let Some(end) = end
                && offset >= end
            {
                // This very segment was asked for; else the next one would have been located.
                return if offset == end {
                    page(Vec::new(), offset, end)
                } else {
                    Err(Error::OffsetOutOfRange { requested: offset, start: base_of(&segment), end })
                };
            }
            if let Some((start, lost_end)) = lost_at(&segment, offset) {
                let key = label(&topic, &segment.descriptor);
                return Err(Error::DataLoss { key, start, end: lost_end });
            }
            let may_wait = || Instant::now() < decided_by && !self.cluster().is_cut_off(&segment.descriptor);
            let is_only_copy = segment.descriptor.replicas.len() == 1;
            let question = Question { offset, bytes_max, wait, unconfirmed: options.unconfirmed };
            let fetched = self.fetch(&segment, question).await;
            if let Some(end) = end
                && segment.is_lost()
                && has_nothing(&fetched)
            {
                let key = label(&topic, &segment.descriptor);
                return Err(Error::DataLoss { key, start: offset, end });
            }
            let fetched = match fetched {
                // The other copies have it, and its leader mends its own.
                Err(damaged @ (Error::Corrupted { .. } | Error::DataLoss { .. }))
                    if end.is_none() && !is_only_copy =>
                {
                    if may_wait() {
                        news.wait(patience::NEWS_LOOK).await;
                        continue;
                    }
                    return Err(Obstacle::LeaderNotMended { damage: damaged.to_string() }.into());
                }
                // The leader is gone: soon another node has the offset, or the end is decided.
                Err(Error::Unavailable { .. }) if end.is_none() && may_wait() => {
                    news.wait(patience::NEWS_LOOK).await;
                    continue;
                }
                // The metadata list it: whoever calls it unknown knows less than this node.
                Err(Error::UnknownSegment { segment }) => {
                    return Err(Obstacle::SegmentUnheardOf { segment }.into());
                }
                fetched => fetched?,
            };
            let high_watermark = end.unwrap_or(fetched.high_watermark);
            if !fetched.batches.is_empty() {
                return page(fetched.batches, fetched.next_offset, high_watermark);
            }
            // An empty answer does not mean that there is nothing: it may be in a copy that is whole, or in the next segment.
            let goes_on = fetched.sealed && options.segment.is_none();
            if segment.state != SegmentState::Open || goes_on {
                if may_wait() {
                    news.wait(patience::NEWS_LOOK).await;
                    continue;
                }
                return Err(Obstacle::WhatFollowsUnknown { segment: segment.descriptor.id }.into());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || (fetched.sealed && options.segment.is_some()) {
                return page(Vec::new(), offset, high_watermark);
            }
            // The segment may have been sealed under the wait: the loop looks again who has the offset now.
            news.wait(left.min(patience::NEWS_LOOK)).await;
        }
    }

    /// The segment to read from, with its topic and the log's start. That there is none is said only by metadata as new as the
    /// question; an `OffsetOutOfRange` has the range that there is.
    async fn locate_confirmed(
        &self,
        from: &PartitionRef,
        offset: u64,
        wanted: Option<SegmentId>,
    ) -> Result<(TopicPath, Segment, u64)> {
        let look = || self.locate_here(from, offset, wanted);
        match self.cluster().find_confirmed(look).await {
            Err(Error::OffsetOutOfRange { .. }) => {
                self.cluster().await_all_metadata(&format!("where {from} begins")).await?;
                match look() {
                    Err(Error::OffsetOutOfRange { requested, start, .. }) => {
                        let end = self.end_of(from, wanted).await?;
                        Err(Error::OffsetOutOfRange { requested, start, end })
                    }
                    found => found,
                }
            }
            found => found,
        }
    }

    /// The segment to read from as far as this node knows. In an `OffsetOutOfRange` from here only the start counts.
    fn locate_here(
        &self,
        from: &PartitionRef,
        offset: u64,
        wanted: Option<SegmentId>,
    ) -> Result<(TopicPath, Segment, u64)> {
        let routing = self.cluster().routing();
        let (route, partition) = routing.partition(from)?;
        let log_start = partition.log_start().0;
        let (found, start) = match wanted {
            Some(uuid) => {
                let unknown = || Error::UnknownSegment { segment: uuid.to_string() };
                let listed = partition.segments.iter().find(|listed| listed.descriptor.id == uuid);
                let listed = listed.ok_or_else(unknown)?;
                (Some(listed).filter(|segment| base_of(segment) <= offset), base_of(listed))
            }
            None => (segment_at(partition, offset), log_start),
        };
        let segment = found.ok_or(Error::OffsetOutOfRange { requested: offset, start, end: start })?;
        Ok((route.path.clone(), segment.clone(), log_start))
    }

    /// Fetches batches from the own disk if it has a copy that may answer, else from a node that does.
    async fn fetch(&self, segment: &Segment, question: Question) -> Result<FetchAnswer> {
        let Question { offset, bytes_max, wait, unconfirmed } = question;
        let descriptor = &segment.descriptor;
        let me = self.cluster().node_id();
        let is_open = is_open(segment);
        let sources =
            if is_open { vec![descriptor.leader.node.0] } else { self.copies().holders(descriptor) };
        let mut failures = Failures::default();
        if sources.contains(&me) {
            if is_open
                && is_led_by(descriptor.leader, self.cluster().config())
                && self.partitions().leaders().may_lead(segment)
            {
                self.partitions().leader(segment).await?;
            }
            // A copy that is not whole yet does not count: others may have the offset.
            let is_whole =
                || self.copies().bucket().log(LogId(descriptor.id.0)).is_some_and(|log| log.is_sealed());
            if is_open || sources.len() == 1 || is_whole() {
                match self.fetch_here(descriptor.id, question).await {
                    Err(error @ Error::Corrupted { .. }) if !is_open => failures.add(error),
                    answered => return answered,
                }
            }
        }
        for node in sources.into_iter().filter(|source| *source != me) {
            let fetch = Fetch {
                segment: uuid_bytes(descriptor.id.0),
                offset,
                bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
                wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
                durable: false,
                unconfirmed,
            };
            let decoded = |payload: Bytes| {
                FetchAnswer::decode(payload)
                    .map_err(|problem| Error::Internal { message: format!("a peer's page: {problem}") })
            };
            match self
                .cluster()
                .peers()
                .call(node, Request::Fetch(fetch), wait + patience::FETCH_BEYOND_WAIT)
                .await
                .and_then(decoded)
            {
                // Below the end of a sealed segment there is something: this copy is not whole yet.
                Ok(answer) if answer.batches.is_empty() && !is_open => {
                    failures.add(Obstacle::CopyNotWhole { node }.into());
                }
                Ok(answer) => return Ok(answer),
                Err(Error::OffsetOutOfRange { .. }) if !is_open => {
                    failures.add(Obstacle::CopyNotWhole { node }.into());
                }
                Err(error) => failures.add(error),
            }
        }
        Err(failures.sum(descriptor.id))
    }

    /// Answers from the own copy of a segment, below the high watermark; waits there.
    pub(crate) async fn fetch_here(&self, segment: SegmentId, question: Question) -> Result<FetchAnswer> {
        let Question { offset, bytes_max, wait, unconfirmed } = question;
        let until = Instant::now() + wait;
        let mut metadata = self.cluster().watch_metadata();
        let mut lost = self.cluster().liveness().watch_lost();
        loop {
            metadata.mark_unchanged();
            lost.mark_unchanged();
            let Some(log) = self.own_copy(segment).await? else {
                // Nobody has appended to it, as far as this disk knows.
                if !unconfirmed {
                    self.copies().may_claim_end(&self.descriptor_of(segment)?).await?;
                }
                return Ok(nothing_yet(offset));
            };
            let lead = self.copies().table().lead(segment);
            let mut growth = lead.as_ref().map(|lead| lead.high_watermark.watch());
            let sealed = log.is_sealed();
            let Readable { end: high_watermark, is_all } = match &mut growth {
                Some(growth) if !sealed => Readable { end: *growth.borrow_and_update(), is_all: true },
                _ => self.copies().readable(segment, &log)?,
            };
            let start = log.start_offset().0;
            if offset >= start && offset < high_watermark {
                self.await_own_disk(&log, offset).await?;
                return self.page_of(&log, offset, bytes_max, high_watermark, sealed).await;
            }
            let out_of_range = Error::OffsetOutOfRange { requested: offset, start, end: high_watermark };
            if offset < start {
                return Err(Obstacle::BeforeSegment { offset, segment }.into());
            }
            if sealed || !is_all {
                // Whoever asks takes it for open, and so may the metadata here.
                self.copies().table().note_doubt(segment);
            }
            if sealed && offset > high_watermark {
                return Err(Obstacle::BehindSegment { offset, segment }.into());
            }
            if !is_all {
                return Err(Obstacle::EndUndecided { segment }.into());
            }
            let empty = FetchAnswer { batches: Vec::new(), next_offset: offset, high_watermark, sealed };
            if sealed {
                return Ok(empty);
            }
            if unconfirmed && offset == high_watermark && Instant::now() >= until {
                return Ok(empty);
            }
            if offset != high_watermark || Instant::now() >= until {
                self.copies().may_claim_end(&self.descriptor_of(segment)?).await?;
                return if offset == high_watermark { Ok(empty) } else { Err(out_of_range) };
            }
            if lead.is_some() {
                self.cluster().check_segment_reach(&self.descriptor_of(segment)?)?;
            }
            let grown = async {
                match &mut growth {
                    Some(growth) => drop(growth.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = grown => {}
                _ = metadata.changed() => {} // it may be sealed, or have got a leader
                _ = lost.changed() => {}
                () = self.cluster().tasks().shutdown().cancelled() => return Err(Obstacle::Stopping.into()),
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Waits until what is acknowledged can be read here; the other replicas may have had it before this disk.
    pub(super) async fn await_own_disk(&self, log: &Log, offset: u64) -> Result<()> {
        if log.durable_offset().0 > offset {
            return Ok(());
        }
        match tokio::time::timeout(patience::OWN_COPY_READABLE, log.committed()).await {
            Ok(committed) => committed.map_err(|error| self.copies().bucket().error(log.name(), error)),
            Err(_) => Err(Obstacle::DiskStill { node: self.cluster().node_id() }.into()),
        }
    }

    /// The log of a segment on this disk; makes it where this process may begin to lead. `None` if metadata lists the segment
    /// and this disk has no log of it.
    pub(super) async fn own_copy(&self, segment: SegmentId) -> Result<Option<Log>> {
        if self.copies().table().is_aside(segment) {
            return Err(Error::UnknownSegment { segment: segment.to_string() });
        }
        if let Some(log) = self.copies().bucket().log(LogId(segment.0)) {
            return Ok(Some(log));
        }
        let unknown = || Error::UnknownSegment { segment: segment.to_string() };
        let (_topic, listed) = self.listed(segment).ok_or_else(unknown)?;
        if is_led_by(listed.descriptor.leader, self.cluster().config())
            && self.partitions().leaders().may_lead(&listed)
        {
            return self.partitions().leader(&listed).await.map(|leader| Some(leader.log().clone()));
        }
        Ok(None)
    }

    /// Descriptor of an unsealed segment.
    pub(super) fn descriptor_of(&self, segment: SegmentId) -> Result<Descriptor> {
        let unknown = || Error::UnknownSegment { segment: segment.to_string() };
        match self.copies().table().find(segment)? {
            Some(copy) => Ok(copy.descriptor().clone()),
            None => self.listed(segment).map(|(_, listed)| listed.descriptor).ok_or_else(unknown),
        }
    }

    /// An unsealed segment as the metadata list it.
    fn listed(&self, segment: SegmentId) -> Option<(TopicPath, Segment)> {
        let routing = self.cluster().routing();
        let mut open = routing.topics().flat_map(|route| {
            let open = route.topic.partitions.iter().filter_map(|partition| open_segment(partition));
            open.map(|segment| (&route.path, segment))
        });
        let found = open.find(|(_, listed)| listed.descriptor.id == segment);
        found.map(|(topic, listed)| (topic.clone(), listed.clone()))
    }

    async fn page_of(
        &self,
        log: &Log,
        offset: u64,
        bytes_max: usize,
        high_watermark: u64,
        sealed: bool,
    ) -> Result<FetchAnswer> {
        let mut slices = self.copies().batches_of(log, offset, bytes_max, Purpose::Reads).await?;
        let mut next_offset = slices.next_offset.0;
        // What is durable here and not yet on enough disks is not readable.
        while next_offset > high_watermark {
            let Some(last) = slices.batches.pop() else { break };
            let header = BatchHeader::peek(&last);
            let header = header
                .map_err(|problem| Error::Internal { message: format!("a stored batch: {problem}") })?;
            next_offset = header.base_offset;
        }
        Ok(FetchAnswer { batches: slices.pieces(), next_offset, high_watermark, sealed })
    }
}

/// Whether an answer has no batch, and does not say that those which are there are damaged.
fn has_nothing(fetched: &Result<FetchAnswer>) -> bool {
    match fetched {
        Ok(answer) => answer.batches.is_empty(),
        Err(Error::OffsetOutOfRange { .. } | Error::Unavailable { .. } | Error::UnknownSegment { .. }) => {
            true
        }
        Err(_) => false,
    }
}

/// The range around an offset that no copy had when the end of its segment was decided.
fn lost_at(segment: &Segment, offset: u64) -> Option<(u64, u64)> {
    let SegmentState::Sealed(value) = &segment.state else { return None };
    let lost = value.lost.iter().find(|range| range.start.0 <= offset && offset < range.end.0)?;
    Some((lost.start.0, lost.end.0))
}

fn nothing_yet(offset: u64) -> FetchAnswer {
    FetchAnswer { next_offset: offset, high_watermark: offset, ..FetchAnswer::default() }
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::BatchBuilder;

    use super::*;

    /// A page whose pieces were taken for single batches lost what stood behind the first one of each.
    #[test]
    fn a_page_gives_each_batch_of_its_pieces_and_ends_at_what_is_none() {
        let batch = |value: &[u8]| {
            let mut bytes = Vec::new();
            BatchBuilder::new().push(None, Some(value), 0, &[]).build(&mut bytes).unwrap();
            bytes
        };
        let (a, b, c) = (batch(b"a"), batch(b"bb"), batch(b"ccc"));
        let pieces =
            vec![[&a[..], &b].concat().into(), c.clone().into(), [&a[..], b"no batch"].concat().into()];
        let page = ReadPage { pieces, next_offset: 0, high_watermark: 0, log_start: 0 };
        let mut found = page.batches();
        for expected in [&a, &b, &c, &a] {
            assert_eq!(found.next().unwrap().unwrap(), expected);
        }
        assert!(found.next().unwrap().is_err());
        assert!(found.next().is_none());
    }
}
