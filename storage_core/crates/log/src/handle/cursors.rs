//! Cursors: named, durable places of consumers in a log. A cursor moves before its entry is given, so no two readers
//! get the same entry. With `StrictlyAtOnce` that holds over a crash too; with `AtLeastOnce` a few entries may come
//! again then. Moves of all cursors share the journal's group commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::log::Log;
use crate::error::{Error, Result};
use crate::log::place::{CursorPlace, Entry, PlaceState};
use crate::names::check_name;
use crate::options::ReadConsistency;
use crate::resources::journal::Record;
use crate::sync::Mutex;
use crate::types::Offset;

/// Limit on the entries that one batch read gives.
pub(crate) const ENTRIES_MAX: usize = 2_000;

/// A cursor of a log. Handles of the same name share their place.
#[derive(Clone)]
pub struct Cursor {
    log: Log,
    place: Arc<CursorPlace>,
    consistency: ReadConsistency,
}

impl Log {
    /// Gives the cursor of a name; a new one stands at the log's start. Nothing is stored before it moves. Its reads
    /// are [`ReadConsistency::StrictlyAtOnce`].
    pub fn cursor(&self, name: &str) -> Result<Cursor> {
        self.cursor_with(name, ReadConsistency::StrictlyAtOnce)
    }

    /// Gives the cursor of a name, as [`Log::cursor`] does, with reads of that consistency.
    pub fn cursor_with(&self, name: &str, consistency: ReadConsistency) -> Result<Cursor> {
        self.resources().check_open()?;
        check_name(name)?;
        let state = self.state();
        let mut places = state.cursors.lock();
        let place = match places.get(name) {
            Some(place) => Arc::clone(place),
            None => {
                let journal = &self.resources().journal;
                let (stored, is_doubted) = journal.with_state(|journal| {
                    let entry = journal.logs.get(&state.id);
                    let doubted = entry.and_then(|entry| entry.doubted.as_ref());
                    let stored = entry.and_then(|entry| entry.cursors.get(name).copied());
                    (stored, doubted.is_some_and(|moved_since| !moved_since.contains(name)))
                });
                let next = stored.unwrap_or_else(|| state.start.load(Ordering::Acquire));
                let place = Arc::new(CursorPlace {
                    name: name.to_owned(),
                    state: Mutex::new(PlaceState { is_doubted, ..PlaceState::at(next) }),
                });
                places.insert(name.to_owned(), Arc::clone(&place));
                place
            }
        };
        Ok(Cursor { log: self.clone(), place, consistency })
    }

    /// Names and places of the cursors that have moved.
    pub fn cursors(&self) -> Vec<(String, Offset)> {
        self.resources().assert_origin();
        let journal = &self.resources().journal;
        journal.with_state(|journal| {
            let cursors = journal.logs.get(&self.id()).map(|entry| &entry.cursors);
            cursors.into_iter().flatten().map(|(name, &at)| (name.clone(), Offset(at))).collect()
        })
    }

    /// Forgets a cursor; durable on return, unless the log never syncs. Handles of it stay where they are until they
    /// move.
    pub fn delete_cursor(&self, name: &str) -> Result<()> {
        self.resources().check_open()?;
        check_name(name)?;
        let state = self.state();
        state.cursors.lock().remove(name);
        state.say(&Record::CursorDeleted { log: state.id, name })
    }
}

impl Cursor {
    /// Name of the cursor.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Offset of the next entry.
    pub fn position(&self) -> Offset {
        self.log.resources().assert_origin();
        let log = self.log.state();
        let mut place = self.place.state.lock();
        let _standing = log.layout.read();
        place.follow(log, &self.place.name);
        Offset(place.next)
    }

    /// Reads the next entry; `None` if there is none yet, and then nothing changes. With `checkpoint` the cursor moves
    /// behind the entry before it is given; a strict cursor does so durably, as the schedule promises. Without
    /// `checkpoint` it stays. An [`ReadConsistency::AtLeastOnce`] cursor stores where a read begins, never what the
    /// read is about to give.
    ///
    /// Errors: `Corrupted` if the entry is damaged (`seek` to the range's end to go on), `DoubtedCursor` (`seek` to go on),
    /// `NoSpace`, `Poisoned`.
    pub fn read_next(&self, checkpoint: bool) -> Result<Option<Entry>> {
        Ok(self.take(0, 1, checkpoint)?.pop())
    }

    /// Reads the next entries as [`Cursor::read_next`] does, about `bytes_max` bytes of them: at least one, if there
    /// is one.
    pub fn batch_read(&self, bytes_max: usize, checkpoint: bool) -> Result<Vec<Entry>> {
        self.take(bytes_max, ENTRIES_MAX, checkpoint)
    }

    /// Moves the cursor; durable on return, unless the log never syncs. Fails with `OffsetOutOfRange` outside of what
    /// can be read.
    pub fn seek(&self, to: Offset) -> Result<()> {
        self.log.resources().check_open()?;
        let log = self.log.state();
        let mut place = self.place.state.lock();
        let standing = log.layout.read();
        let (start, end) = (self.log.start_offset(), self.log.durable_offset());
        if to < start || to > end {
            return Err(Error::OffsetOutOfRange { requested: to, start, end });
        }
        place.follow(log, &self.place.name);
        let sequence = self.log.member().store_place(&self.place, to.0)?;
        place.move_to(to.0);
        place.is_doubted = false;
        drop((standing, place));
        self.log.member().commit_place(sequence)?;
        log.note_consumed(to.0);
        Ok(())
    }

    /// Makes the place of an [`ReadConsistency::AtLeastOnce`] cursor durable; that of a strict one already is.
    pub fn persist(&self) -> Result<()> {
        self.log.resources().check_open()?;
        match self.log.member().save_place(&self.place)? {
            Some(sequence) => self.log.member().commit_place(sequence),
            None => Ok(()),
        }
    }

    /// Blocks until there is an entry to read, or until the time is over, as [`Log::wait_for`] says.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        self.log.resources().check_open()?;
        self.log.wait_for(self.position(), timeout)
    }

    /// Number of offsets between the cursor and the end; more than there are entries if some are damaged or were
    /// compacted away.
    pub fn unread(&self) -> u64 {
        let start = self.log.start_offset().max(self.position());
        self.log.durable_offset().0.saturating_sub(start.0)
    }

    fn take(&self, bytes_max: usize, entries_max: usize, checkpoint: bool) -> Result<Vec<Entry>> {
        self.log.resources().check_open()?;
        let log = self.log.state();
        let mut place = self.place.state.lock();
        // A truncation moves the cursors that the journal knows: none may follow it with a place from before.
        let standing = log.layout.read();
        place.follow(log, &self.place.name);
        if place.is_doubted && checkpoint && self.consistency == ReadConsistency::StrictlyAtOnce {
            return Err(Error::DoubtedCursor { name: self.place.name.clone(), at: Offset(place.next) });
        }
        let taken = place.peek(log, bytes_max, entries_max)?;
        let Some(last) = taken.last().filter(|_| checkpoint) else {
            return Ok(taken);
        };
        let next = last.offset.0 + 1;
        let given = taken.len() as u64;
        // The entries of a read count as consumed when the reader comes again. So the stored place is the one where
        // this read began; storing its end would lose all that was just given if the reader crashed.
        let (stored, unsaved) = match self.consistency {
            ReadConsistency::StrictlyAtOnce => (Some(next), 0),
            ReadConsistency::AtLeastOnce { persist_every }
                if place.unsaved > 0 && place.unsaved + given > u64::from(persist_every) =>
            {
                (Some(place.next), given)
            }
            ReadConsistency::AtLeastOnce { .. } => (None, place.unsaved + given),
        };
        let sequence = stored.map(|stored| self.log.member().store_place(&self.place, stored)).transpose()?;
        place.next = next;
        place.unsaved = unsaved;
        place.ahead.drain(..taken.len());
        // Other readers may go on from here while this move becomes durable; their moves are behind it in the journal.
        drop((standing, place));
        if let Some((sequence, stored)) = sequence.zip(stored) {
            self.log.member().commit_place(sequence)?;
            log.note_consumed(stored);
        }
        Ok(taken)
    }
}

/// Reads entries from an offset on, about `bytes_max` bytes: at least one, if there is one.
pub(crate) fn read_entries(log: &Log, start: Offset, bytes_max: usize) -> Result<Vec<Entry>> {
    log.resources().check_open()?;
    PlaceState::at(start.0).peek(log.state(), bytes_max, ENTRIES_MAX)
}
