//! Which slots of the files hold blocks, and of which logs: what the headers say.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::lost::write_lost;
use super::parallel::{self, Share};
use super::report::{OpenReport, UnknownBlock};
use crate::batch::HEADER_BYTES;
use crate::blocks::{BlockFile, SlotState, Slots};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::{FORMAT_VERSION, PAGE_BYTES};
use crate::journal::{JournalState, LogEntry};
use crate::seeded;
use crate::types::LogId;

/// Read of each slot: the header, and the first page of data.
const FRONT_BYTES: u64 = 2 * PAGE_BYTES;
/// More data of a first page is not kept: it is read again with what follows it.
const FIRST_BYTES_MAX: usize = 2 << 10;

/// A block with a valid header.
pub(super) struct Found {
    pub(super) header: BlockHeader,
    pub(super) slots: Slots,
    /// What its first page of data holds, without the zeros behind it, where that is little and its end is seen: logs that
    /// say little need no further read.
    pub(super) first: Option<Vec<u8>>,
}

/// What the headers of all blocks say.
pub(super) struct Headers {
    pub(super) found: HashMap<LogId, Vec<Found>>,
    /// Slots whose header is neither empty nor valid.
    pub(super) damaged: Vec<Slots>,
}

/// Reads all headers; the files are handed to the allocator with the states of their slots.
pub(super) fn read_headers(
    engine: &Engine,
    state: &JournalState,
    report: &mut OpenReport,
) -> Result<Headers> {
    let blocks = &engine.blocks;
    let mut headers = Headers { found: HashMap::new(), damaged: Vec::new() };
    let mut last_sequence = 0;
    for (number, class) in blocks.list()? {
        let file = blocks.open(number, class)?;
        let count = blocks.classes.slots(class);
        let fronts = read_fronts(engine, &file, count).map_err(|e| file.error("read", e))?;
        let mut states = vec![SlotState::Free; count as usize];
        let mut behind = 0; // first slot behind the block before
        for (slot, front) in fronts {
            if slot < behind {
                continue;
            }
            let mut slots = Slots { file: Arc::clone(&file), first: slot, count: 1 };
            let slot_state = match front.page {
                HeaderPage::Empty => SlotState::Freed,
                HeaderPage::Newer(found) => {
                    let path = file.path.clone();
                    return Err(Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION });
                }
                HeaderPage::Header(header)
                    if header.store == engine.store
                        && (1..=count - slot).contains(&header.slots)
                        && state.logs.contains_key(&owner(state, &header)) =>
                {
                    slots.count = header.slots;
                    last_sequence = last_sequence.max(header.sequence);
                    let (owner, slots) = (owner(state, &header), slots.clone());
                    headers.found.entry(owner).or_default().push(Found { header, slots, first: front.first });
                    SlotState::Used
                }
                HeaderPage::Header(_) => {
                    let path = file.path.clone();
                    report.unknown_blocks.push(UnknownBlock { path, slot, moved_to: None });
                    SlotState::Kept
                }
                HeaderPage::Damaged => {
                    headers.damaged.push(slots.clone());
                    SlotState::Kept
                }
            };
            behind = slot + slots.count;
            states[slot as usize..behind as usize].fill(slot_state);
        }
        blocks.adopt(file, states);
    }
    let marks = state.logs.values().flat_map(|entry| &entry.truncations).map(|(_, before)| *before);
    blocks.start_sequences_at(marks.max().unwrap_or(0).max(last_sequence + 1));
    Ok(headers)
}

/// How a slot begins.
struct Front {
    page: HeaderPage,
    first: Option<Vec<u8>>,
}

/// Reads how each slot begins that was ever used: most of a file may be holes.
fn read_fronts(engine: &Engine, file: &BlockFile, count: u32) -> io::Result<Vec<(u32, Front)>> {
    let data = file.file.data_ranges(0..engine.blocks.classes.file_bytes())?;
    let used = slots_in(&data, file.slot_bytes, count);
    let read = |slot| -> io::Result<(u32, Front)> {
        let mut bytes = Vec::new();
        let start = u64::from(slot) * file.slot_bytes;
        file.file.read(start, FRONT_BYTES.min(file.slot_bytes) as usize, &mut bytes)?;
        let (page, data) = bytes.split_at(bytes.len().min(PAGE_BYTES as usize));
        let page = BlockHeader::decode(page);
        let first = if matches!(page, HeaderPage::Header(_)) { little(data) } else { None };
        Ok((slot, Front { page, first }))
    };
    parallel::map(used, Share { threads: engine.disk.reads_at_once(), items: 8 }, read).into_iter().collect()
}

/// Slots that overlap ranges of data.
fn slots_in(data: &[Range<u64>], slot_bytes: u64, count: u32) -> Vec<u32> {
    let mut slots: Vec<u32> = Vec::new();
    for range in data.iter().filter(|range| !range.is_empty()) {
        let first = (range.start / slot_bytes) as u32;
        let next = slots.last().map_or(0, |last| last + 1);
        slots.extend(first.max(next)..(range.end.div_ceil(slot_bytes) as u32).min(count));
    }
    slots
}

/// Data without the zeros behind it, if so many follow that a batch's header would be seen, and it is worth keeping.
fn little(data: &[u8]) -> Option<Vec<u8>> {
    let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    (data.len() - end >= HEADER_BYTES && end <= FIRST_BYTES_MAX).then(|| data[..end].to_vec())
}

/// Whose block it is.
fn owner(state: &JournalState, header: &BlockHeader) -> LogId {
    if seeded!(OldIdentity) {
        let namesake = |(_, entry): &(&LogId, &LogEntry)| entry.name == header.name && !entry.deleted;
        return state.logs.iter().rfind(namesake).map_or(header.log, |(id, _)| *id);
    }
    header.log
}

/// Moves a block without a readable header out of the way and frees its slot.
pub(super) fn set_block_aside(engine: &Engine, slots: &Slots) -> Result<String> {
    let file = &slots.file;
    let range = slots.range();
    let start = range.start;
    let failed = |e| file.error("read", e);
    let ranges = file.file.data_ranges(range).map_err(failed)?;
    let end = ranges.last().map_or(start, |range| range.end);
    let mut bytes = Vec::new();
    file.file.read(start, (end - start) as usize, &mut bytes).map_err(failed)?;
    let moved_to = write_lost(&*engine.disk, &format!("block-{}-{}", file.number, slots.first), &bytes)?;
    tracing::warn!(
        path = file.path,
        slot = slots.first,
        moved_to,
        "a block without a readable header was moved"
    );
    engine.blocks.free(slots);
    Ok(moved_to)
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
