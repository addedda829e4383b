//! What an open found, for people and programs.

use crate::types::{LogId, Offset};

/// What opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The store was closed in order the last time, or is new.
    pub clean: bool,
    /// Tails that were cut.
    pub torn_tails: Vec<TornTail>,
    /// Damaged ranges of offsets.
    pub corrupted: Vec<CorruptedRange>,
    /// Blocks whose header is damaged, or that belong to no log.
    pub unknown_blocks: Vec<UnknownBlock>,
    /// Bytes of the journal's last group that were cut.
    pub journal_cut_bytes: u64,
    /// Open logs that do not sync each append, where the end of the store before does not vouch for what they had: they
    /// may end earlier than they did, and are suspect.
    pub unsynced_logs: Vec<LogId>,
    /// Cursors beyond the end of their log, set to the end.
    pub moved_cursors: Vec<MovedCursor>,
}

/// Bytes that no acknowledged append covers, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The log.
    pub log: LogId,
    /// Where it was cut: its end.
    pub offset: Offset,
    /// How many bytes were moved aside.
    pub bytes: u64,
    /// File that they were moved to, in the store's directory.
    pub moved_to: String,
}

/// Offsets that cannot be read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptedRange {
    /// The log.
    pub log: LogId,
    /// First damaged offset.
    pub start: Offset,
    /// First offset behind.
    pub end: Offset,
}

/// A block that nobody can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBlock {
    /// Its file.
    pub path: String,
    /// Its place in the file, from 0.
    pub slot: u32,
    /// Where its bytes were moved to: no log misses anything, so it is the torn first write of a block. Else it is
    /// left as it is.
    pub moved_to: Option<String>,
}

/// A cursor that was beyond the end of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedCursor {
    /// The log.
    pub log: LogId,
    /// The cursor.
    pub name: String,
    /// Where it was.
    pub from: Offset,
    /// Where it is.
    pub to: Offset,
}
