//! Mistakes that `walrus-trials` must find, each switched on alone for the stores of this process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Bug {
    /// Data is written and never synced.
    NoSync = 1,
    /// Appends are acknowledged before their sync.
    AckBeforeSync,
    /// A sync that failed is tried again, and believed.
    RetryAfterEio,
    /// Directories are not synced.
    NoDirectorySync,
    /// Damage is cut like a torn tail.
    CutInsteadOfFence,
    /// Checksums of batches are not compared.
    CrcSkipped,
    /// Cursors are stored before what they passed is durable, and stay behind the end.
    CursorPastEnd,
    /// Freed space is used again as it is.
    SpaceReusedDirty,
    /// A block belongs to the log that has its name, whatever the id is.
    OldIdentity,
    /// A footer counts, whether its block was synced or not.
    StaleIndexTrusted,
    /// Bytes count as a batch wherever they lie.
    PlaceNotCompared,
    /// A journal ends where its records end.
    JournalEndBelieved,
    /// A damaged batch above the synced mark is a torn tail, whatever lies behind it.
    CommitsProveNothing,
    /// Blocks behind a torn tail are freed without a record of that before they are zeroed.
    FollowersNotCut,
    /// A log goes on after a truncation that failed.
    FailedTruncationGoesOn,
    /// A damaged journal is cut where the damage starts.
    JournalCut,
    /// A write that wrote less than it was given counts as done.
    ShortWriteBelieved,
    /// Parts of a batch group count though others are missing.
    GroupKeptInPart,
    /// Old blocks are freed before the block that replaces them is durable.
    CompactedNotSynced,
    /// A log that syncs each append takes slots of a mapped file.
    DirectIntoMapped,
    /// Pages behind the end of a mapped file are made ready by making the file longer.
    ReadyBehindEnd,
    /// The end that readers see moves before the bytes do.
    EndBeforeBytes,
    /// Callers that wait for a commit are woken before the next one may begin.
    LetGoBeforeDone,
    /// A caller that waits for records registers only after it has looked for them.
    WishAfterLook,
}

/// The mistakes that one thread alone can show. The others need an order of several threads: the module `schedules` of the
/// trials has them.
pub const BUGS: [Bug; 21] = [
    Bug::NoSync,
    Bug::AckBeforeSync,
    Bug::RetryAfterEio,
    Bug::NoDirectorySync,
    Bug::CutInsteadOfFence,
    Bug::CrcSkipped,
    Bug::CursorPastEnd,
    Bug::SpaceReusedDirty,
    Bug::OldIdentity,
    Bug::StaleIndexTrusted,
    Bug::PlaceNotCompared,
    Bug::CommitsProveNothing,
    Bug::JournalEndBelieved,
    Bug::FollowersNotCut,
    Bug::FailedTruncationGoesOn,
    Bug::JournalCut,
    Bug::ShortWriteBelieved,
    Bug::GroupKeptInPart,
    Bug::CompactedNotSynced,
    Bug::DirectIntoMapped,
    Bug::ReadyBehindEnd,
];

static PRESENT: AtomicU8 = AtomicU8::new(0);

/// Makes all stores of this process make this mistake from now on; with `None` they make none.
pub fn seed_bug(bug: Option<Bug>) {
    PRESENT.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

pub(crate) fn has(bug: Bug) -> bool {
    PRESENT.load(Ordering::Relaxed) == bug as u8
}
