//! Clean marks, which tell whether a log has grown since somebody called it clean. An append does nothing for them,
//! and a crash cannot tear mark and log apart: the mark is the end that the log had when it was made.

use super::log::Log;
use crate::error::Result;
use crate::resources::journal::{DIRTY, Record};

impl Log {
    /// Calls the log clean until the next append. Durable on return, unless the log never syncs.
    pub fn mark_clean(&self) -> Result<()> {
        self.mark_clean_at(self.end_offset().0)
    }

    /// Calls the log dirty until it is called clean; as durable as [`Log::mark_clean`].
    pub fn mark_dirty(&self) -> Result<()> {
        self.mark_clean_at(DIRTY)
    }

    /// Whether nothing was appended since the log was last called clean, or was created. False after
    /// [`Log::mark_dirty`].
    pub fn is_clean(&self) -> bool {
        self.resources().assert_origin();
        let log = self.state();
        let mark =
            self.resources().journal.with_state(|state| state.logs.get(&log.id).map(|entry| entry.clean_at));
        mark == Some(self.end_offset().0)
    }

    fn mark_clean_at(&self, end: u64) -> Result<()> {
        self.resources().check_open()?;
        let log = self.state();
        log.say(&Record::CleanMark { log: log.id, end })
    }
}
