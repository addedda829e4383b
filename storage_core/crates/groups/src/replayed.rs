//! What the records of a coordinator's log say together: every group of it, as it is stored.

use std::collections::BTreeMap;

use crate::codec::{GroupName, Key, Unreadable};
use crate::offsets::{Committed, Place};
use crate::record::GroupRecord;

/// All groups of a log, by its records up to some place.
#[derive(Debug, Default)]
pub struct Replayed {
    pub(crate) groups: BTreeMap<GroupName, ReplayedGroup>,
}

/// What the records say of one group.
#[derive(Debug, Default)]
pub(crate) struct ReplayedGroup {
    pub(crate) record: GroupRecord,
    /// The value of the group's newest record.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) offsets: BTreeMap<Place, Committed>,
    /// Time of the newest record of the group or of its offsets, milliseconds since the epoch.
    pub(crate) newest_ms: i64,
}

impl Replayed {
    /// Takes in the next record of the log.
    pub fn take_in(&mut self, key: &[u8], value: Option<&[u8]>, timestamp_ms: i64) -> Result<(), Unreadable> {
        let key = Key::decode(key)?;
        let (Key::Group(name) | Key::Offset(name, _)) = &key else { return Ok(()) };
        let group = self.groups.entry(name.clone()).or_default();
        group.newest_ms = group.newest_ms.max(timestamp_ms);
        match key {
            Key::Nothing => {}
            Key::Group(_) => {
                group.record = value.map(GroupRecord::decode).transpose()?.unwrap_or_default();
                group.value = value.map(<[u8]>::to_vec);
            }
            Key::Offset(_, place) => match value.map(Committed::decode).transpose()? {
                Some(committed) => drop(group.offsets.insert(place, committed)),
                None => drop(group.offsets.remove(&place)),
            },
        }
        Ok(())
    }
}

impl ReplayedGroup {
    /// Whether all of the group was taken out again.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.value.is_none() && self.offsets.is_empty()
    }
}
