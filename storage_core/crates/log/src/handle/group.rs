//! Batch groups: batches that are appended all or not at all, each in a block of its own. No batch of a group is in
//! the log before all of them are on the disk; the next open removes what a crash leaves of one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::log::{AppendReceipt, Log};
use super::member::Member;
use super::ticket::CommitTicket;
use crate::batch::{Batch, OFFSETS_END};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::format::block_header::BlockHeader;
use crate::format::footer::IndexEntry;
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::state::{Extent, LogState, Writer};
use crate::page::PAGE_BYTES;
use crate::resources::blocks::{BlockFile, Slots};
use crate::resources::space::Space;
use crate::types::Offset;

/// Limit on the bytes of a group.
pub(crate) const GROUP_BYTES_MAX: u64 = 10 << 30;

/// Size of a part, known before the part is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartSize {
    /// Limit on the bytes of the batch.
    pub(crate) bytes: u64,
    pub(crate) records: u32,
}

/// Callback that hands the part of an index to its writer. Parts are made one at a time, so that not all of them are
/// in memory.
pub(super) type GivePart<'a> = dyn FnMut(usize, &mut dyn FnMut(&Batch<'_>) -> Result<()>) -> Result<()> + 'a;

/// The slots and the space for a part.
struct Place {
    slots: Slots,
    space: Arc<Space>,
}

/// A part that was written.
struct Part {
    block: Arc<Block>,
    records: u32,
    crc: u32,
    bytes: u64,
    producer: Option<crate::batch::ProducerRef>,
}

impl Member {
    /// Appends all parts or none; gives the offset where they begin and the one behind them. Returns when all are as
    /// durable as the log's data ever is; appends and other groups of the log wait meanwhile.
    fn append_group(&self, sizes: &[PartSize], give: &mut GivePart<'_>) -> Result<(u64, u64)> {
        let _changing = self.log.changing.lock();
        let turn = {
            let mut writer = self.log.writer.lock();
            self.log.check_active(&writer)?;
            check_sizes(sizes, writer.end)?;
            writer.is_grouping = true;
            Turn { log: &self.log, has_begun: false }
        };
        self.write_group(turn, sizes, give)
    }

    fn write_group(
        &self,
        mut turn: Turn<'_>,
        sizes: &[PartSize],
        give: &mut GivePart<'_>,
    ) -> Result<(u64, u64)> {
        let places = self.reserve(sizes)?;
        let before = self.begin_behind_all();
        let (base_offset, last_sequence) = match before {
            Ok(before) => before,
            Err(error) => {
                places.iter().for_each(|place| self.resources().blocks.free(&place.slots));
                return Err(error);
            }
        };
        turn.has_begun = true;
        let parts = self.write_parts(places, base_offset, last_sequence, give)?;
        if self.log.syncs() {
            let mut files: Vec<&Arc<BlockFile>> = parts.iter().map(|part| &part.block.slots.file).collect();
            files.dedup_by_key(|file| file.name);
            self.resources().sync_files(&files)?;
        }
        turn.has_begun = false;
        let end_offset = self.show_group(&mut self.log.writer.lock(), parts);
        drop(turn);
        if self.log.syncs() {
            self.committer.marks.note(&self.log);
        }
        self.log.arrivals.announce();
        self.log.ask_retention_if_ruled();
        Ok((base_offset, end_offset))
    }

    /// Allocates space for all parts, so that a full disk shows before anything is accepted.
    fn reserve(&self, sizes: &[PartSize]) -> Result<Vec<Place>> {
        let blocks = &self.resources().blocks;
        let mut places: Vec<Place> = Vec::with_capacity(sizes.len());
        for &PartSize { bytes, .. } in sizes {
            let size = blocks.classes.next(None, bytes);
            let place = size
                .map_err(|bytes_max| Error::TooLarge { bytes, bytes_max })
                .and_then(|size| blocks.allocate(size, self.log.fsync));
            match place {
                Ok((slots, space)) => places.push(Place { slots, space }),
                Err(error) => {
                    places.iter().for_each(|place| blocks.free(&place.slots));
                    self.queues().chores.ask_upkeep();
                    return Err(error);
                }
            }
        }
        Ok(places)
    }

    /// Syncs what was appended before, if the log syncs, and closes its block. Gives the offset where the group
    /// begins, and the sequence of the block before it.
    fn begin_behind_all(&self) -> Result<(u64, u64)> {
        let end = self.log.end.load(Ordering::Acquire);
        if self.log.syncs() {
            self.committer.wait_synced(&self.log, end)?;
        }
        let mut writer = self.log.writer.lock();
        self.log.close_block(&mut writer);
        Ok((writer.end, writer.last_sequence))
    }

    fn write_parts(
        &self,
        places: Vec<Place>,
        mut base_offset: u64,
        mut previous: u64,
        give: &mut GivePart<'_>,
    ) -> Result<Vec<Part>> {
        let group = Uuid::new_v4();
        let count = places.len() as u32;
        let mut parts = Vec::with_capacity(places.len());
        for (index, place) in places.into_iter().enumerate() {
            let group = (group, index as u32, count);
            let header = BlockHeader { group, ..self.log.new_header(&place.slots, previous, base_offset) };
            let mut place = Some(place);
            let mut part = None;
            give(index, &mut |batch| {
                let place = place.take().expect("a part is given once");
                part = Some(self.write_part(place, &header, batch)?);
                Ok(())
            })?;
            let part = part.expect("each part is given");
            base_offset += u64::from(part.records);
            previous = header.sequence;
            parts.push(part);
        }
        Ok(parts)
    }

    fn write_part(&self, place: Place, header: &BlockHeader, batch: &Batch<'_>) -> Result<Part> {
        let Place { slots, space } = place;
        let file = Arc::clone(&slots.file);
        let (base_offset, records, crc) = (header.base_offset, batch.record_count(), batch.header().crc);
        let block = Block::new(slots, space, header);
        let failed = |e| file.poison("write", e);
        let mut tail = self.resources().open_tail(&block.slots, self.log.tails, 0, false).map_err(failed)?;
        let bytes = batch.bytes();
        let data_end = PAGE_BYTES + bytes.len() as u64;
        block.space.reach(data_end).map_err(failed)?;
        // Everything before the group is synced, so its first part begins a commit; the parts themselves are written
        // in any order.
        let begins_commit = self.log.syncs() && header.group.1 == 0;
        let mark = block.key.mark(PAGE_BYTES, base_offset, batch.header(), begins_commit);
        tail.append(&header.encode()).map_err(failed)?;
        tail.append(&batch.front_with(base_offset, mark)).map_err(failed)?;
        tail.append(&bytes[OFFSETS_END..]).map_err(failed)?;
        let captured = tail.capture(0);
        if captured.has_writes() {
            captured.write(false).map_err(failed)?;
        }
        let mut digest = Digest::default();
        digest.push(base_offset, records, crc);
        let max_timestamp = batch.max_timestamp();
        let entry = IndexEntry { offset: base_offset, max_timestamp, position: PAGE_BYTES as u32 };
        block.readable.store(data_end, Ordering::Release);
        *block.index.write() = BlockIndex::Loaded(Arc::new(vec![entry]));
        let end_offset = base_offset + u64::from(records);
        let _ = block.closed.set(ClosedBlock { end_offset, max_timestamp, data_end, digest });
        let (block, bytes) = (Arc::new(block), bytes.len() as u64);
        Ok(Part { block, records, crc, bytes, producer: batch.producer() })
    }

    /// Adds the parts to the log, for every reader at the same moment; gives the log's end.
    fn show_group(&self, writer: &mut Writer, parts: Vec<Part>) -> u64 {
        let mut bytes = 0;
        let mut shown = Vec::with_capacity(parts.len());
        for Part { block, records, crc, bytes: part_bytes, producer } in parts {
            writer.digest.push(writer.end, records, crc);
            if let Some(producer) = producer {
                writer.producers.record(producer, records, writer.end);
            }
            writer.last_sequence = block.sequence;
            writer.end += u64::from(records);
            bytes += part_bytes;
            self.queues()
                .chores
                .write_footer(Arc::clone(&block), Some(self.log.changes_to(&writer.producers)));
            shown.push(block);
        }
        let end = writer.end;
        self.log.directory.write().blocks.extend(shown);
        self.log.size_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.log.end.store(end, Ordering::Release);
        if self.log.syncs() {
            writer.taken = end;
            self.log.synced.fetch_max(end, Ordering::AcqRel);
            self.log.unmarked_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.log.readable.fetch_max(end, Ordering::AcqRel);
        end
    }
}

/// Refuses a group that is too large, or whose offsets would exceed the largest one.
pub(crate) fn check_sizes(sizes: &[PartSize], end: u64) -> Result<()> {
    let bytes = sizes.iter().map(|size| size.bytes).sum();
    if bytes > GROUP_BYTES_MAX {
        return Err(Error::TooLarge { bytes, bytes_max: GROUP_BYTES_MAX });
    }
    let records = sizes.iter().map(|size| u64::from(size.records)).sum();
    let offsets_left = i64::MAX as u64 - end;
    if records > offsets_left { Err(Error::OffsetsExhausted { records, offsets_left }) } else { Ok(()) }
}

/// The turn of a group: appends of others wait until it is dropped.
struct Turn<'a> {
    log: &'a LogState,
    /// Whether parts may be on the disk that the log does not have. If so, nothing may be appended in their place.
    has_begun: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            self.log.poison(&Arc::from("a batch group was not written to its end"));
        }
        self.log.writer.lock().is_grouping = false;
        self.log.grouped.notify_all();
    }
}

impl Log {
    /// Appends batches so that the log has all of them or none, to every reader and after a crash at any point. Each
    /// goes into a block of its own, so this is for what one batch cannot hold. Returns when all are durable, as the
    /// schedule promises; other appends to the log wait meanwhile. Offsets are given as by [`Log::append`];
    /// repetitions of producers are not looked for.
    ///
    /// Errors: `Sealed`, `UnknownLog` (deleted), `Closed`, `NoSpace`, `OffsetsExhausted` and `TooLarge` (a batch that
    /// fits into no block, or more than 10 GB in all), after which nothing has changed; `Poisoned` after a failed write.
    pub fn append_group(&self, batches: &[Batch<'_>]) -> Result<std::ops::Range<Offset>> {
        self.resources().check_open()?;
        let size =
            |batch: &Batch<'_>| PartSize { bytes: batch.bytes().len() as u64, records: batch.record_count() };
        batches.iter().try_for_each(Batch::check_dense)?;
        let sizes: Vec<_> = batches.iter().map(size).collect();
        let appended = self.append_parts(&sizes, &mut |part, write| write(&batches[part]))?;
        Ok(appended.base_offset..appended.end_offset)
    }

    /// Appends a group as [`Log::append_group`] does, from parts that `give` makes one after the other.
    pub(crate) fn append_parts(&self, sizes: &[PartSize], give: &mut GivePart<'_>) -> Result<AppendReceipt> {
        let (base_offset, end) = self.member().append_group(sizes, give)?;
        let extent = Extent { end, ..self.state().extent() };
        let commit = CommitTicket::new(self.member(), extent);
        Ok(AppendReceipt {
            base_offset: Offset(base_offset),
            end_offset: Offset(end),
            duplicate: false,
            commit,
        })
    }
}
