//! The storage engine of Walrus: batches of many logs in shared files, stored durably and found again.
//! It knows no network, no cluster, no async runtime. Start at [`Store`]; [`Walrus`] is the same by topic names.

#![allow(
    clippy::cast_possible_truncation,
    reason = "64-bit targets only (asserted below); positions in files and blocks are checked to fit where they are made"
)]

mod arrivals;
pub mod batch;
mod blocks;
#[cfg(feature = "seeded-bugs")]
mod bug;
mod clock;
mod commit;
mod committing;
mod cursors;
mod digest;
mod disk;
mod engine;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inspection;
mod journal;
mod log;
mod options;
mod page;
mod producers;
mod recovery;
mod rendering;
mod repair;
mod retention;
mod scan;
mod seeded;
mod space;
mod store;
mod sync;
mod tail;
mod tending;
mod ticket;
mod types;
mod waiters;
mod walrus;

pub use arrivals::Arrival;
#[cfg(feature = "seeded-bugs")]
pub use bug::{BUGS, Bug, seed_bug};
pub use cursors::{Cursor, Entry};
pub use digest::digest_after;
pub use disk::{
    BackendInUse, CrashChoice, Disk, DiskFile, Fault, FileKind, MappedRange, Origin, Prepare, Replay,
    SimulatedDisk, TailKind,
};
pub use engine::Stats;
pub use error::{Error, Result};
pub use inspection::{BlockView, Inspection, LogView, Verified, inspect, verify};
pub use log::{Appended, Compacted, Hold, Log, LogSpec, Sealed, Slices};
pub use options::{Backend, FsyncSchedule, Options, ReadConsistency};
pub use producers::{Admission, ProducerTable};
pub use recovery::{CorruptedRange, CutFile, LostEnd, MovedCursor, OpenReport, TornTail, UnknownBlock};
pub use repair::{RebuiltJournal, Repaired, repair};
pub use retention::{Floor, FloorReason, Retention};
pub(crate) use seeded::seeded;
pub use store::Store;
pub use ticket::CommitTicket;
pub use types::{Epoch, LogId, Offset};
pub use walrus::{Topic, TopicArrival, Walrus, WalrusBuilder};

const _: () = assert!(usize::BITS == 64, "files are mapped whole");

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
