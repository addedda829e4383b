//! Mistakes that the checks of `walrus-simulator` must find, each switched on alone for the machines of this process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Bug {
    /// A fence is answered without a promise.
    NoFence = 1,
    /// An append is acknowledged before it is durable.
    AckBeforeSync,
    /// A recoverer takes the shortest copy.
    ShortestChosen,
    /// A suspect copy counts towards f.
    SuspectCounted,
    /// Votes are not looked at when the end is chosen.
    VotesIgnored,
    /// Appends of a fenced epoch are taken.
    StaleEpochAccepted,
    /// The high watermark is whatever was acknowledged last.
    HighWatermarkMovesBack,
    /// A late vote of a lower ballot overwrites a higher one.
    LateAcceptOverwrites,
    /// Appends are taken after a vote or a seal.
    AppendAfterSeal,
    /// A recoverer that adopts an end proposes its own successor.
    SuccessorNotAdopted,
    /// The high watermark goes on while the roll is voted on.
    WatermarkNotFrozen,
    /// A suspect copy is cleared when it is filled to the high watermark.
    ClearedAtHighWatermark,
    /// A gone disk counts towards f.
    GoneCounted,
    /// A recoverer that adopts a value says by itself what may be lost.
    LossOutsideTheValue,
    /// A late append cuts what is held behind it.
    LateAppendTruncates,
    /// A recoverer takes the vote of the lowest ballot.
    LowestVoteChosen,
    /// A hole that no answer fills is lost, though not everybody has answered.
    HoleVotedAbsent,
    /// A copy votes for batches that it has lost.
    HoledCopyVotes,
    /// A copy whose promises are forgotten counts as one that has promised nothing.
    ForgottenCopyStands,
    /// A fence is answered before what was written is durable.
    EndBeforeSync,
}

/// All mistakes.
pub const BUGS: [Bug; 20] = [
    Bug::NoFence,
    Bug::AckBeforeSync,
    Bug::ShortestChosen,
    Bug::SuspectCounted,
    Bug::VotesIgnored,
    Bug::StaleEpochAccepted,
    Bug::HighWatermarkMovesBack,
    Bug::LateAcceptOverwrites,
    Bug::AppendAfterSeal,
    Bug::SuccessorNotAdopted,
    Bug::WatermarkNotFrozen,
    Bug::ClearedAtHighWatermark,
    Bug::GoneCounted,
    Bug::LossOutsideTheValue,
    Bug::LateAppendTruncates,
    Bug::LowestVoteChosen,
    Bug::HoleVotedAbsent,
    Bug::HoledCopyVotes,
    Bug::ForgottenCopyStands,
    Bug::EndBeforeSync,
];

static PRESENT: AtomicU8 = AtomicU8::new(0);

/// Switches a mistake on and all others off; `None` switches all off.
pub fn seed_bug(bug: Option<Bug>) {
    PRESENT.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

pub(crate) fn has(bug: Bug) -> bool {
    PRESENT.load(Ordering::Relaxed) == bug as u8
}
