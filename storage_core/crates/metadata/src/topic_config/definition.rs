//! The table of settings: every setting that a topic can have, what it takes, what holds without it, and what it does here.

use walrus_model::Replication;

/// The largest batch that a broker takes, in bytes; a topic can only be stricter.
pub const BATCH_BYTES_MAX: u64 = 24 << 20;

/// Longest value of a setting that is free text, in bytes.
const TEXT_BYTES_MAX: usize = 1_000;

/// Limit on the readers that a setting names.
pub(super) const READERS_MAX: usize = 16;
/// Longest name of a reader, in bytes.
pub(super) const READER_BYTES_MAX: usize = 249;

/// Names of the settings by which this crate acts.
pub(super) const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
pub(super) const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
pub(super) const SEGMENT_BYTES: &str = "segment.bytes";
pub(super) const SEGMENT_MS: &str = "segment.ms";
pub(super) const SEGMENT_ENTRIES: &str = "walrus.segment.entries";
pub(super) const FSYNC: &str = "walrus.fsync";
pub(super) const REPLICATION_FACTOR: &str = "walrus.replication.factor";
pub(super) const LEADERS: &str = "walrus.leaders";
pub(super) const TIMESTAMP_TYPE: &str = "message.timestamp.type";
pub(super) const TIMESTAMP_BEFORE: &str = "message.timestamp.before.max.ms";
pub(super) const TIMESTAMP_AFTER: &str = "message.timestamp.after.max.ms";
pub(super) const CLEANUP_POLICY: &str = "cleanup.policy";
pub(super) const DELETE_RETENTION_MS: &str = "delete.retention.ms";
pub(super) const COMPACTION_LAG_MIN: &str = "min.compaction.lag.ms";
pub(super) const COMPACTION_LAG_MAX: &str = "max.compaction.lag.ms";
pub(super) const DIRTY_RATIO_MIN: &str = "min.cleanable.dirty.ratio";
pub(super) const RETENTION_MS: &str = "retention.ms";
pub(super) const RETENTION_BYTES: &str = "retention.bytes";
pub(super) const RETENTION_ARCHIVED: &str = "walrus.retention.archived";
pub(super) const RETENTION_CONSUMED: &str = "walrus.retention.consumed";
pub(super) const RETENTION_PINNED: &str = "walrus.retention.pinned";

/// The settings of a topic's retention, which came with a level of commands of their own.
pub(crate) const RETENTION_SETTINGS: [&str; 3] = [RETENTION_MS, RETENTION_BYTES, RETENTION_ARCHIVED];

/// The settings of a topic's copies, leaders, timestamps, compaction and readers, which came with a later level.
pub(crate) const PLACEMENT_SETTINGS: [&str; 12] = [
    REPLICATION_FACTOR,
    LEADERS,
    TIMESTAMP_TYPE,
    TIMESTAMP_BEFORE,
    TIMESTAMP_AFTER,
    CLEANUP_POLICY,
    DELETE_RETENTION_MS,
    COMPACTION_LAG_MIN,
    COMPACTION_LAG_MAX,
    DIRTY_RATIO_MIN,
    RETENTION_CONSUMED,
    RETENTION_PINNED,
];

/// A setting of a topic. Two are the same if their names are.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name; Kafka's where Kafka has it.
    pub name: &'static str,
    /// The values that it takes.
    pub values: Values,
    /// What holds where the topic does not set it.
    pub default: Fallback,
    /// When a change of it is in force.
    pub effect: Effect,
    /// What it does here, as one sentence.
    pub what: &'static str,
}

/// The values of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Whole numbers between these two.
    Whole {
        /// Lowest.
        min: i64,
        /// Highest.
        max: i64,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// At least one of these words, with commas between them.
    SomeOf(&'static [&'static str]),
    /// A number from 0 to 1.
    Share,
    /// `false`, for this reason.
    OnlyFalse(&'static str),
    /// Any text of at most so many bytes.
    Text(usize),
    /// A schedule of syncs ([`walrus_model::FsyncSchedule`]).
    Schedule,
    /// Names of readers with commas between them, or none.
    Readers,
}

/// What holds where a topic does not set a setting.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// This value.
    Value(&'static str),
    /// A setting of the cluster, and where that is not set an option of each node.
    ClusterSetting(&'static str),
    /// This option of each node.
    NodeOption(&'static str),
    /// The write quorum of the cluster.
    WriteQuorum,
    /// The number of copies of the cluster.
    Factor,
}

/// When a change of a setting is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// From the next append on.
    NextAppend,
    /// From the next segment on.
    NextSegment,
    /// Within a minute, for all records that are there.
    WithinAMinute,
    /// Never: the setting is stored and shown, because clients of Kafka set it.
    Never,
}

const fn whole(min: i64, max: i64) -> Values {
    Values::Whole { min, max }
}

/// A setting of Kafka that is stored and shown.
const fn shown(name: &'static str, values: Values, default: &'static str, what: &'static str) -> Definition {
    Definition { name, values, default: Fallback::Value(default), effect: Effect::Never, what }
}

const ANY: Values = whole(0, i64::MAX);
const TEXT: Values = Values::Text(TEXT_BYTES_MAX);
const BOOLEAN: Values = Values::OneOf(&["true", "false"]);

/// Values of [`CLEANUP_POLICY`].
pub(super) const COMPACT: &str = "compact";
pub(super) const DELETE: &str = "delete";

/// Values of [`LEADERS`].
const ROTATE: &str = "rotate";
pub(super) const STICKY: &str = "sticky";

/// Values of [`TIMESTAMP_TYPE`].
const CREATE_TIME: &str = "CreateTime";
pub(super) const LOG_APPEND_TIME: &str = "LogAppendTime";

/// A time in milliseconds that bounds nothing.
const WITHOUT_BOUND: &str = "9223372036854775807";

const NO_INDEX: &str = "Segments have no index files: a block's directory is part of it.";
const NO_FLUSH: &str = "An acknowledged record is on disks already.";
const NO_TIERS: &str = "Segments are not moved to another storage.";
const NO_THROTTLE: &str = "The rate of copies is a setting of the cluster, `copies.bytes_per_second`.";
const AS_SENT: &str = "Batches stay as they were sent.";

/// All settings, by name.
pub const DEFINITIONS: [Definition; 40] = [
    Definition {
        name: CLEANUP_POLICY,
        values: Values::SomeOf(&[COMPACT, DELETE]),
        default: Fallback::Value(DELETE),
        effect: Effect::WithinAMinute,
        what: "How records go. `delete`: by age and size, as `retention.ms` and `retention.bytes` say. `compact`: each that a later \
               one of its key stands for. With both, either lets them go.",
    },
    shown("compression.gzip.level", whole(-1, 9), "-1", AS_SENT),
    shown("compression.lz4.level", whole(1, 17), "9", AS_SENT),
    shown(
        "compression.type",
        Values::OneOf(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
        "producer",
        AS_SENT,
    ),
    shown("compression.zstd.level", whole(-131_072, 22), "3", AS_SENT),
    Definition {
        name: DELETE_RETENTION_MS,
        values: ANY,
        default: Fallback::Value("86400000"),
        effect: Effect::WithinAMinute,
        what: "How long in milliseconds the last record of a key stays that has no value, behind the first compaction that left \
               nothing else of the key: so long a reader may take from the beginning to the end.",
    },
    shown("file.delete.delay.ms", ANY, "60000", "What is deleted frees its space at once."),
    shown("flush.messages", whole(1, i64::MAX), "9223372036854775807", NO_FLUSH),
    shown("flush.ms", ANY, "9223372036854775807", NO_FLUSH),
    shown("follower.replication.throttled.replicas", TEXT, "", NO_THROTTLE),
    shown("index.interval.bytes", ANY, "4096", NO_INDEX),
    shown("leader.replication.throttled.replicas", TEXT, "", NO_THROTTLE),
    shown("local.retention.bytes", whole(-2, i64::MAX), "-2", NO_TIERS),
    shown("local.retention.ms", whole(-2, i64::MAX), "-2", NO_TIERS),
    Definition {
        name: COMPACTION_LAG_MAX,
        values: whole(1, i64::MAX),
        default: Fallback::Value(WITHOUT_BOUND),
        effect: Effect::WithinAMinute,
        what: "Time in milliseconds within which a record is looked at by a compaction, however little is new. An open segment of \
               that age ends.",
    },
    Definition {
        name: MAX_MESSAGE_BYTES,
        values: whole(1, BATCH_BYTES_MAX.cast_signed()),
        default: Fallback::Value("25165824"),
        effect: Effect::NextAppend,
        what: "Limit on the bytes of one batch of records, compressed as it was sent; a larger one is refused.",
    },
    Definition {
        name: TIMESTAMP_AFTER,
        values: ANY,
        default: Fallback::Value(WITHOUT_BOUND),
        effect: Effect::NextAppend,
        what: "How far ahead of the leader's clock, in milliseconds, the timestamp of a record may be with `CreateTime`; a batch \
               with one beyond is refused. Records without a timestamp pass.",
    },
    Definition {
        name: TIMESTAMP_BEFORE,
        values: ANY,
        default: Fallback::Value(WITHOUT_BOUND),
        effect: Effect::NextAppend,
        what: "How far behind the leader's clock, in milliseconds, the timestamp of a record may be with `CreateTime`; a batch \
               with one beyond is refused. Records without a timestamp pass.",
    },
    Definition {
        name: TIMESTAMP_TYPE,
        values: Values::OneOf(&[CREATE_TIME, LOG_APPEND_TIME]),
        default: Fallback::Value(CREATE_TIME),
        effect: Effect::NextAppend,
        what: "Whose time records have. `CreateTime`: the one that their producer gave them. `LogAppendTime`: that of their \
               leader when it took their batch, one for all of it, which never falls in a segment.",
    },
    Definition {
        name: DIRTY_RATIO_MIN,
        values: Values::Share,
        default: Fallback::Value("0.5"),
        effect: Effect::WithinAMinute,
        what: "Share of a partition's bytes that must be new for a compaction. A smaller one keeps fewer old records and writes more.",
    },
    Definition {
        name: COMPACTION_LAG_MIN,
        values: ANY,
        default: Fallback::Value("0"),
        effect: Effect::WithinAMinute,
        what: "Age in milliseconds that all records of a segment have before a compaction looks at it.",
    },
    Definition {
        name: MIN_INSYNC_REPLICAS,
        values: whole(1, Replication::FACTOR_MAX as i64),
        default: Fallback::WriteQuorum,
        effect: Effect::NextSegment,
        what: "Replicas on whose disks a record is before it is acknowledged: at least so many, never fewer than a \
               majority, all of them where it is larger than their number. Raising it ends the open segment, as soon \
               as so many nodes are up.",
    },
    shown("preallocate", BOOLEAN, "false", "Files of blocks are always made in their full size."),
    shown("remote.copy.disable", BOOLEAN, "false", NO_TIERS),
    shown("remote.log.delete.on.disable", BOOLEAN, "false", NO_TIERS),
    Definition {
        name: "remote.storage.enable",
        values: Values::OnlyFalse("segments are not moved to another storage"),
        default: Fallback::Value("false"),
        effect: Effect::Never,
        what: NO_TIERS,
    },
    Definition {
        name: RETENTION_BYTES,
        values: whole(-1, i64::MAX),
        default: Fallback::Value("-1"),
        effect: Effect::WithinAMinute,
        what: "Bytes that a partition keeps: its oldest segment goes if the sealed ones behind it have as many. -1 keeps \
               any number.",
    },
    Definition {
        name: RETENTION_MS,
        values: whole(-1, i64::MAX),
        default: Fallback::Value("-1"),
        effect: Effect::WithinAMinute,
        what: "Age in milliseconds at which the oldest segment goes, by the greatest timestamp in it, or from its end where no \
               record has one. An open segment that is so old ends first. -1 keeps records for ever.",
    },
    Definition {
        name: SEGMENT_BYTES,
        values: whole(1, 1 << 50),
        default: Fallback::ClusterSetting("segments.max_bytes"),
        effect: Effect::NextAppend,
        what: "Size of a segment's batches at which it ends; the batch that reaches it is the last one in. One that is younger than \
               `segments.min_age_ms` of the cluster goes on until then.",
    },
    shown("segment.index.bytes", whole(4, i64::MAX), "10485760", NO_INDEX),
    shown(
        "segment.jitter.ms",
        ANY,
        "0",
        "Segments of many topics do not end at the same moment by themselves.",
    ),
    Definition {
        name: SEGMENT_MS,
        values: whole(1, i64::MAX),
        default: Fallback::ClusterSetting("segments.max_age_ms"),
        effect: Effect::NextAppend,
        what: "Age in milliseconds at which a segment ends that has records.",
    },
    Definition {
        name: "unclean.leader.election.enable",
        values: Values::OnlyFalse("a leader without all acknowledged records would lose them"),
        default: Fallback::Value("false"),
        effect: Effect::Never,
        what: "A leader always has every acknowledged record.",
    },
    Definition {
        name: FSYNC,
        values: Values::Schedule,
        default: Fallback::NodeOption("--fsync"),
        effect: Effect::NextSegment,
        what: "When a replica syncs what is appended: `each` before it acknowledges, `5ms` so long after the first that is \
               not synced, `never` not at all. What is not synced a power failure may take, from all replicas at once.",
    },
    Definition {
        name: LEADERS,
        values: Values::OneOf(&[ROTATE, STICKY]),
        default: Fallback::Value(ROTATE),
        effect: Effect::NextSegment,
        what: "Which node leads the next segment. `rotate`: another one each time. `sticky`: the same, \
               unless that is away or drained; then the one that leads fewest such partitions. Nodes that lead more of \
               them than others give them away slowly.",
    },
    Definition {
        name: REPLICATION_FACTOR,
        values: whole(1, Replication::FACTOR_MAX as i64),
        default: Fallback::Factor,
        effect: Effect::NextSegment,
        what: "Copies of each segment. Copies of sealed segments are made and given up in the background, but never so many that \
               fewer are left than had acknowledged it. A larger number ends the open segment.",
    },
    Definition {
        name: RETENTION_ARCHIVED,
        values: BOOLEAN,
        default: Fallback::Value("false"),
        effect: Effect::WithinAMinute,
        what: "Whether retention keeps what is not in the archive. Nothing tells yet what is, so `true` keeps everything.",
    },
    Definition {
        name: RETENTION_CONSUMED,
        values: Values::Readers,
        default: Fallback::Value(""),
        effect: Effect::WithinAMinute,
        what: "Readers that use records up: what all of them have read goes, segment by segment, also before `retention.ms` and \
               `retention.bytes` say so. `GET` is the cursor of the text protocol, `group:NAME` a consumer group.",
    },
    Definition {
        name: RETENTION_PINNED,
        values: Values::Readers,
        default: Fallback::Value(""),
        effect: Effect::WithinAMinute,
        what: "Readers whom retention waits for: what one of them has not read stays. `delete-records` waits for nobody.",
    },
    Definition {
        name: SEGMENT_ENTRIES,
        values: whole(1, 1 << 40),
        default: Fallback::ClusterSetting("segments.max_entries"),
        effect: Effect::NextAppend,
        what: "Number of records at which a segment ends; the batch that reaches it is the last one in. One that is younger than \
               `segments.min_age_ms` of the cluster goes on until then.",
    },
];
