//! Walks of any bytes as the data of a block: first as they are, then as batches that were all stored there, then with
//! one of these damaged. No walk takes a batch for another, skips a good one or goes on for ever, whatever lies there.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_BYTES, write_offsets};
use crate::disk::{DiskFile, MappedRange, Prepare};
use crate::format::checksum;
use crate::format::fields::Fields;
use crate::format::mark::BlockKey;
use crate::log::scan::{BatchesBehind, Bounds, Walk, Window, walk};
use crate::page::PAGE_BYTES;

/// Position in a batch from which on its own checksum covers it; the checksum lies in front of it.
const COVERED_AT: usize = 21;

/// Place of a batch that was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchPlace {
    position: u64,
    base_offset: u64,
    end_offset: u64,
    begins_commit: bool,
}

/// The choices of an input, which its first bytes make.
struct Choices {
    base_offset: u64,
    known: u64,
    limit: u64,
    /// Index of the byte of the data that is damaged, modulo its length.
    hit: u16,
    /// Bits of that byte that are flipped.
    flip: u8,
    /// Whether each batch begins a commit, one bit for each of eight batches, and again from the first bit on.
    commits: u8,
}

impl Choices {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let base_offset = u64::from(fields.u16()?);
        let known = base_offset + u64::from(fields.u16()?);
        let limit = Some(fields.u16()?).filter(|limit| *limit != u16::MAX);
        let limit = limit.map_or(u64::MAX, |limit| base_offset + u64::from(limit));
        let (hit, flip, commits) = (fields.u16()?, fields.u8()?, fields.u8()?);
        Some(Self { base_offset, known, limit, hit, flip, commits })
    }
}

pub(super) fn data(bytes: &[u8]) {
    let mut fields = Fields(bytes);
    let Some(choices) = Choices::read(&mut fields) else { return };
    // The key is made of the whole input, so that no input can hold marks of it.
    let key = BlockKey(checksum(bytes));
    let mut block = Memory([&[0; PAGE_BYTES as usize], fields.0].concat());
    let Choices { base_offset, known, limit, .. } = choices;
    let bounds = Bounds { base_offset, known, limit };
    let all = Bounds { known: base_offset, limit: u64::MAX, ..bounds };
    check(&block, key, bounds);
    let stored = store(&mut block.0, key, &choices);
    check(&block, key, bounds);
    let (walked, seen) = check(&block, key, all);
    assert_eq!((seen, walked.fences), (offsets(&stored), Vec::new()), "what was stored is there");
    let Some(last) = stored.last() else { return };
    let data = PAGE_BYTES..walked.data_end;
    let hit = data.start + u64::from(choices.hit) % (data.end - data.start);
    if choices.flip == 0 {
        return;
    }
    block.0[hit as usize] ^= choices.flip;
    let at = stored.partition_point(|batch| batch.position <= hit) - 1;
    let (before, damaged, behind) = (&stored[..at], stored[at], &stored[at + 1..]);
    let (walked, seen) = check(&block, key, all);
    assert_eq!(
        (seen, walked.fences),
        (offsets(before), Vec::new()),
        "an unknown tail ends at its first bad batch"
    );
    let found =
        window(&block, key).behind(damaged.position, damaged.base_offset + 1..u64::MAX).expect("memory");
    let durable_to = behind.iter().rfind(|batch| batch.begins_commit).map(|batch| batch.base_offset);
    assert_eq!(
        found,
        BatchesBehind { batches: behind.len() as u64, durable_to },
        "what lies behind a bad batch"
    );
    let (walked, seen) = check(&block, key, Bounds { known: last.end_offset, ..all });
    assert_eq!(seen, offsets(&[before, behind].concat()), "all but the bad batch");
    assert_eq!(walked.fences, [(damaged.base_offset, damaged.end_offset)]);
}

/// Turns the bytes into a chain of stored batches, for as long as they look like headers of batches.
fn store(block: &mut [u8], key: BlockKey, choices: &Choices) -> Vec<BatchPlace> {
    let (mut position, mut base_offset) = (PAGE_BYTES as usize, choices.base_offset);
    let mut stored = Vec::new();
    while let Some(front) = block.get_mut(position..position + HEADER_BYTES) {
        write_offsets(front, base_offset, 0);
        let Ok(header) = BatchHeader::peek(front) else { break };
        let Some(batch) = block.get_mut(position..position + header.size_bytes()) else { break };
        let crc = checksum(&batch[COVERED_AT..]);
        batch[COVERED_AT - 4..COVERED_AT].copy_from_slice(&crc.to_be_bytes());
        let header = BatchHeader::peek(batch).expect("only its checksum is another one");
        let begins_commit = choices.commits >> (stored.len() % 8) & 1 == 1;
        write_offsets(batch, base_offset, key.mark(position as u64, base_offset, &header, begins_commit));
        let end_offset = base_offset + u64::from(header.record_count());
        stored.push(BatchPlace { position: position as u64, base_offset, end_offset, begins_commit });
        (position, base_offset) = (position + header.size_bytes(), end_offset);
    }
    stored
}

fn offsets(stored: &[BatchPlace]) -> Vec<(u64, u64)> {
    stored.iter().map(|batch| (batch.base_offset, batch.end_offset)).collect()
}

fn window(block: &Memory, key: BlockKey) -> Window<'_> {
    Window::of_file(block, key, block.0.len() as u64)
}

/// Walks the block, and returns the offsets of the batches that were seen. Together with the fenced ranges they must be
/// all offsets from the first to the end, each once.
fn check(block: &Memory, key: BlockKey, bounds: Bounds) -> (Walk, Vec<(u64, u64)>) {
    let mut seen = Vec::new();
    let walked =
        walk(&mut window(block, key), bounds, |batch| seen.push((batch.base_offset(), batch.end_offset())));
    let walked = walked.expect("memory can be read");
    let mut ranges = [seen.as_slice(), &walked.fences].concat();
    ranges.sort_unstable();
    let end = ranges.iter().fold(bounds.base_offset, |at, (start, end)| {
        assert!(at == *start && start < end, "{ranges:?} from {}", bounds.base_offset);
        *end
    });
    assert_eq!(end, walked.end_offset);
    assert!(end >= bounds.known.min(bounds.limit) && end <= bounds.limit.max(bounds.base_offset));
    assert!((PAGE_BYTES..=block.0.len() as u64).contains(&walked.data_end));
    let mut positions = walked.entries.iter().map(|entry| u64::from(entry.position));
    assert!(positions.all(|position| (PAGE_BYTES..walked.data_end).contains(&position)));
    assert!(
        walked.entries.is_sorted_by(|one, next| (one.offset, one.position) < (next.offset, next.position))
    );
    assert!(walked.entries.iter().all(|entry| seen.iter().any(|(base, _)| *base == entry.offset)));
    (walked, seen)
}

/// A file in memory that is only read.
struct Memory(Vec<u8>);

impl DiskFile for Memory {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let rest = self.0.get(position as usize..).unwrap_or_default();
        out.extend_from_slice(&rest[..bytes.min(rest.len())]);
        Ok(())
    }

    fn write(&self, _: u64, _: &[&[u8]], _: bool) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn prepare(&self, _: Range<u64>, _: Prepare) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn discard(&self, _: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn data_ranges(&self, _: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn claim(self: Arc<Self>, _: Range<u64>) -> Box<dyn MappedRange> {
        panic!("only mapped files have ranges to claim")
    }
}
