//! Recovery makes logs from the bytes on the disk. It scans only tails that may not be synced. Torn bytes there are
//! cut, moved aside and reported; damage below the synced mark is fenced and stays where it is.

mod adopted;
mod assembly;
mod groups;
mod link;
mod lost;
mod manifest;
mod parallel;
mod progress;
mod rebuild;
mod rendering;
mod report;
mod slots;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::commit::committer::Committer;
use crate::error::Result;
use crate::resources::blocks::BlockFile;
use crate::resources::journal::{JournalState, LogEntry, Record};
use crate::types::{FsyncSchedule, LogId};
pub(crate) use adopted::adopt;
pub(crate) use lost::write_lost;
pub(crate) use manifest::{OpenManifest, check_store, open_manifest};
use parallel::Share;
pub use progress::OpenProgress;
use rebuild::{Findings, Rebuild};
pub use report::{CorruptedRange, CutFile, LostEnd, MovedCursor, OpenReport, TornTail, UnknownBlock};
pub(crate) use slots::{FileFronts, read_fronts};
use slots::{FoundBlock, Headers, set_block_aside, sort_slots};

/// Builds the logs of the journal from the blocks in the files.
pub(crate) fn recover(
    committer: &Committer,
    state: &JournalState,
    fronts: Vec<FileFronts>,
    report: &mut OpenReport,
    progress: &OpenProgress,
) -> Result<()> {
    let Committer { resources, queues, registry, .. } = committer;
    let Headers { mut found, mut damaged } = sort_slots(resources, state, fronts, report);
    let boot = resources.disk.boot();
    let mut kept: Vec<(LogId, &LogEntry, Vec<FoundBlock>)> = Vec::with_capacity(state.logs.len());
    for (&id, entry) in &state.logs {
        let blocks = found.remove(&id).unwrap_or_default();
        if entry.deleted {
            for block in blocks {
                damaged.extend(block.let_go(&resources.blocks)?);
            }
            registry.note_deleted(id);
            progress.step();
            continue;
        }
        if entry.sealed.is_none() && !is_vouched_for(state, entry, boot) {
            report.unsynced_logs.push(id);
        }
        kept.push((id, entry, blocks));
    }
    // A thread takes one log at a time, since a log may be gigabytes or one page.
    let share = Share { threads: resources.disk.reads_at_once(), items: 1 };
    let rebuilt = parallel::map(kept, share, |(id, entry, blocks)| {
        let fsync = entry.fsync.unwrap_or(resources.fsync);
        let fsync_before = entry.fsync.or(state.fsync).unwrap_or_default();
        let trims_are_synced = fsync_before == FsyncSchedule::SyncEach;
        let cuts_are_synced = fsync_before.syncs();
        let is_vouched_for = is_vouched_for(state, entry, boot);
        let is_complete = state.closed && is_vouched_for && entry.sealed.is_none();
        let findings = Findings::default();
        let rebuilt = Rebuild {
            resources,
            queues,
            id,
            entry,
            fsync,
            trims_are_synced,
            cuts_are_synced,
            is_vouched_for,
            is_complete,
            proven: 0,
            findings,
        }
        .run(blocks);
        progress.step();
        rebuilt
    });
    let mut unsynced: Vec<Arc<BlockFile>> = Vec::new();
    for log in rebuilt {
        let (log, findings) = log?;
        report.torn_tails.extend(findings.torn_tails);
        report.corrupted.extend(findings.corrupted);
        damaged.extend(findings.foreign);
        report.made_again.extend(findings.made_again);
        unsynced.extend(findings.unsynced);
        registry.insert(log);
    }
    for slots in damaged {
        let moved_to = if report.corrupted.is_empty() { set_block_aside(resources, &slots)? } else { None };
        let (path, slot) = (slots.file.path.clone(), slots.first);
        report.unknown_blocks.push(UnknownBlock { path, slot, moved_to });
    }
    if report.may_lack_blocks() {
        suspect_open_logs(committer, state)?;
    }
    // Bytes that a killed process wrote may be in the page cache only, and are served from now on, so they are synced.
    unsynced.sort_unstable_by_key(|file| file.name);
    unsynced.dedup_by_key(|file| file.name);
    for file in &unsynced {
        file.file.sync().map_err(|e| file.error("sync", e))?;
    }
    for log in registry.all().iter().filter(|log| log.syncs()) {
        let end = log.end.load(Ordering::Acquire);
        log.synced.store(end, Ordering::Release);
        if end > state.logs[&log.id].synced {
            resources.journal.append(&Record::Synced { log: log.id, end })?;
        }
    }
    Ok(())
}

/// Makes open logs suspect, since a block that cannot be read may have been the end of any of them. A log that ends at
/// the synced mark of a close in order is left out: it cannot have lost its end.
fn suspect_open_logs(committer: &Committer, state: &JournalState) -> Result<()> {
    for log in committer.registry.all() {
        let end = log.end.load(Ordering::Acquire);
        let is_marked = state.closed && state.logs[&log.id].synced == end;
        if log.sealed.get().is_none() && !is_marked && !log.suspect.swap(true, Ordering::AcqRel) {
            committer.resources.journal.append(&Record::Suspect { log: log.id, end })?;
        }
    }
    Ok(())
}

/// Whether everything that a log had is there, as far as its schedule tells.
fn is_vouched_for(state: &JournalState, entry: &LogEntry, boot: Option<Uuid>) -> bool {
    match entry.fsync.or(state.fsync).unwrap_or_default() {
        FsyncSchedule::SyncEach => true,
        // A close in order syncs the log.
        FsyncSchedule::Milliseconds(_) => state.closed,
        FsyncSchedule::NoFsync => state.closed && boot.is_some() && state.left_unsynced == boot,
    }
}
