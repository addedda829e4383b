//! The resources of logs: blocks in files, the journal, space, memory for tails. Nothing here knows a log.

pub(crate) mod arrivals;
pub(crate) mod blocks;
pub(crate) mod group;
pub(crate) mod indexes;
pub(crate) mod journal;
pub(crate) mod ready;
pub(crate) mod recent;
pub(crate) mod space;
pub(crate) mod tail;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::{BackendInUse, ChunkPool, Disk, Origin, TailKind};
use crate::error::{Error, Result};
use crate::format::manifest::Manifest;
use crate::seeded;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::types::FsyncSchedule;
use blocks::{BlockFile, Blocks, Slots};
use indexes::IndexCache;
use journal::Journal;
use ready::ReadyPages;
use recent::Lately;
use tail::Tail;

/// The parts of an open store that all its logs use.
pub(crate) struct Resources {
    /// The process that opened the store: no other one may use it.
    origin: Origin,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) backend: BackendInUse,
    pub(crate) manifest: Manifest,
    /// Schedule of the logs that have none of their own.
    pub(crate) fsync: FsyncSchedule,
    pub(crate) blocks: Blocks,
    pub(crate) journal: Journal,
    pub(crate) pool: Arc<ChunkPool>,
    pub(crate) lately: Lately,
    pub(crate) pages: Arc<ReadyPages>,
    pub(crate) indexes: IndexCache,
    is_closed: AtomicBool,
    /// Number of damaged ranges that were found, at open and by readers.
    pub(crate) corrupted_ranges: AtomicU64,
    /// Syncs of block files; a durable write counts as one.
    pub(crate) data_syncs: AtomicU64,
}

impl Resources {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        manifest: Manifest,
        fsync: FsyncSchedule,
        blocks: Blocks,
        journal: Journal,
        pool: Arc<ChunkPool>,
    ) -> Self {
        Self {
            origin: Origin::here(),
            backend: disk.backend(),
            disk,
            manifest,
            fsync,
            blocks,
            journal,
            pool,
            lately: Lately::default(),
            pages: Arc::default(),
            indexes: IndexCache::default(),
            is_closed: AtomicBool::new(false),
            corrupted_ranges: AtomicU64::new(0),
            data_syncs: AtomicU64::new(0),
        }
    }

    /// Fails if the store was closed, or this process is a forked child. Each call of a user asks this first, before
    /// it takes any lock: in a forked child a lock may be held by a thread that does not exist there.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_origin()?;
        if self.is_closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Fails in a forked child only. For calls that end what was begun before the close.
    #[inline]
    pub(crate) fn check_origin(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Panics in a forked child. For calls that return no error: they would wait there for a lock of a thread that
    /// does not exist, or answer with what was true before the fork.
    #[inline]
    #[track_caller]
    pub(crate) fn assert_origin(&self) {
        assert!(self.origin.is_here(), "{}", Error::Forked);
    }

    /// Refuses calls of users from now on; false if they were refused already.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Opens the tail of a block in a file that has tails of this kind; it goes on at the position `written`. With
    /// `is_fast` the log has filled its last block fast.
    pub(crate) fn open_tail(
        &self,
        slots: &Slots,
        kind: TailKind,
        written: u64,
        is_fast: bool,
    ) -> io::Result<Tail> {
        let (file, range) = (Arc::clone(&slots.file.file), slots.range());
        match kind {
            TailKind::Mapped => Ok(Tail::mapped(file, range, written, &self.pages, is_fast)),
            TailKind::Buffered => Tail::buffered(file, &range, written, &self.pool),
        }
    }

    /// Syncs files that were written outside of commits.
    pub(crate) fn sync_files(&self, files: &[&Arc<BlockFile>]) -> Result<()> {
        files.iter().try_for_each(|file| {
            self.data_syncs.fetch_add(1, Ordering::Relaxed);
            if seeded!(NoSync) { Ok(()) } else { file.file.sync().map_err(|e| file.poison("sync", e)) }
        })
    }
}
