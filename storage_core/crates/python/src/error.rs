//! The exceptions, and the one table that says which Rust error raises which. No message is ever parsed.
//!
//! Every exception raised from here has `reason`, the name of the Rust error's kind, and `facts`, its fields.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use serde_json::json;
use walrus_broker::{ConfigError, StartError};
use walrus_log::batch::BatchError;
use walrus_metadata::{Rejected as MetadataRejected, SnapshotError};

use crate::json::to_python;

/// Result of what Python calls: our errors and Python's own become exceptions by `?`.
pub(crate) type Result<T> = std::result::Result<T, Raised>;

/// An exception on its way to Python.
pub(crate) struct Raised(PyErr);

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        raised.0
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
    WalrusError(PyException) "Root of everything that Walrus raises.";
    RetryableError(WalrusError) "Nothing happened; the same call may go through later.";
    RejectedError(WalrusError) "Nothing happened, and the same call will be refused again.";
    OutcomeUnknown(WalrusError) "It may have happened. Ask again with the same ids, or look.";
    CorruptionError(WalrusError) "Stored or sent bytes are not what was written.";
    AddressInUse(WalrusError) "Another program listens on that address.";
    Locked(WalrusError) "Another process has the directory open.";
    UnsupportedFormat(WalrusError) "Written by a newer Walrus. Upgrade this one.";
    InvalidBatch(RejectedError) "The records cannot be a batch, or the batch cannot be opened here.";
    Rejected(RejectedError) "The metadata refused a command.";
}

/// Declares for each kind of a Rust error the exception that it raises. The compiler sees that none is missing.
macro_rules! table {
    ($($error:ident { $($kind:ident { $($fact:ident),* } => $exception:ty,)* })*) => {
        $(impl From<$error> for Raised {
            fn from(error: $error) -> Self {
                let message = error.to_string();
                match &error {
                    $($error::$kind { $($fact),* } => raise::<$exception>(
                        message,
                        stringify!($kind),
                        json!({ $(stringify!($fact): $fact),* }),
                    ),)*
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
        UnknownCodec { codec } => CorruptionError,
        Control {} => CorruptionError,
        InvalidProducer { id, epoch, base_sequence } => InvalidBatch,
        Compressed { codec } => InvalidBatch,
        InvalidRecord { index, reason } => CorruptionError,
        TooLarge {} => InvalidBatch,
    }
}

impl From<ConfigError> for Raised {
    fn from(error: ConfigError) -> Self {
        Self(PyValueError::new_err(error.to_string()))
    }
}

impl From<StartError> for Raised {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            StartError::Config(error) => error.into(),
            StartError::AddressInUse { listener, address } => raise::<AddressInUse>(
                message,
                "AddressInUse",
                json!({"listener": listener, "address": address}),
            ),
            StartError::Listen { source, .. } | StartError::Runtime { source } => Self(source.into()),
        }
    }
}

impl From<SnapshotError> for Raised {
    fn from(error: SnapshotError) -> Self {
        let message = error.to_string();
        let none = json!({});
        match error {
            SnapshotError::Damaged(_) => raise::<CorruptionError>(message, "Damaged", none),
            SnapshotError::UnsupportedVersion { got, supported } => {
                let facts = json!({"got": got, "supported": supported});
                raise::<UnsupportedFormat>(message, "UnsupportedVersion", facts)
            }
            SnapshotError::Inconsistent { what } => {
                raise::<CorruptionError>(message, "Inconsistent", json!({"what": what}))
            }
        }
    }
}

/// Its kinds carry their names and fields in their JSON already.
impl From<MetadataRejected> for Raised {
    fn from(rejected: MetadataRejected) -> Self {
        let message = rejected.to_string();
        let mut facts =
            serde_json::to_value(&rejected).expect("a refusal has only keys that are strings in JSON");
        let reason = facts.as_object_mut().and_then(|facts| facts.remove("reason"));
        let reason = reason.as_ref().and_then(|reason| reason.as_str()).unwrap_or_default();
        raise::<Rejected>(message, reason, facts)
    }
}

fn raise<E: pyo3::PyTypeInfo>(message: String, reason: &str, facts: serde_json::Value) -> Raised {
    Raised(Python::attach(|py| {
        let error = PyErr::new::<E, _>(message);
        let described = to_python(py, &facts)
            .and_then(|facts| error.value(py).setattr("facts", facts))
            .and_then(|()| error.value(py).setattr("reason", reason));
        described.err().unwrap_or(error)
    }))
}
