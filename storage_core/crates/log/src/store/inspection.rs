//! A view of a directory that changes no byte of it: its files, blocks and logs, what an open would report of them,
//! and whether every stored batch can still be read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::disk::Overlay;
use crate::error::{Error, Result};
use crate::handle::Log;
use crate::log::block::Block;
use crate::options::Options;
use crate::page::PAGE_BYTES;
use crate::recovery::{OpenReport, check_store};
use crate::store::Store;
use crate::types::{Epoch, FsyncSchedule, LogId, Offset};

/// How many bytes are read at a time.
const READ_BYTES: usize = 4 << 20;

/// A store as it lies on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Identity of the store.
    pub store: Uuid,
    /// Size of the store's largest blocks, in bytes.
    pub block_bytes: u64,
    /// The report that an open would make.
    pub report: OpenReport,
    /// Whether the journal once lost its end, or had to be made again: seals, trims, deletions, properties and moves
    /// of cursors may be forgotten.
    pub has_lost_promises: bool,
    /// Logs of the store, in order of id.
    pub logs: Vec<LogView>,
}

/// One log of an inspected store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogView {
    /// Identity of the log.
    pub id: LogId,
    /// Name of the log.
    pub name: String,
    /// Epoch that is written into its batches.
    pub epoch: Epoch,
    /// First offset that was not trimmed.
    pub start: Offset,
    /// First offset behind its records.
    pub end: Offset,
    /// Bytes of its batches.
    pub size_bytes: u64,
    /// Whether the log was sealed.
    pub is_sealed: bool,
    /// Whether it may lack records that its copies have.
    pub is_suspect: bool,
    /// Schedule of the log if it has its own; otherwise the default one, though the store may open with another.
    pub fsync: FsyncSchedule,
    /// Names and places of its cursors.
    pub cursors: Vec<(String, Offset)>,
    /// Blocks with its batches, in order of offset.
    pub blocks: Vec<BlockView>,
    /// Ranges of offsets that cannot be read.
    pub damaged: Vec<(Offset, Offset)>,
}

/// One block of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Path of its file.
    pub path: String,
    /// Its first slot in the file, from 0.
    pub slot: u32,
    /// Sequence of the block, which grows with each block of the store.
    pub sequence: u64,
    /// Offset of its first batch.
    pub base_offset: Offset,
    /// Bytes of its batches.
    pub data_bytes: u64,
    /// Bytes that it takes in its file: header, batches, unused space behind them, footer.
    pub bytes: u64,
}

/// Result of [`verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The inspected store; damage that was found on the way is in its logs.
    pub inspection: Inspection,
    /// Number of batches whose checksum is right.
    pub batches: u64,
    /// Bytes of these batches.
    pub bytes: u64,
}

/// Inspects a store that nobody has open, without changing it: reads the journal, the headers of blocks and the tails
/// that an open would scan.
///
/// Errors: those of [`Store::open`], and `Damaged` if the directory holds no store.
pub fn inspect(directory: impl AsRef<Path>) -> Result<Inspection> {
    let store = open(directory.as_ref())?;
    Ok(view(&store))
}

/// Inspects a store as [`inspect`] does, and reads every stored batch.
pub fn verify(directory: impl AsRef<Path>) -> Result<VerifyReport> {
    let store = open(directory.as_ref())?;
    let (mut batches, mut bytes) = (0, 0);
    for log in store.logs() {
        let mut next = log.start_offset();
        loop {
            match log.read(next, READ_BYTES) {
                Ok(slices) if slices.batches.is_empty() => break,
                Ok(slices) => {
                    batches += slices.batches.len() as u64;
                    bytes += slices.batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
                    next = slices.next_offset;
                }
                // The log has noted the damage for the inspection.
                Err(Error::Corrupted { end, .. }) => next = end,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(VerifyReport { inspection: view(&store), batches, bytes })
}

fn open(directory: &Path) -> Result<Store> {
    check_store(directory)?;
    Store::open_on(Arc::new(Overlay::new(directory)), Options::default())
}

pub(crate) fn view(store: &Store) -> Inspection {
    Inspection {
        store: store.uuid(),
        block_bytes: store.block_bytes(),
        report: store.report().clone(),
        has_lost_promises: store.has_lost_promises(),
        logs: store.logs().iter().map(view_log).collect(),
    }
}

fn view_log(log: &Log) -> LogView {
    let state = log.state();
    let directory = state.directory.read();
    LogView {
        id: log.id(),
        name: log.name().to_owned(),
        epoch: log.epoch(),
        start: log.start_offset(),
        end: log.end_offset(),
        size_bytes: log.size_bytes(),
        is_sealed: log.is_sealed(),
        is_suspect: log.is_suspect(),
        fsync: log.fsync(),
        cursors: log.cursors(),
        blocks: directory.blocks.iter().map(|block| view_block(block)).collect(),
        damaged: directory.fences.iter().map(|&(start, end)| (Offset(start), Offset(end))).collect(),
    }
}

fn view_block(block: &Block) -> BlockView {
    BlockView {
        path: block.slots.file.path.clone(),
        slot: block.slots.first,
        sequence: block.sequence,
        base_offset: Offset(block.base_offset),
        data_bytes: block.readable.load(Ordering::Acquire) - PAGE_BYTES,
        bytes: block.slots.range().end - block.slots.range().start,
    }
}
