//! The numbers and names that callers and the engine exchange.

use std::fmt;

use uuid::Uuid;

pub use walrus_model::{Epoch, FsyncSchedule, Offset};

/// Identity of a log. The name of a deleted log can be used again, its id cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub Uuid);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
