//! What can be wrong with a setting that a topic is given.

use serde::{Deserialize, Serialize};

/// A setting that a topic cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongSetting {
    /// The name that was given, shortened.
    pub name: String,
    /// What is wrong with it, or with its value.
    pub problem: SettingProblem,
}

/// Why a topic cannot have a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum SettingProblem {
    /// There is none of that name.
    #[error("there is no such setting; the nearest name is {nearest}")]
    Unknown {
        /// The name that is most like it.
        nearest: String,
    },
    /// The value is no number, or not between the bounds.
    #[error("it takes whole numbers from {min} to {max}, not {got:?}")]
    OutOfBounds {
        /// Lowest.
        min: i64,
        /// Highest.
        max: i64,
        /// The value that was given, shortened.
        got: String,
    },
    /// The value is none of the words.
    #[error("it takes one of {words}, not {got:?}")]
    NoSuchWord {
        /// The words, with commas between them.
        words: String,
        /// The value that was given, shortened.
        got: String,
    },
    /// The value is no list of the words.
    #[error("it takes one or more of {words}, each once with commas between them, not {got:?}")]
    NoSuchWords {
        /// The words, with commas between them.
        words: String,
        /// The value that was given, shortened.
        got: String,
    },
    /// The value is no share.
    #[error("it takes a number from 0 to 1, not {got:?}")]
    NoShare {
        /// The value that was given, shortened.
        got: String,
    },
    /// The value is no schedule of syncs.
    #[error("{told}")]
    NoSchedule {
        /// What was given, and what would be right.
        told: String,
    },
    /// The value is no list of readers.
    #[error(
        "it takes at most 16 names of readers with commas between them, each of 1 to 249 bytes, not {got:?}"
    )]
    NoReaders {
        /// The value that was given, shortened.
        got: String,
    },
    /// The value would break a promise.
    #[error("it takes only false, not {got:?}: {because}")]
    OnlyFalse {
        /// What the value would bring.
        because: String,
        /// The value that was given, shortened.
        got: String,
    },
    /// The text is too long.
    #[error("it takes at most {bytes_max} bytes, not {bytes}")]
    TooLong {
        /// Length of the text.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The request contradicts itself.
    #[error("it cannot be set and unset at once")]
    SetAndUnset,
}
