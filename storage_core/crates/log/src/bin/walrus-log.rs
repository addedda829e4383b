//! `walrus-log inspect|verify <directory> [--json]`: what lies in a store that nobody has open. Changes nothing. Ends
//! with 1 where something cannot be read, with 2 where the store cannot be opened at all.

use std::process::ExitCode;

use serde_json::{Value, json};
use walrus_log::{Error, FsyncSchedule, Inspection, LogView, Offset, inspect, verify};

const USAGE: &str = "usage: walrus-log inspect|verify <directory> [--json]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    let as_json = match flags[..] {
        [] => false,
        ["--json"] => true,
        _ => return usage(),
    };
    let seen = match words[..] {
        ["inspect", directory] => inspect(directory).map(|seen| (seen, None)),
        ["verify", directory] => {
            verify(directory).map(|all| (all.inspection, Some((all.batches, all.bytes))))
        }
        _ => return usage(),
    };
    match seen {
        Ok((seen, read)) => {
            if as_json {
                println!("{:#}", to_json(&seen, read));
            } else {
                print!("{}", to_table(&seen, read));
            }
            ExitCode::from(u8::from(is_damaged(&seen)))
        }
        Err(error) => refused(&error),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn refused(error: &Error) -> ExitCode {
    eprintln!("walrus-log: {error}");
    ExitCode::from(2)
}

fn is_damaged(seen: &Inspection) -> bool {
    seen.logs.iter().any(|log| !log.damaged.is_empty())
}

fn to_table(seen: &Inspection, read: Option<(u64, u64)>) -> String {
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
        // Numbers of their own type do not pad.
        let (start, end, blocks) = (start.0, end.0, blocks.len());
        lines.push(format!(
            "{:36} {start:>12} {end:>12} {size_bytes:>14} {blocks:>6}  {}  {name}",
            id.0,
            state(log)
        ));
        let damaged = |(start, end): &(Offset, Offset)| format!("  damaged: offsets {start}..{end}");
        lines.extend(log.damaged.iter().map(damaged));
    }
    for tail in &seen.report.torn_tails {
        let (log, offset, bytes) = (tail.log, tail.offset, tail.bytes);
        lines
            .push(format!("torn tail: log {log} at {offset}, {bytes} bytes; the next open moves them aside"));
    }
    for block in &seen.report.unknown_blocks {
        lines.push(format!("unknown block: {} slot {}", block.path, block.slot));
    }
    if let Some((batches, bytes)) = read {
        lines.push(format!("{batches} batches, {bytes} bytes, checked"));
    }
    lines.join("\n") + "\n"
}

fn state(log: &LogView) -> &'static str {
    match (log.is_sealed, log.is_suspect) {
        (false, false) => "open",
        (false, true) => "open, suspect",
        (true, false) => "sealed",
        (true, true) => "sealed, suspect",
    }
}

fn to_json(seen: &Inspection, read: Option<(u64, u64)>) -> Value {
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
            "fsync": fsync(log.fsync),
            "cursors": log.cursors.iter().map(|(name, at)| json!({"name": name, "offset": at.0})).collect::<Vec<_>>(),
            "blocks": log.blocks.iter().map(|block| json!({
                "path": block.path,
                "slot": block.slot,
                "sequence": block.sequence,
                "base_offset": block.base_offset.0,
                "data_bytes": block.data_bytes,
            })).collect::<Vec<_>>(),
            "damaged": ranges(log),
        })
    };
    json!({
        "store": seen.store.to_string(),
        "block_bytes": seen.block_bytes,
        "clean": seen.report.clean,
        "journal_cut_bytes": seen.report.journal_cut_bytes,
        "torn_tails": seen.report.torn_tails.iter().map(|tail| json!({
            "log": tail.log.0.to_string(), "offset": tail.offset.0, "bytes": tail.bytes,
        })).collect::<Vec<_>>(),
        "unknown_blocks": seen.report.unknown_blocks.iter().map(|block| json!({
            "path": block.path, "slot": block.slot,
        })).collect::<Vec<_>>(),
        "logs": seen.logs.iter().map(log).collect::<Vec<_>>(),
        "checked": read.map(|(batches, bytes)| json!({"batches": batches, "bytes": bytes})),
    })
}

fn fsync(schedule: FsyncSchedule) -> String {
    match schedule {
        FsyncSchedule::SyncEach => "each".to_owned(),
        FsyncSchedule::Milliseconds(interval) => format!("{interval}ms"),
        FsyncSchedule::NoFsync => "never".to_owned(),
    }
}
