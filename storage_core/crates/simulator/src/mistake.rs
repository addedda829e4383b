//! Mistakes that designs like this one have made. Each is re-introduced alone, and the checks must find it. Those of the
//! replicas' code sit in `walrus-replica` behind the feature `seeded-bugs`; those of a driver are made by the world here.

/// A mistake that can be made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mistake {
    /// A mistake in `walrus-replica`.
    #[cfg(feature = "seeded-bugs")]
    Replica(walrus_replica::Bug),
    /// The end of a copy is read first and the promise made later.
    EndReadBeforeThePromise,
    /// A leader goes on after its process restarted.
    LeaderResumes,
    /// A recoverer publishes its choice before w replicas have it.
    PublishedBeforeTheVotes,
    /// A new leader starts without the table of what producers have sent.
    DedupTableNotLoaded,
    /// A new leader loads the last snapshot of the cursors without what came behind it.
    CursorTailNotLoaded,
    /// A copy is deleted because metadata does not list its segment.
    TrimmedByAbsence,
    /// The waiting appends of a roll go to the next segment by the leader's proposal, not by the decision.
    RollReplaysItsProposal,
    /// An emptied disk answers under the name of the one that was lost.
    EmptiedDiskVotes,
    /// A copy whose journal lost its end, and with it its votes, answers under the name of the disk that had them.
    LostJournalVotes,
    /// A deleted copy leaves no tombstone.
    NoTombstone,
    /// Metadata does not raise its next epoch above an adopted successor's.
    NextEpochNotRaised,
    /// Metadata opens an adopted successor that it had forgotten, under a leader of its own.
    AdoptedSuccessorOpened,
    /// Metadata takes any value, also over a published one.
    CloseWithoutCompare,
    /// A hole of a copy is filled with what another segment has there.
    HoleFilledFromAnotherSegment,
    /// A node deletes what it holds for too old, before the metadata say so.
    TrimmedBeforeMetadata,
    /// A node says that the log behind a segment is there, and has not made it.
    SuccessorWithoutTable,
    /// A compaction takes a record for old because of one behind it that nobody may read yet.
    KeysOfTheOpenSegment,
    /// A copy of a compacted segment is made of whatever lies at its offsets, and is told to have the digest that is listed.
    DigestOverBothForms,
    /// Retention judges an open segment by its first record.
    RetentionOfTheOpenSegment,
    /// The clock of one node is believed, whatever the others' say.
    OneClockBelieved,
    /// A compaction drops a tombstone together with the records that it deletes.
    TombstoneInItsFirstPass,
    /// No disk remembers what took the place of others, whose copies go once enough of its own are verified.
    LeavesWithoutNote,
    /// A copy that is given up goes although nobody asked whether enough others have theirs: the metadata may have forgotten
    /// that those were given up before.
    LeavesUnasked,
    /// The copy of a compactor counts as verified, and goes as scratch when the metadata have forgotten the candidate.
    CountedAndStillScratch,
    /// A coordinator of groups that was replaced appends what it has yet to record to whatever segment is open.
    LateCoordinator,
    /// A coordinator of groups answers a commit that is on its own disk, or on none.
    CommittedBeforeQuorum,
    /// Ids of producers are counted in the metadata.
    CountedProducerIds,
    /// Clients are told the epoch of the segment that is open.
    EpochOfTheOpenSegment,
}

impl Mistake {
    /// Whether it shows in lives of groups only.
    #[must_use]
    pub fn is_of_coordinators(self) -> bool {
        matches!(self, Self::LateCoordinator | Self::CommittedBeforeQuorum)
    }
}

/// Mistakes of the driver and of the metadata.
pub const OF_THE_DRIVER: [Mistake; 28] = [
    Mistake::EndReadBeforeThePromise,
    Mistake::LeaderResumes,
    Mistake::PublishedBeforeTheVotes,
    Mistake::DedupTableNotLoaded,
    Mistake::CursorTailNotLoaded,
    Mistake::TrimmedByAbsence,
    Mistake::RollReplaysItsProposal,
    Mistake::EmptiedDiskVotes,
    Mistake::LostJournalVotes,
    Mistake::NoTombstone,
    Mistake::NextEpochNotRaised,
    Mistake::AdoptedSuccessorOpened,
    Mistake::CloseWithoutCompare,
    Mistake::HoleFilledFromAnotherSegment,
    Mistake::TrimmedBeforeMetadata,
    Mistake::SuccessorWithoutTable,
    Mistake::KeysOfTheOpenSegment,
    Mistake::DigestOverBothForms,
    Mistake::RetentionOfTheOpenSegment,
    Mistake::OneClockBelieved,
    Mistake::TombstoneInItsFirstPass,
    Mistake::LeavesWithoutNote,
    Mistake::LeavesUnasked,
    Mistake::CountedAndStillScratch,
    Mistake::LateCoordinator,
    Mistake::CommittedBeforeQuorum,
    Mistake::CountedProducerIds,
    Mistake::EpochOfTheOpenSegment,
];
