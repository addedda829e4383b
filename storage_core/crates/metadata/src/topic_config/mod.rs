//! Settings of a topic: which it has, how they are changed, and what is in force where it has none. Pure.

mod definition;
mod problem;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use walrus_model::{FsyncSchedule, Replication};

use crate::compaction::CompactionPolicy;
use crate::retention::Retention;
use crate::rolling::Limits;
pub use definition::{BATCH_BYTES_MAX, DEFINITIONS, Definition, Effect, Fallback, Values};
use definition::{
    CLEANUP_POLICY, COMPACT, COMPACTION_LAG_MAX, COMPACTION_LAG_MIN, DELETE, DELETE_RETENTION_MS,
    DIRTY_RATIO_MIN, FSYNC, LEADERS, LOG_APPEND_TIME, MAX_MESSAGE_BYTES, MIN_INSYNC_REPLICAS,
    READER_BYTES_MAX, READERS_MAX, REPLICATION_FACTOR, RETENTION_ARCHIVED, RETENTION_BYTES,
    RETENTION_CONSUMED, RETENTION_MS, RETENTION_PINNED, SEGMENT_BYTES, SEGMENT_ENTRIES, SEGMENT_MS, STICKY,
    TIMESTAMP_AFTER, TIMESTAMP_BEFORE, TIMESTAMP_TYPE,
};
pub(crate) use definition::{PLACEMENT_SETTINGS, RETENTION_SETTINGS};
pub use problem::{SettingProblem, WrongSetting};

/// The value of settings in milliseconds that bound nothing: `segment.ms`, and those of timestamps.
const ANY_AGE_MS: u64 = i64::MAX.cast_unsigned();

/// So much of a name or value is repeated to whoever gave a wrong one.
const SHOWN_CHARS_MAX: usize = 100;

/// The settings that a topic has itself, as they are stored: checked, and in the form in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicConfig {
    /// Version of the metadata at the last change of a setting; 0 as long as there was none.
    pub version: u64,
    /// Values by name.
    pub values: BTreeMap<String, String>,
}

/// The settings of a topic by which brokers act; `None`: each node's own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Limit on the bytes of a batch.
    pub batch_bytes_max: u64,
    /// Limit on the records of a segment.
    pub segment_entries_max: Option<u64>,
    /// Limit on the bytes of a segment's batches.
    pub segment_bytes_max: Option<u64>,
    /// Limit on the age of a segment.
    pub segment_age_ms_max: Option<u64>,
    /// Whose time the records have.
    pub timestamps: Timestamps,
    /// Whether each record needs a key, for the last one of each key is kept.
    pub needs_keys: bool,
}

/// Whose time the records of a topic have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// The producer's.
    Created {
        /// How far behind the leader's clock a timestamp may be, in milliseconds; `None`: any distance.
        before_ms_max: Option<u64>,
        /// How far ahead of it.
        after_ms_max: Option<u64>,
    },
    /// The leader's.
    Appended,
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The topic sets it.
    Topic,
    /// The cluster sets it, for all topics that do not.
    Cluster,
    /// An option of the node that was asked.
    Node,
    /// Nobody sets it.
    BuiltIn,
}

/// A setting as it is in force for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingInForce {
    /// What it is.
    pub definition: &'static Definition,
    /// Its value.
    pub value: String,
    /// Where that comes from.
    pub source: Source,
}

impl TopicSettings {
    /// The limits at which a segment of the topic is full, where the node's own are `node`.
    #[must_use]
    pub fn limits(&self, node: Limits) -> Limits {
        Limits {
            entries_max: self.segment_entries_max.unwrap_or(node.entries_max),
            bytes_max: self.segment_bytes_max.unwrap_or(node.bytes_max),
            age_max: self.segment_age_ms_max.map_or(node.age_max, |ms| Some(Duration::from_millis(ms))),
            age_min: node.age_min,
        }
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Definition {}

impl TopicConfig {
    /// Whether the topic sets nothing, and never did.
    pub(crate) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// The configuration of a topic that is created with these settings.
    pub(crate) fn new(set: &BTreeMap<String, String>, version: u64) -> Result<Self, WrongSetting> {
        let mut config = Self::default();
        config.change(set, &BTreeSet::new(), version)?;
        Ok(config)
    }

    /// Sets some settings and forgets others, all or none of them. The version becomes `version` only if one differs then.
    pub(crate) fn change(
        &mut self,
        set: &BTreeMap<String, String>,
        unset: &BTreeSet<String>,
        version: u64,
    ) -> Result<(), WrongSetting> {
        let mut values = self.values.clone();
        for name in unset {
            let refused = |problem| refused(name, problem);
            find(name).map_err(refused)?;
            if set.contains_key(name) {
                return Err(refused(SettingProblem::SetAndUnset));
            }
            values.remove(name);
        }
        for (name, value) in set {
            let stored = find(name).and_then(|definition| definition.values.parse(value));
            values.insert(name.clone(), stored.map_err(|problem| refused(name, problem))?);
        }
        if values != self.values {
            *self = Self { version, values };
        }
        Ok(())
    }

    /// Refuses a change that the topic's settings cannot take.
    pub fn check(
        &self,
        set: &BTreeMap<String, String>,
        unset: &BTreeSet<String>,
    ) -> Result<(), WrongSetting> {
        self.clone().change(set, unset, self.version)
    }

    /// Whether these settings, each of which it may have in another form, are what the topic has already.
    #[must_use]
    pub fn has(&self, set: &BTreeMap<String, String>) -> bool {
        let mut changed = self.clone();
        changed.change(set, &BTreeSet::new(), self.version).is_ok() && changed == *self
    }

    /// The settings by which brokers act.
    #[must_use]
    pub fn settings(&self) -> TopicSettings {
        TopicSettings {
            batch_bytes_max: self.number(MAX_MESSAGE_BYTES).unwrap_or(BATCH_BYTES_MAX),
            segment_entries_max: self.number(SEGMENT_ENTRIES),
            segment_bytes_max: self.number(SEGMENT_BYTES),
            segment_age_ms_max: self.segment_age_ms_max(),
            timestamps: self.timestamps(),
            needs_keys: self.cleans_by(COMPACT),
        }
    }

    /// The age at which a segment ends; where the topic is compacted it is no older than a record may be that no compaction has
    /// looked at.
    fn segment_age_ms_max(&self) -> Option<u64> {
        let lag = self.compaction().map(|policy| policy.lag_max_ms).filter(|lag| *lag < ANY_AGE_MS);
        self.number(SEGMENT_MS).into_iter().chain(lag).min()
    }

    /// Whether the topic's policy has that word.
    fn cleans_by(&self, word: &str) -> bool {
        self.values
            .get(CLEANUP_POLICY)
            .map_or(word == DELETE, |policy| policy.split(',').any(|has| has == word))
    }

    /// The policy by which the topic keeps the last record of each key; `None` if it does not.
    #[must_use]
    pub fn compaction(&self) -> Option<CompactionPolicy> {
        let in_force = |name: &str| {
            let built_in = || match find(name).ok()?.default {
                Fallback::Value(value) => Some(value),
                _ => None,
            };
            self.values.get(name).map(String::as_str).or_else(built_in)
        };
        let number = |name| in_force(name).and_then(|value| value.parse().ok()).unwrap_or(ANY_AGE_MS);
        self.cleans_by(COMPACT).then(|| CompactionPolicy {
            tombstone_delay_ms: number(DELETE_RETENTION_MS),
            lag_min_ms: number(COMPACTION_LAG_MIN),
            lag_max_ms: number(COMPACTION_LAG_MAX),
            dirty_share_min: in_force(DIRTY_RATIO_MIN).and_then(|share| share.parse().ok()).unwrap_or(1.0),
        })
    }

    fn timestamps(&self) -> Timestamps {
        if self.values.get(TIMESTAMP_TYPE).is_some_and(|value| value == LOG_APPEND_TIME) {
            return Timestamps::Appended;
        }
        let bound = |name| self.number(name).filter(|bound| *bound < ANY_AGE_MS);
        let (before_ms_max, after_ms_max) = (bound(TIMESTAMP_BEFORE), bound(TIMESTAMP_AFTER));
        Timestamps::Created { before_ms_max, after_ms_max }
    }

    /// The policy by which the topic lets records go.
    #[must_use]
    pub fn retention(&self) -> Retention {
        if !self.cleans_by(DELETE) {
            return Retention::default();
        }
        // -1, which keeps everything, is no number here.
        let is_archived = self.values.get(RETENTION_ARCHIVED).is_some_and(|value| value == "true");
        Retention {
            age_ms: self.number(RETENTION_MS),
            bytes: self.number(RETENTION_BYTES),
            archived: is_archived,
            consumed: self.consumed_by().next().is_some(),
        }
    }

    /// The readers that use records up.
    pub(crate) fn consumed_by(&self) -> impl Iterator<Item = &str> {
        self.readers_of(RETENTION_CONSUMED)
    }

    /// The readers whom retention waits for.
    pub(crate) fn pinned_by(&self) -> impl Iterator<Item = &str> {
        self.readers_of(RETENTION_PINNED)
    }

    /// Whether it matters to retention up to where a reader of that name has read.
    #[must_use]
    pub fn asks_reader(&self, name: &str) -> bool {
        self.readers().any(|asked| asked == name)
    }

    /// The readers of whom it matters to retention up to where they have read.
    pub fn readers(&self) -> impl Iterator<Item = &str> {
        self.consumed_by().chain(self.pinned_by())
    }

    fn readers_of(&self, setting: &str) -> impl Iterator<Item = &str> {
        let names = self.values.get(setting).map_or("", String::as_str).split(',');
        names.filter(|name| !name.is_empty())
    }

    /// The replication of the topic's next segment, where the cluster's is `cluster`. Where the topic sets a part of it, the
    /// quorum is at least a majority: with a smaller one every replica would be needed to end a segment.
    pub(crate) fn replication(&self, cluster: Replication) -> Replication {
        if !self.sets_replication() {
            return cluster;
        }
        let number = |name| self.number(name).and_then(|wanted| u32::try_from(wanted).ok());
        let factor = number(REPLICATION_FACTOR).unwrap_or(cluster.factor);
        let acknowledged = number(MIN_INSYNC_REPLICAS).unwrap_or(cluster.write_quorum);
        Replication { factor, write_quorum: factor.min(acknowledged.max(factor / 2 + 1)) }
    }

    /// Whether the topic's next segment is led by the node that led the last one, where that can.
    pub(crate) fn has_sticky_leaders(&self) -> bool {
        self.values.get(LEADERS).is_some_and(|value| value == STICKY)
    }

    /// When replicas of the topic's next segment sync; `None`: as each node's store does.
    pub(crate) fn fsync(&self) -> Option<FsyncSchedule> {
        self.values.get(FSYNC)?.parse().ok()
    }

    /// Whether the topic sets how many copies it has, or how many of them acknowledge.
    pub(crate) fn sets_replication(&self) -> bool {
        [MIN_INSYNC_REPLICAS, REPLICATION_FACTOR].iter().any(|name| self.values.contains_key(*name))
    }

    /// All settings as they are in force on a node, by name. `cluster` are the settings of the cluster; `node` are the limits of the
    /// node's segments (its options, and above them those settings) and the schedule of its store.
    #[must_use]
    pub fn in_force(
        &self,
        cluster: &BTreeMap<String, u64>,
        replication: Replication,
        (node, fsync): (Limits, FsyncSchedule),
    ) -> Vec<SettingInForce> {
        let limits = self.settings().limits(node);
        let of_node = |name: &str| match name {
            SEGMENT_ENTRIES => limits.entries_max,
            SEGMENT_BYTES => limits.bytes_max,
            _ => {
                limits.age_max.map_or(ANY_AGE_MS, |age| u64::try_from(age.as_millis()).unwrap_or(ANY_AGE_MS))
            }
        };
        let in_force = |definition: &'static Definition| {
            let (value, source) = match (self.values.get(definition.name), definition.default) {
                (Some(value), _) => (value.clone(), Source::Topic),
                (None, Fallback::Value(value)) => (value.to_owned(), Source::BuiltIn),
                (None, Fallback::NodeOption(_)) => (fsync.to_string(), Source::Node),
                (None, Fallback::WriteQuorum) => (replication.write_quorum.to_string(), Source::Cluster),
                (None, Fallback::Factor) => (replication.factor.to_string(), Source::Cluster),
                (None, Fallback::ClusterSetting(key)) => {
                    let is_set = cluster.contains_key(key);
                    let source = if is_set { Source::Cluster } else { Source::Node };
                    (of_node(definition.name).to_string(), source)
                }
            };
            SettingInForce { definition, value, source }
        };
        DEFINITIONS.iter().map(in_force).collect()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.values.get(name)?.parse().ok()
    }
}

impl Values {
    /// A value as it is stored.
    fn parse(&self, given: &str) -> Result<String, SettingProblem> {
        let (given, got) = (given.trim(), || shortened(given));
        match *self {
            Self::Whole { min, max } => {
                let number = given.parse().ok().filter(|number| (min..=max).contains(number));
                number.map(|number: i64| number.to_string()).ok_or_else(|| SettingProblem::OutOfBounds {
                    min,
                    max,
                    got: got(),
                })
            }
            Self::OneOf(words) => {
                let found = words.iter().find(|word| word.eq_ignore_ascii_case(given));
                let problem = || SettingProblem::NoSuchWord { words: words.join(", "), got: got() };
                found.map(|word| (*word).to_owned()).ok_or_else(problem)
            }
            Self::SomeOf(words) => {
                let is_given =
                    |word: &&&str| given.split(',').any(|has| has.trim().eq_ignore_ascii_case(word));
                let found: Vec<&str> = words.iter().filter(is_given).copied().collect();
                let problem = || SettingProblem::NoSuchWords { words: words.join(", "), got: got() };
                (found.len() == given.split(',').count()).then(|| found.join(",")).ok_or_else(problem)
            }
            Self::Share => {
                let share = given.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share
                    .map(|share: f64| share.to_string())
                    .ok_or_else(|| SettingProblem::NoShare { got: got() })
            }
            Self::OnlyFalse(_) if given.eq_ignore_ascii_case("false") => Ok("false".to_owned()),
            Self::OnlyFalse(because) => {
                Err(SettingProblem::OnlyFalse { because: because.to_owned(), got: got() })
            }
            Self::Text(bytes_max) if given.len() > bytes_max => {
                Err(SettingProblem::TooLong { bytes: given.len() as u64, bytes_max: bytes_max as u64 })
            }
            Self::Text(_) => Ok(given.to_owned()),
            Self::Schedule => match given.parse::<FsyncSchedule>() {
                Ok(schedule) => Ok(schedule.to_string()),
                Err(no_schedule) => Err(SettingProblem::NoSchedule { told: no_schedule.to_string() }),
            },
            Self::Readers if given.is_empty() => Ok(String::new()),
            Self::Readers => {
                let names: BTreeSet<&str> = given.split(',').map(str::trim).collect();
                let is_name = |name: &&str| {
                    (1..=READER_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
                };
                let are_sound = names.len() <= READERS_MAX && names.iter().all(is_name);
                let problem = || SettingProblem::NoReaders { got: got() };
                are_sound.then(|| names.into_iter().collect::<Vec<_>>().join(",")).ok_or_else(problem)
            }
        }
    }
}

fn find(name: &str) -> Result<&'static Definition, SettingProblem> {
    if let Some(found) = DEFINITIONS.iter().find(|definition| definition.name == name) {
        return Ok(found);
    }
    let given = shortened(name);
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(known, &given);
    let names = DEFINITIONS.iter().map(|definition| definition.name);
    let nearest = names.max_by(|left, right| likeness(left).total_cmp(&likeness(right))).unwrap_or_default();
    Err(SettingProblem::Unknown { nearest: nearest.to_owned() })
}

fn refused(name: &str, problem: SettingProblem) -> WrongSetting {
    WrongSetting { name: shortened(name), problem }
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
