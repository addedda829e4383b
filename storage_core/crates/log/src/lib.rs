//! The storage engine of Walrus: it stores batches of many logs durably in shared files, and finds them again. It
//! knows no network, no cluster, no async runtime. Start at [`Store`]; [`Walrus`] puts topics with names on top of it.

#![allow(
    clippy::cast_possible_truncation,
    reason = "64-bit targets only (asserted below); positions in files and blocks are checked to fit where they are made"
)]

pub mod batch;
#[cfg(feature = "seeded-bugs")]
mod bug;
mod clock;
mod commit;
mod compaction;
mod digest;
mod disk;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handle;
mod log;
mod names;
mod options;
mod page;
mod producers;
mod recovery;
mod resources;
mod seeded;
mod store;
mod sync;
mod types;
mod walrus;

#[cfg(feature = "seeded-bugs")]
pub use bug::{BUGS, Bug, seed_bug};
pub use commit::committer::Stats;
pub use compaction::{KeyMap, Noted, Sieve, SieveRules, Sieved};
pub use digest::digest_after;
pub use disk::{
    BackendInUse, CrashChoice, Disk, DiskFile, Fault, FileKind, MappedRange, Origin, Prepare, Replay,
    SimulatedDisk, SyncedWrites, TailKind,
};
pub use error::{Error, Result};
pub use handle::{AppendReceipt, Arrival, CommitTicket, CompactionReport, Cursor, Hold, Log, Seal};
pub use log::{Entry, Floor, FloorReason, LogSpec, Retention, Slices, TimeSearch, TimedOffset};
pub use options::{Backend, Options, ReadConsistency};
pub use producers::{Admission, ProducerTable};
pub use recovery::{
    CorruptedRange, CutFile, LostEnd, MovedCursor, OpenProgress, OpenReport, TornTail, UnknownBlock,
};
pub(crate) use seeded::seeded;
pub use store::Store;
pub use store::inspection::{BlockView, Inspection, LogView, VerifyReport, inspect, verify};
pub use store::repair::{RebuiltJournal, RepairReport, repair};
pub use types::{Epoch, FsyncSchedule, LogId, Offset};
pub use walrus::{Topic, TopicArrival, Walrus, WalrusBuilder};

const _: () = assert!(usize::BITS == 64, "files are mapped whole");

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
