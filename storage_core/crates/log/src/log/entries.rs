//! The entries that follow the place of a cursor. They are read, checked and decoded ahead, and kept until the log is
//! truncated.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::place::{Entry, PlaceState};
use super::state::LogState;
use crate::batch::Batch;
use crate::error::Result;
use crate::types::Offset;

/// About how many bytes of batches are read, checked and decoded at a time.
const READ_AHEAD_BYTES: usize = 64 << 10;

impl LogState {
    /// Where the journal says that a cursor stands; `None` if it never moved.
    pub(crate) fn cursor_place(&self, name: &str) -> Option<u64> {
        self.resources.journal.with_state(|journal| journal.logs.get(&self.id)?.cursors.get(name).copied())
    }
}

impl PlaceState {
    /// Gives the next entries without moving: at least one if there is one, at most `entries_max`, about `bytes_max`
    /// bytes.
    pub(crate) fn peek(
        &mut self,
        log: &LogState,
        bytes_max: usize,
        entries_max: usize,
    ) -> Result<Vec<Entry>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < entries_max {
            if self.ahead.len() == taken.len() && !self.read_ahead(log, taken.is_empty())? {
                break;
            }
            let entry = &self.ahead[taken.len()];
            bytes += entry.data.len();
            if bytes > bytes_max && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        Ok(taken)
    }

    /// Moves the cursor to where trims and truncations of the log have moved it.
    pub(crate) fn follow(&mut self, log: &LogState, name: &str) {
        let generation = log.generation.load(Ordering::Acquire);
        let start = log.start.load(Ordering::Acquire);
        if self.generation != generation {
            self.generation = generation;
            self.move_to(self.next.min(log.cursor_place(name).unwrap_or(start)));
        }
        if self.next < start {
            self.move_to(start);
        }
    }

    /// Reads entries behind those that are there. False if there are none; where `is_needed` is false, also if reading
    /// failed.
    fn read_ahead(&mut self, log: &LogState, is_needed: bool) -> Result<bool> {
        let before = self.ahead.len();
        while self.ahead.len() == before {
            let from = self.ahead_to;
            let slices = match log.read(from, READ_AHEAD_BYTES) {
                // What was taken so far is given first; the next read meets the damage.
                Err(_) if !is_needed => return Ok(false),
                slices => slices?,
            };
            if slices.batches.is_empty() {
                return Ok(false);
            }
            for batch in &slices.batches {
                open_batch(batch, from, &mut self.ahead)?;
            }
            self.ahead_to = slices.next_offset.0;
        }
        Ok(true)
    }
}

/// Appends the entries of a checked batch from the offset `from` on.
fn open_batch(bytes: &Bytes, from: u64, entries: &mut VecDeque<Entry>) -> Result<()> {
    let (batch, _) = Batch::parse(bytes)?;
    let opened = batch.open_shared(bytes)?;
    for record in batch.header().records_in(&opened) {
        let record = record?;
        if record.offset >= from {
            let data = record.value.map_or_else(Bytes::new, |value| opened.slice_ref(value));
            let key = record.key.map(|key| opened.slice_ref(key));
            let (offset, timestamp_ms) = (Offset(record.offset), record.timestamp_ms);
            entries.push_back(Entry { offset, timestamp_ms, key, data });
        }
    }
    Ok(())
}
