//! The turn between two appends in which the bytes of a log below its end may be cut or filled.

use super::member::Member;
use crate::error::{Error, Result};
use crate::log::state::{Phase, Writer};
use crate::types::Offset;

impl Member {
    /// Runs `work` while nothing is appended or committed, and everything that was appended is written: bytes that are
    /// only in memory cannot be cut or filled. Refuses a sealed log and a deleted one.
    pub(super) fn between_appends(&self, work: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
        let log = &*self.log;
        let _changing = log.changing.lock();
        let _layout = log.layout.write();
        self.committer.behind_commit(|| {
            let mut writer = log.writer.lock();
            match writer.phase {
                Phase::Deleted => return Err(Error::UnknownLog { log: log.id }),
                Phase::Sealed | Phase::Sealing => {
                    return Err(Error::Sealed { log: log.id, end: Offset(writer.end) });
                }
                Phase::Active => {}
            }
            log.check_poisoned()?;
            work(&mut writer)
        })
    }
}
