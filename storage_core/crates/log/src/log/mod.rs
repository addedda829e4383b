//! One log, in memory and in its blocks: its appends, its reads and its part in a commit. No function here waits for a
//! commit.

pub(crate) mod append;
pub(crate) mod block;
pub(crate) mod block_producers;
pub(crate) mod capture;
pub(crate) mod chores;
pub(crate) mod commit_queue;
pub(crate) mod directory;
mod entries;
pub(crate) mod floor;
mod mend;
mod next_block;
pub(crate) mod open_block;
pub(crate) mod place;
pub(crate) mod queues;
mod reader;
mod removal;
pub(crate) mod restore;
mod rules;
pub(crate) mod scan;
pub(crate) mod spec;
mod standing;
pub(crate) mod state;
mod times;

pub use floor::{Floor, FloorReason, Retention};
pub use place::Entry;
pub use reader::Slices;
pub use spec::LogSpec;
pub use times::{TimeSearch, TimedOffset};
