//! The errors of the crate, with the facts that a caller needs to go on.

use std::io;
use std::sync::Arc;

use crate::batch::BatchError;
use crate::types::{LogId, Offset};

/// Result with an [`Error`] of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why the engine refused or failed. Cheap to clone: one failed commit answers many callers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The operating system failed a call.
    #[error("{operation} of {path} failed: {source}")]
    Io {
        /// The call that failed.
        operation: &'static str,
        /// File or directory of the call.
        path: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The disk is full. Nothing was accepted; appends work again as soon as there is space.
    #[error("no space left for {path}: nothing was accepted; free some space and try again")]
    NoSpace {
        /// File that could not grow.
        path: String,
    },
    /// Stored bytes are damaged. Offsets outside the range can be read.
    #[error(
        "log {log}: offsets {start}..{end} are damaged on this disk; read on at {end}, or from another copy"
    )]
    Corrupted {
        /// Identity of the log.
        log: LogId,
        /// First offset of the damaged range.
        start: Offset,
        /// First offset behind it.
        end: Offset,
    },
    /// A file that holds promises (manifest, journal) is damaged: the store does not open.
    #[error("{path} is damaged: {reason}; restore it from a copy, or start with an empty directory")]
    Damaged {
        /// Path of the file.
        path: String,
        /// Damage that was found.
        reason: String,
    },
    /// A file was written by a program of another format.
    #[error(
        "{path} has format version {found}, this program reads {supported}: use the {} program that wrote it",
        if found > supported { "newer" } else { "older" }
    )]
    UnsupportedFormat {
        /// Path of the file.
        path: String,
        /// Version in the file.
        found: u32,
        /// The version that this program reads and writes.
        supported: u32,
    },
    /// The journal had lost its end when the store was opened, so the cursor may have been further than is known, and
    /// could give entries twice.
    #[error(
        "the journal lost its end: cursor {name:?} was at {at} or behind it, and what it gave before may come again; seek it to \
         go on"
    )]
    DoubtedCursor {
        /// Name of the cursor.
        name: String,
        /// Least offset at which the cursor was.
        at: Offset,
    },
    /// Another process or handle has the directory open.
    #[error("{path} is in use by another process")]
    Locked {
        /// Path of the directory.
        path: String,
    },
    /// The offset is not in the log.
    #[error("offset {requested} is not in {start}..={end}")]
    OffsetOutOfRange {
        /// Offset that was asked for.
        requested: Offset,
        /// First offset that is there.
        start: Offset,
        /// First offset behind the readable ones.
        end: Offset,
    },
    /// The log takes no more appends, or was sealed with another value.
    #[error("log {log} is sealed at {end}")]
    Sealed {
        /// Identity of the log.
        log: LogId,
        /// First offset behind its records.
        end: Offset,
    },
    /// A write or sync failed earlier. It is not retried: what the disk holds is unknown until the store is reopened.
    #[error("an earlier write failed ({reason}); reopen the store to go on")]
    Poisoned {
        /// Error of the failed write or sync.
        reason: Arc<str>,
    },
    /// The given bytes are more than fit.
    #[error("{bytes} bytes are more than the {bytes_max} that fit")]
    TooLarge {
        /// Bytes that were given.
        bytes: u64,
        /// Most bytes that fit.
        bytes_max: u64,
    },
    /// The entries of one call are more than one call may bring.
    #[error("{entries} entries are more than the {entries_max} of one call")]
    TooManyEntries {
        /// Entries that were given.
        entries: u64,
        /// Most entries of one call.
        entries_max: u64,
    },
    /// The log has too few offsets left for the records.
    #[error("{records} records need more offsets than the {offsets_left} that the log has left")]
    OffsetsExhausted {
        /// Records that were given.
        records: u64,
        /// Offsets up to the largest one.
        offsets_left: u64,
    },
    /// A producer left sequences out.
    #[error("a producer's sequence is {got}, expected is {expected}")]
    OutOfOrderSequence {
        /// Producer id.
        producer: i64,
        /// Sequence that would follow the last batch.
        expected: i32,
        /// Sequence of the batch.
        got: i32,
    },
    /// A newer instance of the producer has written.
    #[error("a producer's epoch {attempted} is fenced by {current}")]
    ProducerFenced {
        /// Producer id.
        producer: i64,
        /// Newest epoch of the producer.
        current: i16,
        /// Epoch of the batch.
        attempted: i16,
    },
    /// The log remembers as many producers as it may; nobody is forgotten for a new one.
    #[error("{producers_max} producers are remembered here, no more: a new one has to wait")]
    TooManyProducers {
        /// Limit on the producers.
        producers_max: u64,
    },
    /// The name of a log, cursor or property breaks a rule.
    #[error("name {name:?} {reason}")]
    InvalidName {
        /// Name that was given.
        name: String,
        /// Rule that the name breaks.
        reason: &'static str,
    },
    /// An option cannot work, or differs from the store's.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// Reason why the value cannot work.
        reason: String,
    },
    /// The log was deleted, or never was.
    #[error("there is no log {log}")]
    UnknownLog {
        /// Id that was asked for.
        log: LogId,
    },
    /// No topic has that name.
    #[error(
        "there is no topic {name:?}: check its name; an append makes it, and so does whoever asks for a new one"
    )]
    UnknownTopic {
        /// Name that was asked for.
        name: String,
    },
    /// A log of that id exists and is another one.
    #[error("log {log} exists with another {field}")]
    LogExists {
        /// Identity of the log.
        log: LogId,
        /// Property in which the two logs differ.
        field: &'static str,
    },
    /// The bytes are not a valid batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// A forked child used a store that its parent had opened; nothing was read or changed.
    #[error(
        "the store was opened before this process was forked: only the process that opened a store may use it; open it \
         after the fork, or start processes by spawn"
    )]
    Forked,
}

/// Maps errors for programs that pass on errors of the system, to the kinds of the original Walrus where it had one.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::NoSpace { .. } => io::ErrorKind::StorageFull,
            Error::Corrupted { .. }
            | Error::Damaged { .. }
            | Error::DoubtedCursor { .. }
            | Error::Batch(_) => io::ErrorKind::InvalidData,
            Error::UnsupportedFormat { .. } => io::ErrorKind::Unsupported,
            Error::Locked { .. } => io::ErrorKind::ResourceBusy,
            Error::UnknownLog { .. } | Error::UnknownTopic { .. } => io::ErrorKind::NotFound,
            Error::LogExists { .. } => io::ErrorKind::AlreadyExists,
            Error::OffsetOutOfRange { .. }
            | Error::TooLarge { .. }
            | Error::TooManyEntries { .. }
            | Error::OffsetsExhausted { .. }
            | Error::InvalidName { .. }
            | Error::InvalidOption { .. } => io::ErrorKind::InvalidInput,
            Error::Sealed { .. }
            | Error::Poisoned { .. }
            | Error::OutOfOrderSequence { .. }
            | Error::ProducerFenced { .. }
            | Error::TooManyProducers { .. }
            | Error::Closed
            | Error::Forked => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl Error {
    /// Makes an error of an operating system's call; a full disk becomes [`Error::NoSpace`].
    pub(crate) fn io(operation: &'static str, path: &str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace { path: path.to_owned() },
            _ => Self::Io { operation, path: path.to_owned(), source: Arc::new(source) },
        }
    }

    pub(crate) fn damaged(path: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }
}
