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
    /// Files of blocks that lost their end, and with it blocks that nothing else may name.
    pub cut_files: Vec<CutFile>,
    /// What was damaged and cost nothing, for it was known from elsewhere: files, and the footers of blocks. It was written
    /// again.
    pub made_again: Vec<String>,
    /// The journal had lost its end.
    pub lost_end: Option<LostEnd>,
    /// Bytes of the journal's last group that were cut.
    pub journal_cut_bytes: u64,
    /// Open logs that do not sync each append, where the end of the store before does not vouch for what they had: they
    /// may end earlier than they did, and are suspect.
    pub unsynced_logs: Vec<LogId>,
    /// Cursors beyond the end of their log, set to the end.
    pub moved_cursors: Vec<MovedCursor>,
}

impl OpenReport {
    /// Whether something was cut, fenced, moved aside or moved back that may have been promised. A crash can leave a tail that
    /// was never promised, and this cannot always tell them apart.
    pub fn lost_something(&self) -> bool {
        let Self { torn_tails, corrupted, moved_cursors, lost_end, .. } = self;
        let is_whole = torn_tails.is_empty() && corrupted.is_empty() && !self.may_lack_blocks();
        let has_journal = lost_end.is_none() && self.journal_cut_bytes == 0;
        !is_whole || !has_journal || !moved_cursors.is_empty()
    }

    /// Whether there are blocks, or were, of which nobody can say whose they are: any open log may have gone on in them.
    pub(super) fn may_lack_blocks(&self) -> bool {
        !self.unknown_blocks.is_empty() || !self.cut_files.is_empty()
    }
}

/// Bytes that no acknowledged append covers, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The log.
    pub log: LogId,
    /// Where it was cut: its end.
    pub offset: Offset,
    /// How many bytes.
    pub bytes: u64,
    /// Whole batches among them: of the last commit before the crash, which does not prove what is in front of them.
    pub batches: u64,
    /// File that they were moved to, in the store's directory; `None`: a full disk had no room for it, and they are where they
    /// were until the next open.
    pub moved_to: Option<String>,
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
    /// Where its bytes were moved to: no log misses anything, so it is the torn first write of a block. Else, and where a
    /// full disk has no room for them, it is left as it is.
    pub moved_to: Option<String>,
}

/// A file of blocks that is shorter than it was made: somebody cut it, or put another one in its place. The open makes it whole
/// again; what it lacked reads as space that was never used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// Its path.
    pub path: String,
    /// How long it was.
    pub found_bytes: u64,
    /// How long it was made.
    pub made_bytes: u64,
}

/// The journal ended before records that were durable: promises are lost. Logs that its blocks still name are back, as far as
/// their blocks go; seals, trims, deletions, properties and moves of cursors may be forgotten. All logs are suspect, and
/// cursors that must not give an entry twice refuse reads until they are sought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEnd {
    /// The last record that was there.
    pub last_sequence: u64,
    /// One that was durable, as `END`, a block or the journal's own header says.
    pub durable_sequence: u64,
    /// Logs that only their blocks knew.
    pub logs_found: Vec<LogId>,
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
