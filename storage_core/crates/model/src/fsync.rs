//! When what is appended is synced to the disk.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Longest time for which data may be left to a background sync: a day.
const MILLISECONDS_MAX: u64 = 86_400_000;

/// Schedule of the syncs of data, for a store and for each log that has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "String", try_from = "String"))]
pub enum FsyncSchedule {
    /// An append is durable when it is acknowledged; concurrent appends share a sync.
    #[default]
    SyncEach,
    /// Data is synced in the background, this many milliseconds after the first append that is not synced.
    Milliseconds(NonZeroU64),
    /// Data is never synced, not even at a seal or when the store is closed. A power failure may take everything. A killed
    /// process loses nothing with the backend `mmap`; with others it loses what waited in memory: a tenth of a second of
    /// appends, more if they outran the disk.
    NoFsync,
}

impl FsyncSchedule {
    /// Whether data is synced at all.
    #[must_use]
    pub fn syncs(self) -> bool {
        self != Self::NoFsync
    }

    /// Whether readers see a record before it is synced, so that a power failure can take it back.
    #[must_use]
    pub fn publishes_at_append(self) -> bool {
        self != Self::SyncEach
    }

    /// The number that stands for the schedule on disks and between brokers: 0 for each, the greatest for never, else the
    /// milliseconds.
    #[must_use]
    pub fn to_number(self) -> u64 {
        match self {
            Self::SyncEach => 0,
            Self::Milliseconds(interval) => interval.get(),
            Self::NoFsync => u64::MAX,
        }
    }

    /// The schedule of a number from [`FsyncSchedule::to_number`].
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        match NonZeroU64::new(number) {
            None => Self::SyncEach,
            Some(NonZeroU64::MAX) => Self::NoFsync,
            Some(interval) => Self::Milliseconds(interval),
        }
    }
}

/// A text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSchedule {
    /// The text, up to its hundredth character.
    given: String,
}

impl fmt::Display for NoSchedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is not each, never or <n>ms, from 1ms to {MILLISECONDS_MAX}ms", self.given)
    }
}

impl std::error::Error for NoSchedule {}

impl FromStr for FsyncSchedule {
    type Err = NoSchedule;

    /// Parses `each`, `never` or `<n>ms`.
    fn from_str(text: &str) -> Result<Self, NoSchedule> {
        let milliseconds = || text.strip_suffix("ms")?.parse().ok();
        match text {
            "each" => Ok(Self::SyncEach),
            "never" => Ok(Self::NoFsync),
            _ => milliseconds()
                .filter(|interval: &NonZeroU64| interval.get() <= MILLISECONDS_MAX)
                .map(Self::Milliseconds)
                .ok_or_else(|| NoSchedule { given: text.chars().take(100).collect() }),
        }
    }
}

impl fmt::Display for FsyncSchedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SyncEach => formatter.write_str("each"),
            Self::Milliseconds(interval) => write!(formatter, "{interval}ms"),
            Self::NoFsync => formatter.write_str("never"),
        }
    }
}

impl From<FsyncSchedule> for String {
    fn from(schedule: FsyncSchedule) -> Self {
        schedule.to_string()
    }
}

impl TryFrom<String> for FsyncSchedule {
    type Error = NoSchedule;

    fn try_from(text: String) -> Result<Self, NoSchedule> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_comes_back_from_its_text_and_from_its_number() {
        for text in ["each", "never", "1ms", "86400000ms"] {
            let schedule: FsyncSchedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), text);
            assert_eq!(FsyncSchedule::from_number(schedule.to_number()), schedule);
        }
        for text in ["", "0ms", "-1ms", "86400001ms", "5", "5s", "Each", "18446744073709551615ms"] {
            let given = text.to_owned();
            assert_eq!(text.parse::<FsyncSchedule>(), Err(NoSchedule { given }));
        }
    }
}
