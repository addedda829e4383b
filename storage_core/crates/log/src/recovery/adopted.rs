//! Logs that the journal has forgotten and that are known by their blocks alone.

use std::collections::BTreeMap;

use crate::format::block_header::BlockHeader;
use crate::resources::journal::{JournalState, Record, TableTold};
use crate::types::LogId;

/// Adds the logs to the state that only their blocks know, and makes all logs suspect. A known log without a block for
/// its first offsets has lost that block or a record of a trim. Either way its other blocks were in the log, and are
/// not the rest of an append that a crash tore.
pub(crate) fn adopt<'a>(
    state: &mut JournalState,
    headers: impl Iterator<Item = &'a BlockHeader>,
) -> Vec<LogId> {
    let headers: Vec<&BlockHeader> = headers.collect();
    let mut found = Vec::new();
    let mut firsts: BTreeMap<LogId, &BlockHeader> = BTreeMap::new();
    for &header in &headers {
        let first = firsts.entry(header.log).or_insert(header);
        if header.base_offset < first.base_offset {
            *first = header;
        }
    }
    for (log, header) in firsts {
        let &BlockHeader { base_offset, fsync, ref name, ref epochs, .. } = header;
        let epoch = epochs.at(base_offset);
        let created = Record::LogCreated {
            log,
            base_offset,
            epoch,
            name,
            after: None,
            producers: TableTold::Bytes(&[]),
            fsync,
        };
        if state.logs.contains_key(&log) {
            state.apply(&Record::Synced { log, end: base_offset });
        } else if state.apply(&created) {
            found.push(log);
        }
    }
    // A compacted block counts only if the blocks that it stands for are gone; otherwise nobody knows whether it was
    // written to its end.
    for header in headers.iter().filter(|header| header.replaces_to > 0) {
        let &&BlockHeader { log, sequence, base_offset: start, replaces_to: end, .. } = header;
        let is_older = |other: &&&BlockHeader| {
            other.log == log && other.sequence < sequence && (start..end).contains(&other.base_offset)
        };
        if headers.iter().find(is_older).is_none() {
            state.apply(&Record::LogCompacted { log, start, end, sequence });
        }
    }
    let logs: Vec<_> = state.logs.iter().map(|(log, entry)| (*log, entry.synced)).collect();
    for (log, end) in logs {
        state.apply(&Record::Suspect { log, end });
    }
    found
}
