//! One block of a log: where it lies in its file, how far it can be read, and at which position an offset is.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::batch::BatchHeader;
use crate::digest::Digest;
use crate::disk::{AlignedPage, DiskFile, write_all};
use crate::format::block_header::BlockHeader;
use crate::format::epochs::Epochs;
use crate::format::footer::{Footer, IndexEntry, footer_reserve};
use crate::format::mark::BlockKey;
use crate::page::{PAGE_BYTES, page_up};
use crate::resources::blocks::Slots;
use crate::resources::indexes::IndexCache;
use crate::resources::recent::Recent;
use crate::resources::space::Space;
use crate::sync::{
    RwLock,
    atomic::{AtomicBool, AtomicU64},
};

/// A block of a log. Positions count from the start of the block.
pub(crate) struct Block {
    pub(crate) slots: Slots,
    pub(crate) space: Arc<Space>,
    /// Position of the block in its file.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) sequence: u64,
    pub(crate) base_offset: u64,
    /// Key of the marks that name the place of a batch in this block.
    pub(crate) key: BlockKey,
    /// Epochs of the batches: readers get them back in the place of the marks.
    pub(crate) epochs: Epochs,
    /// First position that readers may not see.
    pub(crate) readable: AtomicU64,
    /// Bytes that may not be on the disk yet, and those that are there since a short while. `None` if readers find all of
    /// them in the file.
    pub(crate) recent: RwLock<Option<Arc<Recent>>>,
    pub(crate) index: RwLock<BlockIndex>,
    /// Set once, when the log goes on in another block or is sealed.
    pub(crate) closed: OnceLock<ClosedBlock>,
    /// Set when the slots were given back: they may hold the bytes of another block by now.
    pub(crate) freed: AtomicBool,
    /// Whether the background thread was asked for space and has not answered.
    pub(crate) extending: AtomicBool,
}

/// The sparse index of a block, which finds the position of an offset.
pub(crate) enum BlockIndex {
    /// The index is in memory and complete.
    Loaded(Arc<Vec<IndexEntry>>),
    Growing(Vec<IndexEntry>),
    /// The index is in the footer.
    OnDisk,
}

/// How far before the end of a mapped block its bytes are taken to be in memory.
const MAPPED_LATELY_BYTES: u64 = 1 << 20;

/// The index entry to start from in search of an offset: the last at or below it.
fn entry_at(entries: &[IndexEntry], offset: u64) -> Option<IndexEntry> {
    let after = entries.partition_point(|entry| entry.offset <= offset);
    after.checked_sub(1).map(|index| entries[index])
}

/// Totals of a block that takes no more batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedBlock {
    pub(crate) end_offset: u64,
    pub(crate) max_timestamp: i64,
    pub(crate) data_end: u64,
    pub(crate) digest: Digest,
}

impl Block {
    /// Makes a block without data from its header.
    pub(crate) fn new(slots: Slots, space: Arc<Space>, header: &BlockHeader) -> Self {
        let range = slots.range();
        let &BlockHeader { manifest, log, sequence, base_offset, ref epochs, .. } = header;
        Self {
            slots,
            space,
            start: range.start,
            bytes: range.end - range.start,
            sequence,
            base_offset,
            key: BlockKey::new(manifest.store, log, sequence),
            epochs: epochs.clone(),
            readable: AtomicU64::new(PAGE_BYTES),
            recent: RwLock::new(None),
            index: RwLock::new(BlockIndex::OnDisk),
            closed: OnceLock::new(),
            freed: AtomicBool::new(false),
            extending: AtomicBool::new(false),
        }
    }

    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.slots.file.file
    }

    /// Range of the block in its file.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes
    }

    /// Whether the mark of a stored batch says that it was written to that position of this block.
    #[inline]
    pub(crate) fn has(&self, position: u64, header: &BatchHeader) -> bool {
        self.key.check(position, header).is_some()
    }

    /// Appends the bytes of a range of positions, all of them readable, to `out`.
    pub(crate) fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> io::Result<()> {
        let recent = self.recent.read().clone();
        match recent {
            Some(recent) => recent.read(self.file(), self.start, range, out),
            None => self.file().read(self.start + range.start, (range.end - range.start) as usize, out),
        }
    }

    /// Whether a read from an offset on waits for no disk, as far as this block is concerned.
    pub(crate) fn is_in_memory(&self, offset: u64, cache: &IndexCache) -> bool {
        if matches!(&*self.index.read(), BlockIndex::OnDisk) && !cache.has(self.sequence) {
            return false;
        }
        let Ok(entry) = self.entry_for(offset, cache) else { return false };
        let position = entry.map_or(PAGE_BYTES, |entry| u64::from(entry.position));
        match &*self.recent.read() {
            Some(recent) => recent.has(position),
            // The page cache has what was stored into a mapping just now.
            None => {
                let readable = self.readable.load(Ordering::Acquire);
                self.closed.get().is_none() && readable.saturating_sub(position) <= MAPPED_LATELY_BYTES
            }
        }
    }

    /// Adds an index entry, and sets the greatest timestamp of the one before it.
    pub(crate) fn push_index(&self, entry: IndexEntry, max_timestamp_before: i64) {
        if let BlockIndex::Growing(entries) = &mut *self.index.write() {
            if let Some(last) = entries.last_mut() {
                last.max_timestamp = max_timestamp_before;
            }
            entries.push(entry);
        }
    }

    /// The index entry to start from in search of an offset: the last at or below it.
    pub(crate) fn entry_for(&self, offset: u64, cache: &IndexCache) -> io::Result<Option<IndexEntry>> {
        self.with_index(cache, |entries| entry_at(entries, offset))
    }

    /// The index entry to start from in search of a timestamp: the first that may cover a record which is not older.
    pub(crate) fn entry_for_timestamp(
        &self,
        timestamp: i64,
        cache: &IndexCache,
    ) -> io::Result<Option<IndexEntry>> {
        self.with_index(cache, |entries| {
            let before = entries.partition_point(|entry| entry.max_timestamp < timestamp);
            entries.get(before).copied()
        })
    }

    fn with_index<T>(&self, cache: &IndexCache, look: impl Fn(&[IndexEntry]) -> T) -> io::Result<T> {
        match &*self.index.read() {
            BlockIndex::Growing(entries) => return Ok(look(entries)),
            BlockIndex::Loaded(entries) => return Ok(look(entries)),
            BlockIndex::OnDisk => {}
        }
        let entries = cache.get(self.sequence, || {
            // The footer was valid when the block was opened. If it was damaged since, the block is read from its
            // start.
            let footer = self.read_footer()?;
            Ok(footer.map(|footer| footer.entries).unwrap_or_default())
        })?;
        Ok(look(&entries))
    }

    /// The footer on the disk, if it is a whole and valid one of this block.
    pub(crate) fn read_footer(&self) -> io::Result<Option<Footer>> {
        let mut last_page = Vec::new();
        let end = self.range().end;
        self.file().read(end - PAGE_BYTES, PAGE_BYTES as usize, &mut last_page)?;
        let Some(bytes) = Footer::announced_bytes(&last_page).filter(|bytes| *bytes <= self.bytes) else {
            return Ok(None);
        };
        let mut footer = Vec::new();
        self.file().read(end - bytes, bytes as usize, &mut footer)?;
        Ok(Footer::decode(&footer)
            .filter(|footer| (footer.key, footer.sequence) == (self.key, self.sequence)))
    }

    /// Whether anything but zeros was ever written to the last page, where a footer ends.
    pub(crate) fn had_footer(&self) -> io::Result<bool> {
        let mut last_page = Vec::new();
        self.file().read(self.range().end - PAGE_BYTES, PAGE_BYTES as usize, &mut last_page)?;
        Ok(last_page.iter().any(|&byte| byte != 0))
    }

    /// Position at which the footer starts at the latest, so that no data lies behind it. A footer that announces more
    /// bytes, valid or torn, starts earlier.
    pub(crate) fn footer_start(&self) -> io::Result<u64> {
        let mut last_page = Vec::new();
        self.file().read(self.range().end - PAGE_BYTES, PAGE_BYTES as usize, &mut last_page)?;
        let announced = Footer::announced_bytes(&last_page).filter(|bytes| *bytes <= self.bytes);
        Ok(self.bytes - announced.unwrap_or(0).max(footer_reserve(self.bytes)))
    }

    /// Whether everything of a closed block is with the disk.
    pub(crate) fn is_written(&self) -> bool {
        self.closed.get().is_some() && self.recent.read().as_ref().is_none_or(|recent| recent.is_written())
    }

    /// Writes the footer where it fits, and leaves the index to the cache. The footer is not synced: it can be derived
    /// from the batches.
    pub(crate) fn write_footer(&self, producers: Option<Vec<u8>>, cache: &IndexCache) -> io::Result<()> {
        let Some(&ClosedBlock { end_offset, max_timestamp, data_end, digest }) = self.closed.get() else {
            return Ok(());
        };
        let entries = match &*self.index.read() {
            BlockIndex::Growing(entries) => Arc::new(entries.clone()),
            BlockIndex::Loaded(entries) => Arc::clone(entries),
            BlockIndex::OnDisk => return Ok(()),
        };
        let (key, sequence, base_offset) = (self.key, self.sequence, self.base_offset);
        let footer = Footer {
            key,
            sequence,
            base_offset,
            end_offset,
            max_timestamp,
            data_end,
            digest,
            entries,
            producers,
        };
        let Some(bytes) = footer.encode(self.bytes - page_up(data_end)) else {
            return Ok(());
        };
        let pages: Vec<AlignedPage> = bytes.chunks(PAGE_BYTES as usize).map(AlignedPage::padded).collect();
        let parts: Vec<&[u8]> = pages.iter().map(|page| &**page).collect();
        write_all(self.file(), self.range().end - bytes.len() as u64, &parts, false)?;
        cache.keep(self.sequence, footer.entries);
        *self.index.write() = BlockIndex::OnDisk;
        Ok(())
    }
}

impl Block {
    /// Makes a copy of the block that ends earlier, in the same slots.
    pub(crate) fn cut_to(&self, closed: ClosedBlock, index: BlockIndex) -> Self {
        Self {
            slots: self.slots.clone(),
            space: Arc::clone(&self.space),
            start: self.start,
            bytes: self.bytes,
            sequence: self.sequence,
            base_offset: self.base_offset,
            key: self.key,
            epochs: self.epochs.clone(),
            readable: AtomicU64::new(closed.data_end),
            recent: RwLock::new(None),
            index: RwLock::new(index),
            closed: OnceLock::from(closed),
            freed: AtomicBool::new(false),
            extending: AtomicBool::new(false),
        }
    }

    /// First offset behind the block, once it takes no more batches.
    pub(crate) fn closed_end(&self) -> Option<u64> {
        self.closed.get().map(|closed| closed.end_offset)
    }

    /// Whether bytes that were just read from the block are its own: its slots were not given back before.
    pub(crate) fn is_still_there(&self) -> bool {
        !self.freed.load(Ordering::Acquire)
    }
}
