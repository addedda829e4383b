//! Durable writes to a file that was written in full before: O_DIRECT, each write with RWF_DSYNC.
//! Such a file needs no allocation and no metadata commit, so a write costs one trip to the disk and nothing else.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};
use walrus_bench_sample::{Latencies, Payload, Sample, closed_loop};

/// What O_DIRECT asks of buffers, lengths and positions on every disk of today.
pub(crate) const PAGE_BYTES: usize = 4096;
const MIB: usize = 1 << 20;
const BANDWIDTH_IN_FLIGHT: u64 = 2;

/// A file whose every page is allocated and written; writes go round in it.
pub(crate) struct RecycledFile {
    file: File,
    bytes: u64,
}

impl RecycledFile {
    /// Opens `path` for durable writes, after filling it with zeros unless it has `bytes` already.
    pub(crate) fn open(path: &Path, bytes: u64) -> Result<Self> {
        ensure!(bytes >= (MIB as u64) * BANDWIDTH_IN_FLIGHT, "the file must hold at least 2 MiB");
        if !path.metadata().is_ok_and(|found| found.len() >= bytes) {
            fill_with_zeros(path, bytes).with_context(|| format!("cannot fill {}", path.display()))?;
        }
        let direct = i32::try_from(OFlags::DIRECT.bits()).context("O_DIRECT does not fit")?;
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(direct)
            .open(path)
            .with_context(|| format!("cannot open {} with O_DIRECT", path.display()))?;
        Ok(Self { file, bytes })
    }

    /// Writes `buffer` (whole pages) at `position` modulo the file; durable on return.
    pub(crate) fn write_durably(&self, buffer: &[u8], position: u64) -> Result<()> {
        let room = self.bytes - buffer.len() as u64 + 1;
        let position = (position % room) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let written = pwritev2(&self.file, &[IoSlice::new(buffer)], position, ReadWriteFlags::DSYNC)
            .context("durable write failed")?;
        ensure!(written == buffer.len(), "short write: {written} of {} bytes", buffer.len());
        Ok(())
    }
}

fn fill_with_zeros(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; MIB];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(MIB).min(MIB);
        file.write_all(&zeros[..part])?;
        left -= part as u64;
    }
    file.sync_all()?;
    Ok(())
}

/// Memory that O_DIRECT takes: aligned to a page.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl AlignedBuffer {
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let memory = vec![0; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        Self { memory, start, bytes }
    }

    /// Filled with bytes that do not compress and are no zeros, in case the disk below is clever.
    pub(crate) fn filled(bytes: usize) -> Self {
        let mut buffer = Self::zeroed(bytes);
        let mut payload = Payload::new(PAGE_BYTES);
        for (number, page) in (0..).zip(buffer.bytes_mut().chunks_mut(PAGE_BYTES)) {
            page.copy_from_slice(&payload.record(number)[..page.len()]);
        }
        buffer
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// One caller that waits for each 4 KiB.
pub(crate) fn durable_4k(file: &RecycledFile, duration: Duration) -> Result<Sample> {
    let page = AlignedBuffer::filled(PAGE_BYTES);
    let latencies =
        closed_loop(duration, |number| file.write_durably(page.bytes(), number * PAGE_BYTES as u64))?;
    Ok(Sample::new(latencies.per_second(), "writes/s").with_latencies(&latencies))
}

/// Two callers, each in its own half of the file, that wait for each 1 MiB.
pub(crate) fn durable_bandwidth(file: &RecycledFile, duration: Duration) -> Result<Sample> {
    let half = file.bytes / BANDWIDTH_IN_FLIGHT / MIB as u64;
    let callers: Vec<Result<Latencies>> = thread::scope(|scope| {
        let started: Vec<_> = (0..BANDWIDTH_IN_FLIGHT)
            .map(|caller| {
                scope.spawn(move || {
                    let buffer = AlignedBuffer::filled(MIB);
                    closed_loop(duration, |number| {
                        let mib = caller * half + number % half;
                        file.write_durably(buffer.bytes(), mib * MIB as u64)
                    })
                })
            })
            .collect();
        started.into_iter().map(|caller| caller.join().expect("a caller panicked")).collect()
    });
    let mut writes_per_second = 0.0;
    for latencies in callers {
        writes_per_second += latencies?.per_second();
    }
    Ok(Sample::new(writes_per_second * MIB as f64 / 1e6, "MB/s"))
}
