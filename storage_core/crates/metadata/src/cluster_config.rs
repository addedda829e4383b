//! Cluster-wide settings: typed keys under one version. A key that is not set here is left to each node's own option.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::rejection::CommandRejection;

const DAY_MS: u64 = 86_400_000;

/// A setting: its name and the values it takes.
struct Key {
    name: &'static str,
    min: u64,
    max: u64,
    /// Level of the commands that name the key.
    level: u32,
}

/// Default of `copies.grace_ms`: a node may be restarted, or moved by Kubernetes, in that time.
const COPIES_GRACE_MS: u64 = 600_000;
const COPIES_MOVES_MAX: u64 = 16;
/// Default of `copies.imbalance_max_points`.
const COPIES_IMBALANCE_MAX_POINTS: u64 = 10;

const COPIES_BYTES_PER_SECOND: u64 = 64 << 20;
const SCRUB_BYTES_PER_SECOND: u64 = 8 << 20;
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Default of `topics.partitions_max`: each partition costs a log on some disks, and a place in every node's memory.
const PARTITIONS_MAX: u64 = 50_000;
const CREATIONS_PER_SECOND_MAX: u64 = 500;
/// Default of `segments.rolls_per_second_max`: each roll is two commands of the metadata, and a log on some disks.
const ROLLS_PER_SECOND_MAX: u64 = 500;

const KEYS: [Key; 16] = [
    Key { name: "segments.max_entries", min: 1, max: 1 << 40, level: 1 },
    Key { name: "segments.max_bytes", min: 1, max: 1 << 50, level: 1 },
    // Age at which a segment is rolled; 0 turns rolls by age off.
    Key { name: "segments.max_age_ms", min: 0, max: 36_500 * DAY_MS, level: 1 },
    Key { name: "segments.check_interval_ms", min: 10, max: DAY_MS, level: 1 },
    // Age before which a segment is not rolled for its size or age.
    Key { name: "segments.min_age_ms", min: 0, max: DAY_MS, level: 7 },
    // Limit on the rolls for size or age in one second, in the whole cluster.
    Key { name: "segments.rolls_per_second_max", min: 1, max: 1_000_000, level: 7 },
    // Time for which a node may be silent before its copies are made elsewhere.
    Key { name: "copies.grace_ms", min: 0, max: 365 * DAY_MS, level: 1 },
    // Copies that are made at once, in the whole cluster; 0: none.
    Key { name: "copies.moves_max", min: 0, max: 10_000, level: 1 },
    // Percentage points by which a disk may be fuller than all disks together before its copies move; 100: they never do.
    Key { name: "copies.imbalance_max_points", min: 1, max: 100, level: 8 },
    // Limit on the rate at which one node makes copies of segments that lack some.
    Key { name: "copies.bytes_per_second", min: 1, max: 1 << 40, level: 1 },
    // Limit on the rate at which one node reads its sealed copies to see whether they are still whole.
    Key { name: "scrub.bytes_per_second", min: 1, max: 1 << 40, level: 1 },
    // Time from the beginning of one such round to that of the next.
    Key { name: "scrub.interval_ms", min: 10, max: 365 * DAY_MS, level: 1 },
    // A disk with less free space is full.
    Key { name: "disks.free_bytes_min", min: 0, max: 1 << 50, level: 2 },
    // Limit on the partitions of all topics together.
    Key { name: "topics.partitions_max", min: 1, max: 10_000_000, level: 3 },
    // Partitions of a topic that a client of Kafka makes and for which it names no number.
    Key { name: "topics.partitions_default", min: 1, max: 10_000, level: 7 },
    // Limit on the topics that are created in one second.
    Key { name: "topics.creations_per_second_max", min: 1, max: 1_000_000, level: 3 },
];

/// The settings. Every node follows them while it runs, after a restart, and from its first moment in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterConfig {
    /// Version of the metadata at the last change of a setting; 0 as long as none was made.
    pub version: u64,
    /// Values by key. All settings so far are whole numbers.
    pub entries: BTreeMap<String, u64>,
}

impl ClusterConfig {
    pub(crate) fn copies_grace_ms(&self) -> u64 {
        self.entries.get("copies.grace_ms").copied().unwrap_or(COPIES_GRACE_MS)
    }

    pub(crate) fn copies_moves_max(&self) -> usize {
        let moves = self.entries.get("copies.moves_max").copied().unwrap_or(COPIES_MOVES_MAX);
        usize::try_from(moves).unwrap_or(usize::MAX)
    }

    pub(crate) fn copies_imbalance_max_points(&self) -> u64 {
        let points = self.entries.get("copies.imbalance_max_points").copied();
        points.unwrap_or(COPIES_IMBALANCE_MAX_POINTS)
    }

    /// Limit on the rate at which one node makes copies of segments that lack some.
    #[must_use]
    pub fn copies_bytes_per_second(&self) -> u64 {
        self.entries.get("copies.bytes_per_second").copied().unwrap_or(COPIES_BYTES_PER_SECOND)
    }

    /// Limit on the rate at which one node reads its sealed copies to see whether they are still whole.
    #[must_use]
    pub fn scrub_bytes_per_second(&self) -> u64 {
        self.entries.get("scrub.bytes_per_second").copied().unwrap_or(SCRUB_BYTES_PER_SECOND)
    }

    /// Time from the beginning of one round of the scrub to that of the next, in milliseconds.
    #[must_use]
    pub fn scrub_interval_ms(&self) -> u64 {
        self.entries.get("scrub.interval_ms").copied().unwrap_or(DAY_MS)
    }

    /// Limit on the partitions of all topics together.
    #[must_use]
    pub fn partitions_max(&self) -> u64 {
        self.entries.get("topics.partitions_max").copied().unwrap_or(PARTITIONS_MAX)
    }

    /// Partitions of a topic that a client of Kafka makes and for which it names no number.
    #[must_use]
    pub fn partitions_default(&self) -> u32 {
        let number =
            self.entries.get("topics.partitions_default").and_then(|number| u32::try_from(*number).ok());
        number.unwrap_or(1)
    }

    /// Limit on the topics that are created in one second.
    #[must_use]
    pub fn creations_per_second_max(&self) -> u64 {
        self.entries.get("topics.creations_per_second_max").copied().unwrap_or(CREATIONS_PER_SECOND_MAX)
    }

    /// Limit on the segments that are rolled for their size or age in one second, in the whole cluster.
    #[must_use]
    pub fn rolls_per_second_max(&self) -> u64 {
        self.entries.get("segments.rolls_per_second_max").copied().unwrap_or(ROLLS_PER_SECOND_MAX)
    }

    /// Free space of a disk, in bytes, below which its node is full.
    #[must_use]
    pub fn free_bytes_min(&self) -> u64 {
        self.entries.get("disks.free_bytes_min").copied().unwrap_or(FREE_BYTES_MIN)
    }

    /// Sets some keys and forgets others, all or none of them. The version becomes `version` only if an entry differs then.
    pub(crate) fn change(
        &mut self,
        set: &BTreeMap<String, u64>,
        unset: &BTreeSet<String>,
        version: u64,
    ) -> Result<Answer, CommandRejection> {
        for (name, value) in set {
            let key = find(name)?;
            if !(key.min..=key.max).contains(value) {
                let what = format!("it must be between {} and {}, not {value}", key.min, key.max);
                return Err(CommandRejection::InvalidConfig { key: name.clone(), what });
            }
        }
        for name in unset {
            find(name)?;
            if set.contains_key(name) {
                return Err(CommandRejection::InvalidConfig {
                    key: name.clone(),
                    what: "it cannot be set and unset at once".to_owned(),
                });
            }
        }
        let mut entries = self.entries.clone();
        entries.extend(set.iter().map(|(name, value)| (name.clone(), *value)));
        entries.retain(|name, _| !unset.contains(name));
        if entries != self.entries {
            *self = Self { version, entries };
        }
        Ok(Answer::Config { version: self.version })
    }
}

/// Level of a command that names these keys; keys that do not exist need none.
pub(crate) fn level<'a>(names: impl Iterator<Item = &'a String>) -> u32 {
    let known = names.filter_map(|name| KEYS.iter().find(|key| key.name == name));
    known.map(|key| key.level).max().unwrap_or(1)
}

fn find(name: &str) -> Result<&'static Key, CommandRejection> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        CommandRejection::InvalidConfig {
            key: name.to_owned(),
            what: format!("there is no such setting; the settings are {}", known.join(", ")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(entries: &[(&str, u64)]) -> BTreeMap<String, u64> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn unset(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn no_setting_is_of_a_level_that_nobody_knows() {
        assert!(KEYS.iter().all(|key| key.level <= crate::LEVEL));
    }

    #[test]
    fn a_change_counts_once_and_leaves_other_settings_alone() {
        let mut config = ClusterConfig::default();
        let first = set(&[("segments.max_entries", 10), ("segments.max_age_ms", 0)]);
        assert_eq!(config.change(&first, &unset(&[]), 7), Ok(Answer::Config { version: 7 }));
        assert_eq!(config.change(&first, &unset(&[]), 8), Ok(Answer::Config { version: 7 }));
        let second = set(&[("segments.max_bytes", 4096)]);
        assert_eq!(
            config.change(&second, &unset(&["segments.max_age_ms"]), 9),
            Ok(Answer::Config { version: 9 })
        );
        assert_eq!(config.entries, set(&[("segments.max_entries", 10), ("segments.max_bytes", 4096)]));
    }

    #[test]
    fn a_wrong_key_or_value_is_named_and_changes_nothing() {
        let before = ClusterConfig { version: 3, entries: set(&[("segments.max_entries", 10)]) };
        let wrong = [
            (
                set(&[("segments.max_entries", 5), ("segments.max_speed", 1)]),
                unset(&[]),
                "segments.max_speed",
            ),
            (
                set(&[("segments.max_entries", 5), ("segments.max_bytes", 0)]),
                unset(&[]),
                "segments.max_bytes",
            ),
            (set(&[]), unset(&["segments.min_bytes"]), "segments.min_bytes"),
            (set(&[("segments.max_bytes", 5)]), unset(&["segments.max_bytes"]), "segments.max_bytes"),
        ];
        for (set, unset, name) in wrong {
            let mut config = before.clone();
            let refused = config.change(&set, &unset, 4);
            assert!(
                matches!(&refused, Err(CommandRejection::InvalidConfig { key, .. }) if key == name),
                "{refused:?}"
            );
            assert_eq!(config, before);
        }
    }
}
