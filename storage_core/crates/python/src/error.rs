//! The exceptions, and the one table that says which Rust error raises which. No message is ever parsed.
//!
//! Every exception of ours has `reason`, the name of the Rust error's kind, and `facts`, its fields. What the operating
//! system refused is Python's `OSError`, a wrong argument `ValueError`.

use std::sync::Arc;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Value, json};
use walrus_broker::{ConfigError, StartError};
use walrus_log::batch::BatchError;
use walrus_log::{Error as LogError, LogId, Offset};
use walrus_metadata::{CommandRejection, RequestError, SnapshotError};
use walrus_model::DiskId;

use crate::json::to_python;

/// Result of what Python calls: our errors and Python's own become exceptions by `?`.
pub(crate) type Result<T> = std::result::Result<T, Raised>;

/// An exception on its way to Python. Plain data until it is there: making one hands the interpreter to other threads
/// for a moment, and one of them may wait for a lock that whoever raises still holds.
pub(crate) enum Raised {
    /// An exception of one of Python's own classes.
    Plain(PyErr),
    /// An exception of one of Walrus's classes.
    Ours(Box<Ours>),
}

pub(crate) struct Ours {
    class: fn(String) -> PyErr,
    message: String,
    reason: String,
    facts: Value,
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self::Plain(error)
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        let Ours { class, message, reason, facts } = match raised {
            Raised::Plain(error) => return error,
            Raised::Ours(ours) => *ours,
        };
        Python::attach(|py| {
            let error = class(message);
            let described = to_python(py, &facts)
                .and_then(|facts| error.value(py).setattr("facts", facts))
                .and_then(|()| error.value(py).setattr("reason", reason));
            described.err().unwrap_or(error)
        })
    }
}

/// Declares the exceptions, parents first, and their registration.
macro_rules! exceptions {
    ($($name:ident($parent:ty) $doc:literal;)*) => {
        $(create_exception!(walrus_core, $name, $parent, $doc);)*

        /// Adds the exceptions to the module.
        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($name), module.py().get_type::<$name>())?;)*
            Ok(())
        }
    };
}

exceptions! {
    WalrusError(PyException) "Root of all exceptions that Walrus raises but `OSError` and `ValueError`.";
    RetryableError(WalrusError) "Nothing happened; the same call may go through later.";
    RejectedError(WalrusError) "Nothing happened, and the same call will be refused again.";
    OutcomeUnknown(WalrusError) "The call may have taken effect. Ask again with the same ids, or look.";
    CorruptionError(WalrusError) "Stored or sent bytes are not what was written.";
    AddressInUse(WalrusError) "Another program listens on that address.";
    Locked(WalrusError) "Another process has the directory open.";
    UnsupportedFormat(WalrusError) "A newer Walrus wrote the store. Upgrade this one.";
    OffsetOutOfRange(RejectedError) "No record has that offset: it was trimmed, or is not written yet.";
    InvalidBatch(RejectedError) "The records cannot be a batch, or the batch cannot be opened here.";
    Rejected(RejectedError) "The metadata refused a command.";
}

/// Declares for each kind of a Rust error the exception that it raises. The compiler sees that none is missing.
macro_rules! table {
    ($($error:ident {
        $($kind:ident { $($fact:ident),* } => $exception:ty,)*
        $(@ $other:pat, $message:pat => $raised:expr,)*
    })*) => {
        $(impl From<$error> for Raised {
            fn from(error: $error) -> Self {
                let message = error.to_string();
                match error {
                    $($error::$kind { $($fact),* } => raise::<$exception>(
                        message,
                        stringify!($kind),
                        json!({ $(stringify!($fact): Fact::json(&$fact)),* }),
                    ),)*
                    $($other => {
                        let $message = message;
                        $raised
                    })*
                }
            }
        })*
    };
}

table! {
    BatchError {
        Truncated { needed, available } => CorruptionError,
        UnsupportedMagic { found } => CorruptionError,
        InvalidLength { length, least } => CorruptionError,
        ChecksumMismatch { stored, computed } => CorruptionError,
        InvalidCount { records, last_offset_delta, bytes } => InvalidBatch,
        InvalidOffset { base_offset, last_offset_delta } => CorruptionError,
        UnknownCodec { codec } => InvalidBatch,
        Control {} => CorruptionError,
        InvalidProducer { id, epoch, base_sequence } => InvalidBatch,
        Compressed { codec } => InvalidBatch,
        Unopened { codec, reason } => InvalidBatch,
        Unclosed { codec, reason } => InvalidBatch,
        OpenedTooLarge { codec, bytes_max } => InvalidBatch,
        InvalidRecord { index, reason } => CorruptionError,
        TooLarge {} => InvalidBatch,
    }
    LogError {
        NoSpace { path } => RetryableError,
        Corrupted { log, start, end } => CorruptionError,
        Damaged { path, reason } => CorruptionError,
        DoubtedCursor { name, at } => CorruptionError,
        UnsupportedFormat { path, found, supported } => UnsupportedFormat,
        Locked { path } => Locked,
        OffsetOutOfRange { requested, start, end } => OffsetOutOfRange,
        Sealed { log, end } => RejectedError,
        Poisoned { reason } => OutcomeUnknown,
        TooLarge { bytes, bytes_max } => RejectedError,
        TooManyEntries { entries, entries_max } => RejectedError,
        OffsetsExhausted { records, offsets_left } => RejectedError,
        OutOfOrderSequence { producer, expected, got } => RejectedError,
        ProducerFenced { producer, current, attempted } => RejectedError,
        TooManyProducers { producers_max } => RetryableError,
        InvalidName { name, reason } => RejectedError,
        InvalidOption { option, reason } => RejectedError,
        UnknownLog { log } => RejectedError,
        UnknownTopic { name } => RejectedError,
        LogExists { log, field } => RejectedError,
        Closed {} => RejectedError,
        Forked {} => RejectedError,
        @ LogError::Batch(error), _ => error.into(),
        @ LogError::Io { source, .. }, message => os_error(&source, message),
    }
    StartError {
        AddressInUse { listener, address } => AddressInUse,
        LostPromises { disk } => CorruptionError,
        @ StartError::Unreadable { .. }, message => raise::<CorruptionError>(message, "Unreadable", json!({})),
        @ StartError::Config(error), _ => error.into(),
        @ StartError::Store(error), _ => error.into(),
        @ StartError::Listen { source, .. }, message => os_error(&source, message),
        @ StartError::Runtime { source }, message => os_error(&source, message),
    }
    SnapshotError {
        UnsupportedVersion { got, supported } => UnsupportedFormat,
        Inconsistent { what } => CorruptionError,
        @ SnapshotError::Damaged(_), message => raise::<CorruptionError>(message, "Damaged", json!({})),
    }
}

/// Refusals of the metadata carry their names and fields in their JSON already.
impl From<CommandRejection> for Raised {
    fn from(rejected: CommandRejection) -> Self {
        let mut facts =
            serde_json::to_value(&rejected).expect("a refusal has only keys that are strings in JSON");
        let reason = facts.as_object_mut().and_then(|facts| facts.remove("reason"));
        let reason = reason.as_ref().and_then(Value::as_str).unwrap_or_default();
        raise::<Rejected>(rejected.to_string(), reason, facts)
    }
}

/// A request that may be taken a moment later has a class of its own; a refusal of the metadata has theirs.
impl From<RequestError> for Raised {
    fn from(error: RequestError) -> Self {
        let is_retryable = error.is_retryable();
        match error {
            RequestError::Rejected(rejected) if !is_retryable => rejected.into(),
            RequestError::Rejected(rejected) => {
                raise::<RetryableError>(rejected.to_string(), &rejected.reason(), json!({}))
            }
            error => raise::<RetryableError>(error.to_string(), "Unavailable", json!({})),
        }
    }
}

impl From<ConfigError> for Raised {
    fn from(error: ConfigError) -> Self {
        Self::Plain(PyValueError::new_err(error.to_string()))
    }
}

/// Raises an `OSError` as the interpreter does: its class follows from the number (`PermissionError`, ...).
fn os_error(source: &std::io::Error, message: String) -> Raised {
    Raised::Plain(match source.raw_os_error() {
        Some(number) => PyOSError::new_err((number, message)),
        None => PyOSError::new_err(message),
    })
}

fn raise<E: pyo3::PyTypeInfo>(message: String, reason: &str, facts: Value) -> Raised {
    Raised::Ours(Box::new(Ours { class: PyErr::new::<E, String>, message, reason: reason.to_owned(), facts }))
}

/// A field of an error, as Python sees it.
trait Fact {
    fn json(&self) -> Value;
}

macro_rules! facts {
    ($($type:ty),*) => {
        $(impl Fact for $type {
            fn json(&self) -> Value {
                json!(self)
            }
        })*
    };
}

facts!(u8, u32, u64, i8, i16, i32, i64, &'static str, String);

impl Fact for DiskId {
    fn json(&self) -> Value {
        json!(self.to_string())
    }
}

impl Fact for Arc<str> {
    fn json(&self) -> Value {
        json!(**self)
    }
}

impl Fact for Offset {
    fn json(&self) -> Value {
        json!(self.0)
    }
}

impl Fact for LogId {
    fn json(&self) -> Value {
        json!(self.0.to_string())
    }
}
