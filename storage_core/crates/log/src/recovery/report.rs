//! The report of an open, for people and programs.

use crate::types::{LogId, Offset};

/// Everything that opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the store was closed in order the last time, or is new.
    pub clean: bool,
    /// Tails that were cut.
    pub torn_tails: Vec<TornTail>,
    /// Damaged ranges of offsets.
    pub corrupted: Vec<CorruptedRange>,
    /// Blocks whose header is damaged, or that belong to no log.
    pub unknown_blocks: Vec<UnknownBlock>,
    /// Files of blocks that lost their end, and with it blocks that nothing else may name.
    pub cut_files: Vec<CutFile>,
    /// Files and footers of blocks that were damaged and were written again from what is known elsewhere, so that
    /// nothing is lost.
    pub made_again: Vec<String>,
    /// The lost end of the journal, if it had lost it.
    pub lost_end: Option<LostEnd>,
    /// Bytes of the journal's last group that were cut.
    pub journal_cut_bytes: u64,
    /// Open logs that do not sync each append and may end earlier than they did, since the store's last end does not
    /// vouch for them. They are suspect.
    pub unsynced_logs: Vec<LogId>,
    /// Cursors that were beyond the end of their log, and were set to that end.
    pub moved_cursors: Vec<MovedCursor>,
}

impl OpenReport {
    /// Whether something was cut, fenced, moved aside or moved back that may have been promised. A crash can leave a
    /// tail that was never promised, and this cannot always tell them apart.
    pub fn lost_something(&self) -> bool {
        let Self { torn_tails, corrupted, moved_cursors, lost_end, .. } = self;
        let is_whole = torn_tails.is_empty() && corrupted.is_empty() && !self.may_lack_blocks();
        let has_journal = lost_end.is_none() && self.journal_cut_bytes == 0;
        !is_whole || !has_journal || !moved_cursors.is_empty()
    }

    /// Whether there are blocks, or were, whose log nobody can tell: any open log may have gone on in them.
    pub(super) fn may_lack_blocks(&self) -> bool {
        !self.unknown_blocks.is_empty() || !self.cut_files.is_empty()
    }
}

/// Bytes behind the last batch of a log that no acknowledged append covers, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Identity of the log.
    pub log: LogId,
    /// Offset at which the log was cut, and ends.
    pub offset: Offset,
    /// Number of bytes.
    pub bytes: u64,
    /// Whole batches among them. They are of the last commit before the crash, which does not prove what is in front
    /// of them.
    pub batches: u64,
    /// Name of the file in the store's directory to which they were moved. `None` if a full disk had no room for it;
    /// they stay where they are until the next open.
    pub moved_to: Option<String>,
}

/// Offsets that cannot be read on this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptedRange {
    /// Identity of the log.
    pub log: LogId,
    /// First damaged offset.
    pub start: Offset,
    /// First offset behind the damage.
    pub end: Offset,
}

/// A block that nobody can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBlock {
    /// Path of its file.
    pub path: String,
    /// Place of its slot in the file, from 0.
    pub slot: u32,
    /// Name of the file to which its bytes were moved, because no log misses a block and it is the torn first write of
    /// one. `None` if a log may miss it, or a full disk has no room; then it is left as it is.
    pub moved_to: Option<String>,
}

/// A file of blocks that is shorter than it was made: somebody cut it, or put another one in its place. The open makes
/// it whole again, and the part that it lacked reads as space that was never used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// Path of the file.
    pub path: String,
    /// Length of the file as it was found.
    pub found_bytes: u64,
    /// Length with which the file was made.
    pub made_bytes: u64,
}

/// The end that the journal had lost: it ended before records that were durable, so promises are lost. Logs that
/// blocks still name are back, as far as their blocks go; seals, trims, deletions, properties and moves of cursors may
/// be forgotten. All logs are suspect, and cursors that must not give an entry twice refuse reads until they are
/// sought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEnd {
    /// Sequence of the last record that was there.
    pub last_sequence: u64,
    /// Sequence of a record that was durable, as `END`, a block or the journal's own header says.
    pub durable_sequence: u64,
    /// Logs that only their blocks knew.
    pub logs_found: Vec<LogId>,
}

/// A cursor that was beyond the end of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedCursor {
    /// Identity of the log.
    pub log: LogId,
    /// Name of the cursor.
    pub name: String,
    /// Place of the cursor before the open.
    pub from: Offset,
    /// Place of the cursor now.
    pub to: Offset,
}
