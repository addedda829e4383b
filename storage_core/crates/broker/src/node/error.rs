//! The one error type of the data plane. `peer/errors.rs` has it as brokers send it to each other.

use crate::node::obstacle::Obstacle;
use serde::Serialize;
use walrus_metadata::{CommandRejection, RequestError};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. `Display` tells the reader what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
pub enum Error {
    /// The segment is led by another node, or by nobody just now.
    #[error("NotLeaderForPartition: {key}")]
    NotLeader {
        /// Log of the segment.
        key: String,
        /// Node that leads it, as far as known.
        hint: Option<u32>,
    },
    /// No such topic.
    #[error("unknown topic {topic}")]
    UnknownTopic {
        /// Its name.
        topic: String,
    },
    /// No such partition.
    #[error("topic {topic} has {partitions} partitions, there is no partition {partition}")]
    UnknownPartition {
        /// Topic.
        topic: String,
        /// Wanted partition.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// The topic does not list this segment (any more).
    #[error("unknown segment {segment}: list the segments again")]
    UnknownSegment {
        /// Its uuid.
        segment: String,
    },
    /// The name is not allowed.
    #[error("invalid topic name {topic:?}: {problem}")]
    InvalidTopic {
        /// Name, shortened.
        topic: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The topic exists and is another one than asked for.
    #[error("topic {topic} exists with {partitions} partitions, not {wanted}")]
    TopicExists {
        /// Its name.
        topic: String,
        /// Partitions it has.
        partitions: u32,
        /// Partitions asked for.
        wanted: u32,
    },
    /// The topic exists with other settings than asked for.
    #[error("topic {topic} exists with other settings: describe it, and alter it")]
    TopicDiffers {
        /// Its name.
        topic: String,
    },
    /// There is no consumer group of this name, or nothing was ever read by `GET` of the topic.
    #[error("unknown group {group}")]
    UnknownGroup {
        /// Its name.
        group: String,
    },
    /// Whoever comes through this listener may not do that.
    #[error("{operation} is not allowed here: ask at a listener that lets its clients change topics")]
    NotAllowed {
        /// What was to be done.
        operation: String,
    },
    /// The group is in use, so what it has committed stays.
    #[error("group {group} has members: stop them first, or they would go on where they are")]
    GroupHasMembers {
        /// Its name.
        group: String,
    },
    /// A topic cannot have this setting.
    #[error("setting {key}: {problem}")]
    InvalidConfig {
        /// Name of the setting.
        key: String,
        /// What is wrong with it, or with its value.
        problem: String,
    },
    /// What is to be changed was changed by somebody else.
    #[error("expected version {expected}, it is {current}: read again and decide again")]
    VersionMismatch {
        /// Version that was expected.
        expected: u64,
        /// Version that is there.
        current: u64,
    },
    /// The batch is not a RecordBatch v2 that we store.
    #[error("invalid batch: {problem}")]
    InvalidBatch {
        /// What is wrong with it.
        problem: String,
    },
    /// A record's timestamp is too far from the leader's clock for its topic.
    #[error(
        "a record has the timestamp {timestamp_ms}, and its topic takes {oldest_ms} to {newest_ms} just now; correct the clock of \
         the producer, or set message.timestamp.before.max.ms or message.timestamp.after.max.ms"
    )]
    InvalidTimestamp {
        /// Timestamp of the record, milliseconds since the epoch.
        timestamp_ms: i64,
        /// Lowest one that is taken.
        oldest_ms: i64,
        /// Greatest one that is taken.
        newest_ms: i64,
    },
    /// A request without sense.
    #[error("invalid request: {problem}")]
    InvalidRequest {
        /// What is wrong with it.
        problem: String,
    },
    /// A sequence is missing between this batch and the producer's last one.
    #[error("the producer sent sequence {got}, expected {expected}: send the batches in between first")]
    OutOfOrderSequence {
        /// Producer.
        producer_id: i64,
        /// Next sequence of the producer.
        expected: i32,
        /// First sequence of the batch.
        got: i32,
    },
    /// A newer epoch of this producer has written.
    #[error("the producer is fenced: epoch {got}, current is {current}; take a new producer id")]
    ProducerFenced {
        /// Producer.
        producer_id: i64,
        /// Its current epoch.
        current: i16,
        /// Epoch of the batch.
        got: i16,
    },
    /// No more producers are remembered in this partition for now.
    #[error(
        "{producers_max} producers are remembered in this partition, no more: try again later, or without a producer id"
    )]
    TooManyProducers {
        /// The limit.
        producers_max: u64,
    },
    /// The offset was trimmed, or is behind the high watermark.
    #[error("offset {requested} is out of range [{start}, {end}]")]
    OffsetOutOfRange {
        /// Wanted offset.
        requested: u64,
        /// First offset still there.
        start: u64,
        /// First offset not readable yet.
        end: u64,
    },
    /// Larger than a limit.
    #[error("{what} of {bytes} bytes is too large, the limit is {bytes_max}")]
    TooLarge {
        /// What it is.
        what: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// It cannot be done now; nothing was done.
    #[error("unavailable: {obstacle}; try again")]
    Unavailable {
        /// What stands in the way. Clients get it as text, in the fact `what`.
        #[serde(rename = "what", serialize_with = "Obstacle::serialize_text")]
        obstacle: Obstacle,
    },
    /// Not within the deadline; nothing was done.
    #[error("timed out after {waited_ms} ms: {what}; try again")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        waited_ms: u64,
    },
    /// It may have been done or not. A batch with a producer id can be sent again safely.
    #[error("outcome unknown: {what}; it may have been done")]
    OutcomeUnknown {
        /// What it was.
        what: String,
    },
    /// The disk is full.
    #[error("no space left on node {node}; free space or trim")]
    NoSpace {
        /// Node.
        node: u32,
    },
    /// Bytes on a disk are damaged; the range is fenced.
    #[error("offsets [{start}, {end}) of {key} are damaged on node {node}")]
    Corrupted {
        /// Node.
        node: u32,
        /// Log of the segment.
        key: String,
        /// First damaged offset.
        start: u64,
        /// First offset behind the damage.
        end: u64,
    },
    /// Every copy is damaged there. Nothing is skipped silently: whoever reads goes on at the end, or not.
    #[error("offsets [{start}, {end}) of {key} are lost: all copies are damaged there; read on at {end}")]
    DataLoss {
        /// Log of the segment.
        key: String,
        /// First lost offset.
        start: u64,
        /// First offset behind the loss.
        end: u64,
    },
    /// A disk failed.
    #[error("storage of node {node} failed: {message}")]
    Storage {
        /// Node.
        node: u32,
        /// The engine's words.
        message: String,
    },
    /// An error of a newer broker that this one has no name for.
    #[error("{message}")]
    Foreign {
        /// Its stable name.
        reason: String,
        /// Its words.
        message: String,
        /// Whether to try again.
        retryable: bool,
    },
    /// A mistake of ours; the request is given up, the process goes on.
    #[error("internal error: {message}")]
    Internal {
        /// What happened.
        message: String,
    },
}

impl Error {
    /// Whether the same request may succeed later. Never true where it may have been done already.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::NotLeader { .. }
            | Self::Unavailable { .. }
            | Self::Timeout { .. }
            | Self::TooManyProducers { .. }
            | Self::NoSpace { .. } => true,
            Self::Foreign { retryable, .. } => *retryable,
            _ => false,
        }
    }

    /// Whether it says that something is not there, which only a node that knows all may say.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::UnknownTopic { .. } | Self::UnknownPartition { .. } | Self::UnknownSegment { .. }
        )
    }

    /// Stable name, for protocols and metrics.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::NotLeader { .. } => "NotLeader",
            Self::UnknownTopic { .. } => "UnknownTopic",
            Self::UnknownPartition { .. } => "UnknownPartition",
            Self::UnknownSegment { .. } => "UnknownSegment",
            Self::InvalidTopic { .. } => "InvalidTopic",
            Self::TopicExists { .. } => "TopicExists",
            Self::TopicDiffers { .. } => "TopicDiffers",
            Self::UnknownGroup { .. } => "UnknownGroup",
            Self::GroupHasMembers { .. } => "GroupHasMembers",
            Self::NotAllowed { .. } => "NotAllowed",
            Self::InvalidConfig { .. } => "InvalidConfig",
            Self::VersionMismatch { .. } => "VersionMismatch",
            Self::InvalidBatch { .. } => "InvalidBatch",
            Self::InvalidTimestamp { .. } => "InvalidTimestamp",
            Self::InvalidRequest { .. } => "InvalidRequest",
            Self::OutOfOrderSequence { .. } => "OutOfOrderSequence",
            Self::ProducerFenced { .. } => "ProducerFenced",
            Self::TooManyProducers { .. } => "TooManyProducers",
            Self::OffsetOutOfRange { .. } => "OffsetOutOfRange",
            Self::TooLarge { .. } => "TooLarge",
            Self::Unavailable { .. } => "Unavailable",
            Self::Timeout { .. } => "Timeout",
            Self::OutcomeUnknown { .. } => "OutcomeUnknown",
            Self::NoSpace { .. } => "NoSpace",
            Self::Corrupted { .. } => "Corrupted",
            Self::DataLoss { .. } => "DataLoss",
            Self::Storage { .. } => "Storage",
            Self::Foreign { reason, .. } => reason,
            Self::Internal { .. } => "Internal",
        }
    }
}

impl From<Obstacle> for Error {
    fn from(obstacle: Obstacle) -> Self {
        Self::Unavailable { obstacle }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        if error.is_retryable() {
            return Obstacle::RequestFailed { error: Box::new(error) }.into();
        }
        let message = error.to_string();
        let reason = match error {
            RequestError::Rejected(CommandRejection::InvalidTopicConfig { name, problem }) => {
                return Self::InvalidConfig { key: name, problem: problem.to_string() };
            }
            RequestError::Rejected(CommandRejection::VersionMismatch { expected, current }) => {
                return Self::VersionMismatch { expected, current };
            }
            RequestError::Rejected(rejected) => rejected.reason(),
            RequestError::NoNode | RequestError::Unavailable { .. } => "Unavailable".to_owned(),
        };
        Self::Foreign { reason, message, retryable: false }
    }
}
