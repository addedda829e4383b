//! The types that the crates of Walrus share. Nothing here acts: what is decided with these types is decided in
//! `walrus-replica` and `walrus-metadata`, and what is stored under them in `walrus-log`.
//!
//! Comments name the rules of replication as R1 to R15; `docs/internals/replication.md` has them.

mod ballot;
mod descriptor;
mod fsync;
mod identity;
mod number;
mod producer;
pub mod ranges;
mod value;

pub use ballot::Ballot;
pub use descriptor::{Descriptor, LeaderRef, ReplicaRef, Replication};
pub use fsync::{FsyncSchedule, NoSchedule};
pub use identity::{AttemptId, DiskId, NodeId, ProcessId, SegmentId, TopicId};
pub use number::{Digest, Epoch, Offset};
pub use producer::producer_id;
pub use ranges::OffsetRange;
pub use value::Value;
