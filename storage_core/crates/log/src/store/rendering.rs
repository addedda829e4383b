//! Inspections, verifications and repairs as a table for people and as JSON for programs (feature `json`).

#[cfg(feature = "json")]
use crate::store::inspection::{Inspection, LogView, VerifyReport};
use crate::store::repair::RepairReport;
use crate::types::Offset;

impl Inspection {
    /// Whether any offsets cannot be read.
    pub fn is_damaged(&self) -> bool {
        self.logs.iter().any(|log| !log.damaged.is_empty())
    }

    /// Whether any offsets cannot be read, or an open cuts, fences or moves aside bytes that may have been promised.
    pub fn lost_something(&self) -> bool {
        self.is_damaged() || self.report.lost_something()
    }

    /// Gives a table for people: a line for each log, and what is wrong.
    pub fn to_table(&self) -> String {
        text(&table(self))
    }

    /// Gives JSON for programs.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> serde_json::Value {
        json(self)
    }
}

impl VerifyReport {
    /// Gives the table of [`Inspection::to_table`], and how much was read.
    pub fn to_table(&self) -> String {
        let Self { inspection, batches, bytes } = self;
        let mut lines = table(inspection);
        lines.push(format!("{batches} batches, {bytes} bytes, checked"));
        text(&lines)
    }

    /// Gives JSON for programs.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> serde_json::Value {
        let mut seen = json(&self.inspection);
        seen["checked"] = serde_json::json!({"batches": self.batches, "bytes": self.bytes});
        seen
    }
}

impl RepairReport {
    /// Whether any offsets cannot be read even now, or promises were lost with the journal.
    pub fn lost_something(&self) -> bool {
        let Self { journal, inspection } = self;
        journal.is_some() || inspection.report.lost_end.is_some() || inspection.is_damaged()
    }

    /// Gives the table of [`Inspection::to_table`] for the store as it is now, and what was done.
    pub fn to_table(&self) -> String {
        let mut lines = table(&self.inspection);
        lines.extend(self.journal.iter().flat_map(|journal| journal.lines()));
        text(&lines)
    }

    /// Gives JSON for programs.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> serde_json::Value {
        let mut seen = json(&self.inspection);
        seen["journal"] = self.journal.as_ref().map_or(serde_json::Value::Null, |journal| {
            serde_json::json!({
                "reason": journal.reason,
                "moved_to": journal.moved_to,
                "logs_known": journal.logs_known,
                "logs_found": journal.logs_found.iter().map(|log| log.0.to_string()).collect::<Vec<_>>(),
            })
        });
        seen
    }
}

fn text(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}

/// The lines of the table of an inspection.
fn table(seen: &Inspection) -> Vec<String> {
    let mut lines = vec![format!(
        "store {}, blocks of {} bytes, {}",
        seen.store,
        seen.block_bytes,
        if seen.report.clean { "closed in order" } else { "not closed in order" }
    )];
    lines.push(format!(
        "{:36} {:>12} {:>12} {:>14} {:>6}  state  name",
        "log", "start", "end", "bytes", "blocks"
    ));
    for log in &seen.logs {
        let LogView { id, name, start, end, size_bytes, blocks, .. } = log;
        // Offsets and counts are taken as plain numbers, since formatting pads only those.
        let (start, end, blocks) = (start.0, end.0, blocks.len());
        lines.push(format!(
            "{:36} {start:>12} {end:>12} {size_bytes:>14} {blocks:>6}  {}  {name}",
            id.0,
            state(log)
        ));
        let damaged = |(start, end): &(Offset, Offset)| format!("  damaged: offsets {start}..{end}");
        lines.extend(log.damaged.iter().map(damaged));
    }
    lines.extend(seen.report.lines());
    if seen.has_lost_promises {
        lines.push("promises were lost with the journal, now or before: cursors may be behind".to_owned());
    }
    lines
}

fn state(log: &LogView) -> &'static str {
    match (log.is_sealed, log.is_suspect) {
        (false, false) => "open",
        (false, true) => "open, suspect",
        (true, false) => "sealed",
        (true, true) => "sealed, suspect",
    }
}

/// The JSON of an inspection.
#[cfg(feature = "json")]
fn json(seen: &Inspection) -> serde_json::Value {
    use serde_json::{Value, json};

    let ranges = |log: &LogView| -> Vec<Value> {
        log.damaged.iter().map(|(start, end)| json!({"start": start.0, "end": end.0})).collect()
    };
    let log = |log: &LogView| {
        json!({
            "id": log.id.0.to_string(),
            "name": log.name,
            "epoch": log.epoch.0,
            "start": log.start.0,
            "end": log.end.0,
            "size_bytes": log.size_bytes,
            "sealed": log.is_sealed,
            "suspect": log.is_suspect,
            "fsync": log.fsync.to_string(),
            "cursors": log.cursors.iter().map(|(name, at)| json!({"name": name, "offset": at.0})).collect::<Vec<_>>(),
            "blocks": log.blocks.iter().map(|block| json!({
                "path": block.path,
                "slot": block.slot,
                "sequence": block.sequence,
                "base_offset": block.base_offset.0,
                "data_bytes": block.data_bytes,
                "bytes": block.bytes,
            })).collect::<Vec<_>>(),
            "damaged": ranges(log),
        })
    };
    json!({
        "store": seen.store.to_string(),
        "block_bytes": seen.block_bytes,
        "recovery": seen.report.to_json(),
        "lost_promises": seen.has_lost_promises,
        "logs": seen.logs.iter().map(log).collect::<Vec<_>>(),
    })
}
