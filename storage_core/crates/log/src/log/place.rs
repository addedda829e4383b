//! The places of a log's cursors, and the entries that they have read ahead.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::sync::Mutex;
use crate::types::Offset;

/// A record as a consumer of bytes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset of the record.
    pub offset: Offset,
    /// Time at which the record was made, in milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Key of the record, if it has one.
    pub key: Option<Bytes>,
    /// Value of the record; empty if it has none.
    pub data: Bytes,
}

/// The place of a named cursor, which all handles of that name share.
pub(crate) struct CursorPlace {
    pub(crate) name: String,
    pub(crate) state: Mutex<PlaceState>,
}

/// Where a cursor stands, and what it has read ahead.
pub(crate) struct PlaceState {
    pub(crate) next: u64,
    /// Checked entries from `next` on, read in `generation` of the log.
    pub(crate) ahead: VecDeque<Entry>,
    pub(crate) generation: u64,
    /// Offset at which the reader of stored bytes goes on behind `ahead`; beyond its last entry where compaction left
    /// gaps.
    pub(crate) ahead_to: u64,
    /// Number of entries that were given since the place was last stored.
    pub(crate) unsaved: u64,
    /// Whether the journal had lost its end, so that the cursor may have been further.
    pub(crate) is_doubted: bool,
}

impl PlaceState {
    /// Makes a place at an offset with nothing read ahead.
    pub(crate) fn at(next: u64) -> Self {
        Self { next, ahead: VecDeque::new(), generation: 0, ahead_to: next, unsaved: 0, is_doubted: false }
    }

    /// Moves the place to where the journal says that the cursor stands.
    pub(crate) fn move_to(&mut self, next: u64) {
        (self.next, self.ahead_to, self.unsaved) = (next, next, 0);
        self.ahead.clear();
    }
}
