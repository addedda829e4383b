//! A log as recovery found it on the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::Directory;
use super::open_block::Resume;
use super::queues::Queues;
use super::spec::LogSpec;
use super::state::{LogState, Phase, TrimmedPrefix};
use crate::digest::Digest;
use crate::producers::ProducerTable;
use crate::resources::Resources;
use crate::resources::journal::LogEntry;
use crate::types::{LogId, Offset};

/// The contents of a log's blocks.
pub(crate) struct Contents {
    pub(crate) directory: Directory,
    pub(crate) end: u64,
    pub(crate) producers: ProducerTable,
    pub(crate) digest: Digest,
    pub(crate) size_bytes: u64,
    /// The block in which appends go on; `None` starts a new one.
    pub(crate) resume: Option<Resume>,
    /// Sequence of the log's last block.
    pub(crate) last_sequence: u64,
}

impl LogState {
    /// Makes a log from its entry in the journal and the contents of its blocks.
    pub(crate) fn restored(
        resources: Arc<Resources>,
        queues: Arc<Queues>,
        id: LogId,
        entry: &LogEntry,
        contents: Contents,
    ) -> Self {
        let Contents { directory, end, producers, digest, size_bytes, resume, last_sequence } = contents;
        let spec = LogSpec {
            id,
            name: entry.name.clone(),
            base_offset: Offset(entry.base_offset),
            epoch: entry.epoch,
            producers,
            after: None,
            fsync: entry.fsync,
        };
        let log = Self::new(resources, queues, spec, entry.producers.clone());
        let mut writer = log.writer.lock();
        (writer.end, writer.taken, writer.last_sequence) = (end, end, last_sequence);
        (writer.digest, writer.resume) = (digest, resume);
        if let Some(sealed) = &entry.sealed {
            writer.phase = Phase::Sealed;
            let _ = log.sealed.set(sealed.clone());
        }
        drop(writer);
        *log.directory.write() = directory;
        *log.trimmed.lock() = TrimmedPrefix {
            end: entry.freed,
            digest: entry.trimmed_digest,
            producers: entry.producers_behind_trim(),
        };
        log.end.store(end, Ordering::Release);
        log.readable.store(end, Ordering::Release);
        log.synced.store(entry.synced.min(end), Ordering::Release);
        log.start.store(entry.start, Ordering::Release);
        log.size_bytes.store(size_bytes, Ordering::Relaxed);
        log.suspect.store(entry.suspect, Ordering::Release);
        log
    }
}
