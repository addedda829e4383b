//! Where the cursors of a log stand, and what they have read ahead.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::sync::Mutex;
use crate::types::Offset;

/// A record as a consumer of bytes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its offset.
    pub offset: Offset,
    /// When it was made, in milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// Its key, where it has one.
    pub key: Option<Bytes>,
    /// Its value; empty where there is none.
    pub data: Bytes,
}

/// Where a cursor stands, and what it has read ahead.
pub(crate) struct CursorPlace {
    pub(crate) name: String,
    pub(crate) state: Mutex<PlaceState>,
}

pub(crate) struct PlaceState {
    pub(crate) next: u64,
    /// Entries from `next` on, checked; of the log's generation.
    pub(crate) ahead: VecDeque<Entry>,
    pub(crate) generation: u64,
    /// Where the reader of stored bytes goes on, behind `ahead`: further than its last entry where none is left behind.
    pub(crate) ahead_to: u64,
    /// Entries that were given from the place on that was last stored.
    pub(crate) unsaved: u64,
    /// The journal lost its end: the cursor may have been further.
    pub(crate) is_doubted: bool,
}

impl PlaceState {
    /// Stands there, and has read nothing yet.
    pub(crate) fn at(next: u64) -> Self {
        Self { next, ahead: VecDeque::new(), generation: 0, ahead_to: next, unsaved: 0, is_doubted: false }
    }

    /// Stands there now, as the journal says.
    pub(crate) fn move_to(&mut self, next: u64) {
        (self.next, self.ahead_to, self.unsaved) = (next, next, 0);
        self.ahead.clear();
    }
}
