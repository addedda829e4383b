//! The report of an open, as lines for people and as JSON for programs (feature `json`).

#[cfg(feature = "json")]
use super::report::CorruptedRange;
use super::report::{CutFile, LostEnd, MovedCursor, OpenReport, TornTail, UnknownBlock};
#[cfg(feature = "json")]
use crate::types::LogId;

impl OpenReport {
    /// Gives lines for people: what was cut, moved aside, moved back or made again. Damaged ranges are listed with
    /// their logs.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for TornTail { log, offset, bytes, batches, .. } in &self.torn_tails {
            lines.push(format!(
                "torn tail: log {log} at {offset}, {bytes} bytes with {batches} whole batches, moved aside by an open or a \
                 repair"
            ));
        }
        for UnknownBlock { path, slot, .. } in &self.unknown_blocks {
            lines.push(format!("unknown block: {path} slot {slot}"));
        }
        for CutFile { path, found_bytes, made_bytes } in &self.cut_files {
            lines.push(format!(
                "file of blocks without its end: {path} has {found_bytes} of {made_bytes} bytes, blocks may be missing"
            ));
        }
        for MovedCursor { log, name, from, to } in &self.moved_cursors {
            lines.push(format!(
                "cursor behind the end: log {log}, {name:?} at {from}, set to {to} by an open or a repair"
            ));
        }
        if self.journal_cut_bytes > 0 {
            let bytes = self.journal_cut_bytes;
            lines.push(format!("torn end of the journal: {bytes} bytes, cut by an open or a repair"));
        }
        if let Some(LostEnd { last_sequence, durable_sequence, logs_found }) = &self.lost_end {
            lines.push(format!(
                "the journal lost its end: it has records up to {last_sequence}, {durable_sequence} was durable; promises are lost"
            ));
            lines.extend(logs_found.iter().map(|log| format!("  found by its blocks: log {log}")));
        }
        lines.extend(self.made_again.iter().map(|name| format!("made again by an open or a repair: {name}")));
        lines
    }

    /// Gives the report as JSON for programs.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::{Value, json};

        let id = |log: &LogId| log.0.to_string();
        let range = |it: &CorruptedRange| json!({"log": id(&it.log), "start": it.start.0, "end": it.end.0});
        json!({
            "clean": self.clean,
            "lost_something": self.lost_something(),
            "journal_cut_bytes": self.journal_cut_bytes,
            "torn_tails": self.torn_tails.iter().map(|tail| json!({
                "log": id(&tail.log), "offset": tail.offset.0, "bytes": tail.bytes, "batches": tail.batches,
                "moved_to": tail.moved_to,
            })).collect::<Vec<Value>>(),
            "damaged": self.corrupted.iter().map(range).collect::<Vec<Value>>(),
            "unknown_blocks": self.unknown_blocks.iter().map(|block| json!({
                "path": block.path, "slot": block.slot, "moved_to": block.moved_to,
            })).collect::<Vec<Value>>(),
            "cut_files": self.cut_files.iter().map(|file| json!({
                "path": file.path, "found_bytes": file.found_bytes, "made_bytes": file.made_bytes,
            })).collect::<Vec<Value>>(),
            "unsynced_logs": self.unsynced_logs.iter().map(id).collect::<Vec<String>>(),
            "moved_cursors": self.moved_cursors.iter().map(|cursor| json!({
                "log": id(&cursor.log), "name": cursor.name, "from": cursor.from.0, "to": cursor.to.0,
            })).collect::<Vec<Value>>(),
            "lost_end": self.lost_end.as_ref().map(|lost| json!({
                "last_sequence": lost.last_sequence,
                "durable_sequence": lost.durable_sequence,
                "logs_found": lost.logs_found.iter().map(id).collect::<Vec<String>>(),
            })),
            "made_again": self.made_again,
        })
    }
}
