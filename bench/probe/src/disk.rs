//! Durable writes: O_DIRECT, each with RWF_DSYNC.
//!
//! A file that was written in full before needs no allocation and no metadata commit, so a write to it costs one trip to
//! the disk and nothing else. A log that grows writes to space that was never written. Disks that take space from a
//! pool at the first write (most virtual ones do) need longer for that, which is a limit of its own.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{ReadWriteFlags, pwritev2};
use walrus_bench_sample::{Latencies, Payload, Sample, closed_loop};

/// What O_DIRECT asks of buffers, lengths and positions on every disk of today.
pub(crate) const PAGE_BYTES: usize = 4096;
const MIB: usize = 1 << 20;
const BANDWIDTH_IN_FLIGHT: u64 = 2;
/// How much larger than a recycled file one is that is written once: long enough to measure.
const FRESH_TIMES: u64 = 2;

/// A file for writes past the page cache, which go round in it.
pub(crate) struct DirectFile {
    file: File,
    bytes: u64,
}

impl DirectFile {
    /// Opens `path`, whose every page is written, for durable writes, after filling it with zeros unless it has `bytes` already.
    pub(crate) fn recycled(path: &Path, bytes: u64) -> Result<Self> {
        ensure!(bytes >= (MIB as u64) * BANDWIDTH_IN_FLIGHT, "the file must hold at least 2 MiB");
        if !path.metadata().is_ok_and(|found| found.len() >= bytes) {
            fill_with_zeros(path, bytes).with_context(|| format!("cannot fill {}", path.display()))?;
        }
        Ok(Self { file: open_direct(path)?, bytes })
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

/// Opens a file for writes past the page cache.
fn open_direct(path: &Path) -> Result<File> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).context("O_DIRECT does not fit")?;
    OpenOptions::new()
        .write(true)
        .custom_flags(direct)
        .open(path)
        .with_context(|| format!("cannot open {} with O_DIRECT", path.display()))
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
pub(crate) fn durable_4k(file: &DirectFile, duration: Duration) -> Result<Sample> {
    let page = AlignedBuffer::filled(PAGE_BYTES);
    let latencies =
        closed_loop(duration, |number| file.write_durably(page.bytes(), number * PAGE_BYTES as u64))?;
    Ok(Sample::new(latencies.per_second(), "writes/s").with_latencies(&latencies))
}

/// Two callers, each in its own half of the file, that wait for each 1 MiB.
pub(crate) fn durable_bandwidth(file: &DirectFile, duration: Duration) -> Result<Sample> {
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

/// Two callers that each write their half of a new file of twice `bytes`, 1 MiB at a time, and wait for each. The file
/// system has set the space aside; nothing was ever written there.
pub(crate) fn durable_bandwidth_fresh(path: &Path, bytes: u64) -> Result<Sample> {
    let mib_of_each = bytes * FRESH_TIMES / BANDWIDTH_IN_FLIGHT / MIB as u64;
    ensure!(mib_of_each > 0, "the file must hold at least 1 MiB");
    let bytes = mib_of_each * BANDWIDTH_IN_FLIGHT * MIB as u64;
    let path = path.with_extension("fresh");
    let written = write_once(&path, bytes, mib_of_each);
    let removed = std::fs::remove_file(&path);
    let seconds = written.with_context(|| format!("cannot write {}", path.display()))?.as_secs_f64();
    removed.with_context(|| format!("cannot remove {}", path.display()))?;
    #[expect(clippy::cast_precision_loss, reason = "a file of a few gigabytes")]
    Ok(Sample::new(bytes as f64 / seconds / 1e6, "MB/s"))
}

/// How long the writing took.
fn write_once(path: &Path, bytes: u64, mib_of_each: u64) -> Result<Duration> {
    let made = File::create(path)?;
    fallocate(&made, FallocateFlags::empty(), 0, bytes)?;
    made.sync_all()?;
    let file = DirectFile { file: open_direct(path)?, bytes };
    let start = Instant::now();
    let callers: Vec<Result<()>> = thread::scope(|scope| {
        let started: Vec<_> = (0..BANDWIDTH_IN_FLIGHT)
            .map(|caller| {
                let file = &file;
                scope.spawn(move || {
                    let buffer = AlignedBuffer::filled(MIB);
                    let mut mib = caller * mib_of_each..(caller + 1) * mib_of_each;
                    mib.try_for_each(|mib| file.write_durably(buffer.bytes(), mib * MIB as u64))
                })
            })
            .collect();
        started.into_iter().map(|caller| caller.join().expect("a caller panicked")).collect()
    });
    callers.into_iter().collect::<Result<()>>()?;
    Ok(start.elapsed())
}
