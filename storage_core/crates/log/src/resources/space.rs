//! The space ahead of a writer: a range of a file is prepared in growing steps, by the background thread before the
//! writer gets there, or by the writer if it was faster. A small store stays small, and a busy one does not wait.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::{DiskFile, Prepare};
use crate::page::page_up;
use crate::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

const STEP_BYTES_MIN: u64 = 64 << 10;
const STEP_BYTES_MAX: u64 = 4 << 20;
/// Least position of a writer that counts as outrunning: before it, a writer that waits is only the first to use the
/// range.
const OUTRUN_BYTES_MIN: u64 = 1 << 20;

pub(crate) struct Space {
    file: Arc<dyn DiskFile>,
    range: Range<u64>,
    /// Bytes from the start of the range that have space and read as zeros until they are written.
    prepared: AtomicU64,
    /// Held while space is prepared.
    preparing: Mutex<()>,
    /// Whether zeros are written ahead of the writer; otherwise space is only reserved.
    writes_zeros: bool,
    /// Whether the writer has reached the end of the prepared bytes. It writes much then, and writing zeros first
    /// would double the work.
    is_outrun: AtomicBool,
}

impl Space {
    /// A range of which `prepared` bytes are known to have space.
    pub(crate) fn new(file: Arc<dyn DiskFile>, range: Range<u64>, prepared: u64, how: Prepare) -> Self {
        Self {
            file,
            range,
            prepared: AtomicU64::new(prepared),
            preparing: Mutex::new(()),
            writes_zeros: how == Prepare::Written,
            is_outrun: AtomicBool::new(false),
        }
    }

    /// Notes that everything up to `end` has space, since it holds data.
    pub(crate) fn assume(&self, end: u64) {
        self.prepared.fetch_max(end, Ordering::AcqRel);
    }

    /// Size of the whole range.
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Makes room up to `end`, in the caller's thread; cheap where it was prepared before.
    #[inline]
    pub(crate) fn reach(&self, end: u64) -> io::Result<()> {
        if end <= self.prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        if end >= OUTRUN_BYTES_MIN {
            self.is_outrun.store(true, Ordering::Relaxed);
        }
        self.prepare(end.saturating_add(self.step(end)), Prepare::Reserved)
            .or_else(|_| self.prepare(end, Prepare::Reserved))
    }

    /// Whether more should be prepared now for a writer at the position `written`.
    #[inline]
    pub(crate) fn is_short(&self, written: u64) -> bool {
        let prepared = self.prepared.load(Ordering::Relaxed);
        prepared < self.bytes() && prepared.saturating_sub(written) < self.step(written) / 2
    }

    /// Prepares space ahead of a writer at the position `written`.
    pub(crate) fn prepare_ahead(&self, written: u64) -> io::Result<()> {
        let writes_zeros = self.writes_zeros && !self.is_outrun.load(Ordering::Relaxed);
        let how = if writes_zeros { Prepare::Written } else { Prepare::Reserved };
        self.prepare(written.saturating_add(self.step(written)), how)
    }

    /// Size of the next step: as much as was written before, within limits, so that a log that writes more gets more
    /// at a time.
    fn step(&self, written: u64) -> u64 {
        written.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
    }

    fn prepare(&self, end: u64, how: Prepare) -> io::Result<()> {
        let _preparing = self.preparing.lock();
        let prepared = self.prepared.load(Ordering::Acquire);
        let end = page_up(end).min(self.bytes());
        if prepared < end {
            self.file.prepare(self.range.start + prepared..self.range.start + end, how)?;
            self.prepared.store(end, Ordering::Release);
        }
        Ok(())
    }
}
