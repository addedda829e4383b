//! Mistakes that `walrus-trials` must find, each switched on alone for the stores of this process.

use std::sync::atomic::{AtomicU8, Ordering};

/// One of them.
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
    /// A block belongs to whoever has the name of its log.
    OldIdentity,
    /// A footer counts whatever was synced.
    StaleIndexTrusted,
    /// Bytes count as a batch wherever they lie.
    PlaceNotCompared,
    /// A journal ends where its records end.
    JournalEndBelieved,
    /// A damaged batch above the synced mark is a torn tail, whatever lies behind it.
    CommitsProveNothing,
    /// Blocks behind a torn tail are freed, and nothing says so before they are zeroed.
    FollowersNotCut,
    /// A log goes on after a truncation that failed.
    FailedTruncationGoesOn,
    /// A damaged journal is cut where the damage starts.
    JournalCut,
    /// A write that wrote less than it was given counts as done.
    ShortWriteBelieved,
    /// Parts of a batch group count though others are missing.
    GroupKeptInPart,
    /// Old blocks go before what a compaction made of them is durable.
    CompactedNotSynced,
    /// The end that readers see moves before the bytes do.
    EndBeforeBytes,
    /// Who waits for a commit is woken before the next one may begin.
    LetGoBeforeDone,
    /// Who waits for records says so after looking for them.
    WishAfterLook,
}

/// All of them that one thread shows; the others are in `schedules` of the trials.
pub const BUGS: [Bug; 19] = [
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
];

static PRESENT: AtomicU8 = AtomicU8::new(0);

/// Makes the mistake from now on, or none.
pub fn seed_bug(bug: Option<Bug>) {
    PRESENT.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

pub(crate) fn has(bug: Bug) -> bool {
    PRESENT.load(Ordering::Relaxed) == bug as u8
}
