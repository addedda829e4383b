//! The durable places of cursors: they go into the journal behind the data below them, and share its group commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use crate::error::Result;
use crate::log::place::CursorPlace;
use crate::resources::journal::Record;
use crate::seeded;
use crate::types::FsyncSchedule;

impl Member {
    /// Appends a place to the journal, after the data below it is as durable as the place will be; gives the sequence
    /// to commit.
    pub(super) fn store_place(&self, place: &CursorPlace, next: u64) -> Result<u64> {
        let log = &self.log;
        if let FsyncSchedule::Milliseconds(_) = log.fsync
            && log.synced.load(Ordering::Acquire) < next
            && !seeded!(CursorPastEnd)
        {
            self.committer.wait_synced(log, next)?;
        }
        self.resources().journal.append(&Record::Cursor { log: log.id, name: &place.name, offset: next })
    }

    /// Makes the places durable that were appended up to `sequence`, as far as the log's schedule promises.
    pub(super) fn commit_place(&self, sequence: u64) -> Result<()> {
        let journal = &self.resources().journal;
        journal.commit(sequence, self.log.syncs())?;
        if journal.needs_tending() {
            self.queues().chores.ask_upkeep();
        }
        Ok(())
    }

    /// Appends the place of a cursor if the journal has another one; gives the sequence to commit.
    pub(super) fn save_place(&self, place: &CursorPlace) -> Result<Option<u64>> {
        let mut state = place.state.lock();
        let standing = self.log.layout.read();
        state.follow(&self.log, &place.name);
        if state.unsaved == 0 {
            return Ok(None);
        }
        let sequence = self.store_place(place, state.next)?;
        state.unsaved = 0;
        drop(standing);
        Ok(Some(sequence))
    }

    /// Appends the places of all cursors of the log; the store's close makes them durable.
    pub(super) fn save_places(&self) -> Result<()> {
        let places: Vec<Arc<CursorPlace>> = self.log.cursors.lock().values().cloned().collect();
        places.iter().try_for_each(|place| self.save_place(place).map(drop))
    }
}
