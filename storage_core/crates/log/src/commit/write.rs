//! The write of a commit: the captured bytes of its logs go to their files, and files of logs that sync are synced.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::log::capture::LogCapture;
use crate::resources::Resources;
use crate::resources::blocks::BlockFile;
use crate::resources::tail::TailCapture;
use crate::seeded;

/// The writes of a commit to one file.
struct FileWrites<'a> {
    file: &'a Arc<BlockFile>,
    /// Whether a log that syncs has written to the file.
    syncs: bool,
    writes: Vec<(u64, Vec<&'a [u8]>)>,
}

/// Writes what was captured and returns the number of bytes. One dirty block is one durable write; with several, each
/// file gets its writes and then one sync. Blocks of logs that never sync are written and not synced. A file that
/// fails is poisoned.
pub(super) fn write(resources: &Resources, captures: &[LogCapture]) -> u64 {
    let mut bytes = 0;
    let synced = captures.iter().filter(|capture| capture.log.syncs()).map(|capture| capture.blocks.len());
    let is_single = synced.sum::<usize>() == 1;
    let mut files: Vec<FileWrites<'_>> = Vec::new();
    let parts = captures.iter().flat_map(|capture| {
        capture.blocks.iter().map(|(block, captured)| (capture.log.syncs(), block, captured))
    });
    for (syncs, block, captured) in parts {
        let file = &block.slots.file;
        if is_single && syncs && captured.has_writes() {
            bytes += write_durably(resources, file, captured);
            continue;
        }
        let known = files.iter().position(|known| known.file.name == file.name);
        let index = known.unwrap_or_else(|| {
            files.push(FileWrites { file, syncs: false, writes: Vec::new() });
            files.len() - 1
        });
        files[index].syncs |= syncs;
        files[index].writes.extend(captured.has_writes().then(|| captured.as_write()));
    }
    let is_usable = |file: &BlockFile| file.poisoned.get().is_none();
    for FileWrites { file, writes, .. } in files.iter().filter(|file| is_usable(file.file)) {
        match file.file.write_many(writes) {
            Ok(()) => bytes += size_of_parts(writes.iter().flat_map(|(_, parts)| parts)),
            Err(error) => drop(file.poison("write", error)),
        }
    }
    for FileWrites { file, .. } in files.iter().filter(|file| file.syncs && is_usable(file.file)) {
        resources.data_syncs.fetch_add(1, Ordering::Relaxed);
        let synced = if seeded!(NoSync) { Ok(()) } else { file.file.sync() };
        let synced = if seeded!(RetryAfterEio) { synced.or_else(|_| file.file.sync()) } else { synced };
        if let Err(error) = synced {
            let _ = file.poison("sync", error);
        }
    }
    bytes
}

fn write_durably(resources: &Resources, file: &BlockFile, captured: &TailCapture) -> u64 {
    if file.poisoned.get().is_some() {
        return 0;
    }
    match captured.write(!seeded!(NoSync)) {
        Ok(bytes) => {
            resources.data_syncs.fetch_add(1, Ordering::Relaxed);
            bytes
        }
        Err(error) => {
            let _ = file.poison("write", error);
            0
        }
    }
}

fn size_of_parts<'a>(parts: impl Iterator<Item = &'a &'a [u8]>) -> u64 {
    parts.map(|part| part.len() as u64).sum()
}
