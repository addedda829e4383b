//! The seal that ends a log: its data is synced first, then its end and value go into the journal, then memory
//! changes.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::member::Member;
use crate::error::{Error, Result};
use crate::log::state::{Extent, Phase};
use crate::resources::journal::{Record, SealedEntry};
use crate::types::{FsyncSchedule, Offset};

/// Limit on the bytes of the value that a log is sealed with.
const VALUE_BYTES_MAX: usize = 1 << 20;

impl Member {
    /// Ends the log, as [`crate::Log::seal`] says.
    pub(super) fn seal(&self, value: &[u8]) -> Result<&SealedEntry> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::TooLarge { bytes: value.len() as u64, bytes_max: VALUE_BYTES_MAX as u64 });
        }
        let _changing = self.log.changing.lock();
        let end = {
            let mut writer = self.log.writer.lock();
            match writer.phase {
                Phase::Deleted => return Err(Error::UnknownLog { log: self.log.id }),
                Phase::Sealed => return self.sealed_as(value),
                Phase::Active | Phase::Sealing => {}
            }
            self.log.check_poisoned()?;
            writer.phase = Phase::Sealing;
            writer.end
        };
        let sealed = self.promise_seal(end, value);
        let mut writer = self.log.writer.lock();
        match sealed {
            Ok(entry) => {
                writer.phase = Phase::Sealed;
                self.log.close_block(&mut writer);
                drop(writer);
                self.log.arrivals.announce();
                let entry = self.log.sealed.get_or_init(|| entry);
                self.log.leave_memory(u64::MAX);
                Ok(entry)
            }
            // The journal may hold the seal in spite of the failure, and a restart then shows it. Sealing again with
            // the same value is right in both cases; appending is not, unless nothing was written.
            Err(error @ Error::NoSpace { .. }) => {
                writer.phase = Phase::Active;
                Err(error)
            }
            Err(error) => {
                self.log.poison(&error.to_string().into());
                Err(error)
            }
        }
    }

    fn sealed_as(&self, value: &[u8]) -> Result<&SealedEntry> {
        let entry = self.log.sealed.get().expect("set before the phase says so, under the same mutex");
        if entry.value == value {
            Ok(entry)
        } else {
            Err(Error::Sealed { log: self.log.id, end: Offset(entry.end) })
        }
    }

    fn promise_seal(&self, end: u64, value: &[u8]) -> Result<SealedEntry> {
        let generation = self.log.generation.load(Ordering::Acquire);
        match self.log.fsync {
            FsyncSchedule::SyncEach => self.committer.wait(&self.log, Extent { end, generation })?,
            FsyncSchedule::Milliseconds(_) => self.committer.wait_synced(&self.log, end)?,
            FsyncSchedule::NoFsync => {}
        }
        let digest = self.log.writer.lock().digest;
        let value = Bytes::copy_from_slice(value);
        self.resources()
            .journal
            .append(&Record::Synced { log: self.log.id, end: self.log.synced.load(Ordering::Acquire) })?;
        self.log.say(&Record::LogSealed { log: self.log.id, end, digest, value: value.clone() })?;
        Ok(SealedEntry { end, digest, value })
    }
}
