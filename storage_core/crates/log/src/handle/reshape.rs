//! The turn in which the bytes of a log below its end may be rearranged.

use super::member::Member;
use crate::error::{Error, Result};
use crate::log::state::{Phase, Writer};
use crate::types::Offset;

impl Member {
    /// Runs `work` while nothing is appended or committed and everything appended is with the disk: bytes that are
    /// only in memory cannot be cut or filled there. Refuses a sealed log and a deleted one.
    pub(super) fn reshape(&self, work: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
        let log = &*self.log;
        let _changing = log.changing.lock();
        let _reshaping = log.reshaping.write();
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
