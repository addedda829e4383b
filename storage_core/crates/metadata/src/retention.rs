//! The policy by which a topic lets records go, and what it looks at: sizes and times as the holders of copies report them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use walrus_model::Offset;

/// What the batches of a sealed segment hold. All copies are alike, so all holders report the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Their bytes.
    pub bytes: u64,
    /// The greatest timestamp of a record, milliseconds since the epoch; `None` if none has one.
    pub newest_ms: Option<i64>,
}

/// The policy by which a topic lets records go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Age in milliseconds at which a segment goes whose newest record is so old; `None`: at none.
    pub age_ms: Option<u64>,
    /// Bytes that stay of a partition: the oldest segment goes if the ones behind it have as many.
    pub bytes: Option<u64>,
    /// Whether nothing goes that is not in the archive. Nothing brings an archive's mark yet, so nothing goes at all.
    pub archived: bool,
    /// Whether what its readers have used up goes.
    pub consumed: bool,
}

/// Up to where the readers have read that a topic's retention asks: by name and partition, the first offset that the reader lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadMarks(BTreeMap<String, BTreeMap<u32, Offset>>);

impl ReadMarks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first offset of a partition that a reader lacks: 0 until somebody says otherwise.
    #[must_use]
    pub fn of(&self, reader: &str, partition: u32) -> Offset {
        self.0.get(reader).and_then(|marks| marks.get(&partition)).copied().unwrap_or(Offset(0))
    }

    pub(crate) fn set(&mut self, reader: &str, partition: u32, mark: Offset) {
        self.0.entry(reader.to_owned()).or_default().insert(partition, mark);
    }

    /// Forgets readers that nobody asks any more.
    pub(crate) fn keep(&mut self, is_asked: impl Fn(&str) -> bool) {
        self.0.retain(|reader, _| is_asked(reader));
    }
}

impl Retention {
    /// Whether it lets anything go by itself.
    #[must_use]
    pub fn is_for_ever(&self) -> bool {
        self.age_ms.is_none() && self.bytes.is_none() && !self.consumed
    }

    /// When a segment is old enough to go, milliseconds since the epoch; `None` if it never is. One whose records have no
    /// timestamp counts from `ended_ms`, when it was sealed.
    pub(crate) fn expires_at(&self, newest_ms: Option<i64>, ended_ms: u64) -> Option<u64> {
        let newest_ms = newest_ms.and_then(|newest| u64::try_from(newest).ok());
        self.age_ms.map(|age| newest_ms.unwrap_or(ended_ms).saturating_add(age))
    }

    /// Whether an open segment that has records holds nothing any more that the topic keeps, at the time `now_ms`. What has no
    /// timestamp counts from a segment's end, so it is no reason to end one.
    #[must_use]
    pub fn has_expired(&self, newest_ms: Option<i64>, now_ms: u64) -> bool {
        let has_time = newest_ms.is_some_and(|newest| newest >= 0);
        !self.archived && has_time && self.expires_at(newest_ms, now_ms).is_some_and(|at| at <= now_ms)
    }
}
