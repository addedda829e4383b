//! When and why a segment ends: the limits that its leader compares with, and the reasons that it names.

use std::fmt;
use std::time::Duration;

/// Sizes at which a segment ends. The batch that crosses one is the last one in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit on its records.
    pub entries_max: u64,
    /// Limit on the bytes of its batches.
    pub bytes_max: u64,
    /// Limit on the time since it was opened; `None` if it may be of any age.
    pub age_max: Option<Duration>,
    /// Age before which it does not end for its size or age, so that small segments flood nobody with metadata.
    pub age_min: Duration,
}

/// Why a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The segment has as many records as it may.
    Entries,
    /// Its batches have as many bytes as they may.
    Bytes,
    /// It was opened as long ago as it may have been.
    Age,
    /// Its leader is an earlier process of this node, and a leader never resumes.
    Restarted,
    /// The disk of its leader is full.
    NoSpace,
    /// Its replicas belong on other nodes.
    Moved,
    /// Its topic wants each record on more disks before it is acknowledged.
    Quorum,
    /// It remembers so many producers that the silent ones are to be forgotten, which is done between segments.
    Producers,
    /// It holds nothing any more that its topic keeps.
    Retention,
    /// Its leader leads more partitions than others do.
    Spread,
    /// Its leader's process is about to stop.
    Stopping,
}

impl Reason {
    /// Whether the node that leads the segment may not lead the next one.
    #[must_use]
    pub fn sends_away(self) -> bool {
        matches!(self, Self::NoSpace | Self::Spread | Self::Stopping)
    }

    /// Stable name, for events, logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Bytes => "bytes",
            Self::Age => "age",
            Self::Restarted => "restarted",
            Self::NoSpace => "no_space",
            Self::Moved => "moved",
            Self::Quorum => "quorum",
            Self::Producers => "producers",
            Self::Retention => "retention",
            Self::Spread => "spread",
            Self::Stopping => "stopping",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
