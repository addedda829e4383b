//! The slots of the files: which of them hold blocks, and of which logs, as their headers say.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::lost::write_lost_if_room;
use super::parallel::{self, Share};
use super::progress::OpenProgress;
use super::report::{CutFile, OpenReport, UnknownBlock};
use crate::batch::{Batch, BatchHeader, HEADER_BYTES};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::manifest::Manifest;
use crate::format::mark::BlockKey;
use crate::page::PAGE_BYTES;
use crate::resources::Resources;
use crate::resources::blocks::{BlockFile, Blocks, FileName, SlotState, Slots};
use crate::resources::journal::{JournalState, LogEntry};
use crate::seeded;
use crate::types::LogId;

/// Bytes that are read of each slot: the header, and the first page of data.
const FRONT_BYTES: u64 = 2 * PAGE_BYTES;
/// Most data of a first page that is kept; more is read again with what follows it.
const FIRST_BYTES_MAX: usize = 2 << 10;

/// A block with a valid header.
pub(super) struct FoundBlock {
    pub(super) header: BlockHeader,
    pub(super) slots: Slots,
    /// Data of its first page without the zeros behind it, if that is little and its end is seen. A log with little
    /// data then needs no further read.
    pub(super) first: Option<Vec<u8>>,
}

/// The first pages of all slots of a file that were ever used.
pub(crate) struct FileFronts {
    file: Arc<BlockFile>,
    /// The file's length, if it is shorter than it was made.
    cut: Option<CutFile>,
    slots: Vec<(u32, Front)>,
}

/// The first pages of a slot.
struct Front {
    page: HeaderPage,
    first: Option<Vec<u8>>,
}

impl FileFronts {
    /// Headers of the blocks in the file.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &BlockHeader> {
        self.slots.iter().filter_map(|(_, front)| match &front.page {
            HeaderPage::Header(header) => Some(&**header),
            _ => None,
        })
    }
}

/// Reads the first pages of all used slots of all files. A header that was written for another place, or for a file of
/// another name, counts as damaged.
pub(crate) fn read_fronts(
    blocks: &Blocks,
    manifest: Manifest,
    disk: &dyn Disk,
    progress: &OpenProgress,
) -> Result<Vec<FileFronts>> {
    let mut fronts = Vec::new();
    for name in blocks.list()? {
        let cut = find_cut(blocks, name, disk)?;
        let file = blocks.open(name)?;
        let count = blocks.classes.slots(name.class);
        let read = || -> io::Result<Vec<(u32, Front)>> {
            // Most of a file may be holes, which are not read.
            let data = file.file.data_ranges(0..blocks.classes.file_bytes())?;
            let used = slots_in(&data, file.slot_bytes, count);
            let share = Share { threads: disk.reads_at_once(), items: 8 };
            let read = |slot| Ok((slot, read_front(&file, slot, count, manifest)?));
            parallel::map(used, share, read).into_iter().collect()
        };
        let slots = read().map_err(|e| file.error("read", e))?;
        let other = slots.iter().find_map(|(_, front)| match front.page {
            HeaderPage::Other(version) => Some(version),
            _ => None,
        });
        if let Some(found) = other {
            let path = file.path.clone();
            return Err(Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION });
        }
        fronts.push(FileFronts { file, cut, slots });
        progress.step();
    }
    Ok(fronts)
}

/// Finds out whether a file lost its end. A file gets its whole length before anything is put into it, so a crash
/// leaves it empty or whole. Must be called before the file is opened, since that makes it whole again.
fn find_cut(blocks: &Blocks, name: FileName, disk: &dyn Disk) -> Result<Option<CutFile>> {
    let name = blocks.classes.write_name(name);
    let path = disk.path(&name);
    let found_bytes = disk.size_bytes(&name).map_err(|e| Error::io("look at", &path, e))?;
    let made_bytes = blocks.classes.file_bytes();
    if found_bytes == 0 || found_bytes >= made_bytes {
        return Ok(None);
    }
    tracing::error!(path, found_bytes, made_bytes, "a file of blocks lost its end");
    Ok(Some(CutFile { path, found_bytes, made_bytes }))
}

fn read_front(file: &BlockFile, slot: u32, count: u32, manifest: Manifest) -> io::Result<Front> {
    let mut bytes = Vec::new();
    let start = u64::from(slot) * file.slot_bytes;
    file.file.read(start, FRONT_BYTES.min(file.slot_bytes) as usize, &mut bytes)?;
    let (page, data) = bytes.split_at(bytes.len().min(PAGE_BYTES as usize));
    let is_here = |header: &BlockHeader| {
        header.manifest == manifest
            && header.place.is_at(file.name.number, slot)
            && u64::from(header.place.slot_bytes) == file.slot_bytes
            && (1..=count - slot).contains(&header.place.slots)
    };
    Ok(match BlockHeader::decode(page) {
        HeaderPage::Header(header) if !is_here(&header) => Front { page: HeaderPage::Damaged, first: None },
        page @ HeaderPage::Header(_) => Front { page, first: little(data) },
        HeaderPage::Empty if holds_batch(file, start, data)? => {
            Front { page: HeaderPage::Damaged, first: None }
        }
        page => Front { page, first: None },
    })
}

/// Whether a block's data begins with a whole batch: then a header that reads as zeros was lost, and the slot is not
/// free.
fn holds_batch(file: &BlockFile, slot_start: u64, data: &[u8]) -> io::Result<bool> {
    Ok(BatchHeader::peek(data).is_ok() && first_batch(file, slot_start, file.slot_bytes)?.is_some())
}

/// The header of the first batch of a block with `block_bytes` bytes; `None` if no whole batch is there.
fn first_batch(file: &BlockFile, block_start: u64, block_bytes: u64) -> io::Result<Option<BatchHeader>> {
    let mut bytes = Vec::new();
    file.file.read(block_start + PAGE_BYTES, HEADER_BYTES, &mut bytes)?;
    let Ok(header) = BatchHeader::peek(&bytes) else { return Ok(None) };
    if header.size_bytes() as u64 > block_bytes - PAGE_BYTES {
        return Ok(None);
    }
    bytes.clear();
    file.file.read(block_start + PAGE_BYTES, header.size_bytes(), &mut bytes)?;
    Ok(Batch::parse(&bytes).is_ok().then_some(header))
}

impl FoundBlock {
    /// Whether the data is not this block's: an old header came back to a slot that was used again since, or a crash
    /// tore the first batch.
    fn holds_others_data(&self) -> Result<bool> {
        let Self { header: BlockHeader { manifest, log, sequence, .. }, slots, .. } = self;
        let range = slots.range();
        let first = first_batch(&slots.file, range.start, range.end - range.start);
        let first = first.map_err(|e| slots.file.error("read", e))?;
        let key = BlockKey::new(manifest.store, *log, *sequence);
        Ok(first.is_some_and(|batch| key.check(PAGE_BYTES, &batch).is_none()))
    }

    /// Frees the slots of a dead block. If its data is not its own, nothing is freed and the slots are given back, to
    /// be treated like those of a damaged header.
    pub(super) fn let_go(self, blocks: &Blocks) -> Result<Option<Slots>> {
        if self.holds_others_data()? {
            blocks.keep(&self.slots);
            return Ok(Some(self.slots));
        }
        blocks.free(&self.slots);
        Ok(None)
    }
}

/// All headers of blocks, by log, and the slots without a readable one.
pub(super) struct Headers {
    pub(super) found: HashMap<LogId, Vec<FoundBlock>>,
    /// Slots whose header is neither empty nor valid.
    pub(super) damaged: Vec<Slots>,
}

/// Decides for each slot which log it belongs to, and hands the files to the allocator with the states of their slots.
pub(super) fn sort_slots(
    resources: &Resources,
    state: &JournalState,
    fronts: Vec<FileFronts>,
    report: &mut OpenReport,
) -> Headers {
    let blocks = &resources.blocks;
    let mut headers = Headers { found: HashMap::new(), damaged: Vec::new() };
    let mut last_sequence = 0;
    for FileFronts { file, cut, slots: fronts } in fronts {
        report.cut_files.extend(cut);
        let mut states = vec![SlotState::Free; blocks.classes.slots(file.name.class) as usize];
        let mut behind = 0; // first slot behind the block before
        for (slot, front) in fronts {
            if slot < behind {
                continue;
            }
            let mut slots = Slots { file: Arc::clone(&file), first: slot, count: 1 };
            let slot_state = match front.page {
                HeaderPage::Empty => SlotState::Freed,
                HeaderPage::Header(header) if state.logs.contains_key(&owner(state, &header)) => {
                    slots.count = header.place.slots;
                    last_sequence = last_sequence.max(header.sequence);
                    let (owner, slots) = (owner(state, &header), slots.clone());
                    let found = FoundBlock { header: *header, slots, first: front.first };
                    headers.found.entry(owner).or_default().push(found);
                    SlotState::Used
                }
                HeaderPage::Header(_) => {
                    let path = file.path.clone();
                    report.unknown_blocks.push(UnknownBlock { path, slot, moved_to: None });
                    SlotState::Kept
                }
                HeaderPage::Damaged | HeaderPage::Other(_) => {
                    headers.damaged.push(slots.clone());
                    SlotState::Kept
                }
            };
            behind = slot + slots.count;
            states[slot as usize..behind as usize].fill(slot_state);
        }
        blocks.adopt(file, states);
    }
    let truncated = state.logs.values().flat_map(|entry| &entry.truncations).map(|(_, before)| *before);
    let freed = state.logs.values().map(|entry| entry.freed_before);
    blocks.start_sequences_at(truncated.chain(freed).max().unwrap_or(0).max(last_sequence + 1));
    headers
}

/// The slots that overlap ranges of data.
fn slots_in(data: &[Range<u64>], slot_bytes: u64, count: u32) -> Vec<u32> {
    let mut slots: Vec<u32> = Vec::new();
    for range in data.iter().filter(|range| !range.is_empty()) {
        let first = (range.start / slot_bytes) as u32;
        let next = slots.last().map_or(0, |last| last + 1);
        slots.extend(first.max(next)..(range.end.div_ceil(slot_bytes) as u32).min(count));
    }
    slots
}

/// Data without the zeros behind it, if these are enough to show that no batch follows, and the data is small enough
/// to keep.
fn little(data: &[u8]) -> Option<Vec<u8>> {
    let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    (data.len() - end >= HEADER_BYTES && end <= FIRST_BYTES_MAX).then(|| data[..end].to_vec())
}

/// The log to which a block belongs.
fn owner(state: &JournalState, header: &BlockHeader) -> LogId {
    if seeded!(OldIdentity) {
        let namesake = |(_, entry): &(&LogId, &LogEntry)| entry.name == header.name && !entry.deleted;
        return state.logs.iter().rfind(namesake).map_or(header.log, |(id, _)| *id);
    }
    header.log
}

/// Moves a block without a readable header to a file of its own and frees its slot. `None` if a full disk has no room
/// for that file; then nothing changes.
pub(super) fn set_block_aside(resources: &Resources, slots: &Slots) -> Result<Option<String>> {
    let file = &slots.file;
    let range = slots.range();
    let start = range.start;
    let failed = |e| file.error("read", e);
    let ranges = file.file.data_ranges(range).map_err(failed)?;
    let end = ranges.last().map_or(start, |range| range.end);
    let mut bytes = Vec::new();
    file.file.read(start, (end - start) as usize, &mut bytes).map_err(failed)?;
    let what = format!("block-{}-{}", file.name.number, slots.first);
    let Some(moved_to) = write_lost_if_room(&*resources.disk, &what, &bytes)? else { return Ok(None) };
    tracing::warn!(
        path = file.path,
        slot = slots.first,
        moved_to,
        "a block without a readable header was moved"
    );
    resources.blocks.free(slots);
    Ok(Some(moved_to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_where_any_of_their_bytes_is_data_and_each_once() {
        assert!(slots_in(&[], 10, 5).is_empty());
        assert_eq!(slots_in(&[0..1, 5..6, 9..11], 10, 5), [0, 1]);
        assert_eq!(slots_in(&[20..30, 49..100], 10, 5), [2, 4]);
        assert_eq!(slots_in(&[10..10, 20..21], 10, 5), [2]);
    }
}
