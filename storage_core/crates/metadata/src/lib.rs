//! The cluster's metadata: its state, the commands that change it, and the one pure function that applies them.
//!
//! No I/O, no clock, no randomness: every node that applies the same commands in the same order has the same state.
//! The proposer puts times and ids into the command. What Raft may forget after a rollback cannot harm acknowledged
//! records: where a segment ends is decided by its replicas, and only copied here.

mod answer;
mod apply;
mod census;
mod clock;
mod cluster_config;
mod command;
mod compaction;
mod comparison;
mod creations;
mod disks;
mod expiry;
mod leads;
mod levels;
mod listing;
mod lost;
mod organisation;
mod passes;
mod placement;
mod presence;
mod recent;
mod rejection;
mod remembered;
mod request;
mod retention;
pub mod rolling;
mod segment;
mod sizes;
mod snapshot;
mod state;
mod stop_impact;
mod topic_config;
mod upkeep;

pub use answer::{Answer, Applied};
pub use apply::{EPOCH_MAX, apply, check_follows};
pub use census::{Census, Load, census};
pub use cluster_config::ClusterConfig;
pub use command::{
    Command, CopyReport, ENVELOPE_VERSION, Envelope, Found, PartitionPlace, PartitionStart, ReadMark,
    SegmentPlace,
};
pub use compaction::{
    Compacted, CompactionOffer, CompactionPolicy, EpochStart, KeptTombstones, PassEnd, Replacement,
    TombstoneMarks,
};
pub use comparison::{
    ComparedTopic, FoundTopic, NodeLimits, SettingDifference, SettingLine, WantedTopic, compare_topics,
};
pub use creations::Creations;
pub use expiry::{Kept, Verdict, partitions_past_retention, verdict};
pub use levels::LEVEL;
pub use listing::{CopyLine, OrganisationLine, SegmentFilter, SegmentLine, organisations, segments};
pub use lost::{
    Ambiguity, LostPartition, LostTopic, Remains, SegmentRemains, TopicFacts, Unrecoverable, lost_topics,
    recover_topic,
};
pub use organisation::{DEFAULT_ORG, INTERNAL_ORG, Organisation, OrganisationLimits, is_org_name};
pub use passes::{DuePass, compactor, disks_for_replacement, due_pass, replacement, runs};
pub use placement::{
    Attempt, first_descriptor, has_other_leaders, leads_to_give_away, reason_to_roll, recovery, successor,
};
pub use presence::{Presence, Present};
pub use recent::Recent;
pub use rejection::CommandRejection;
pub use request::{Conclusion, Plan, Proposal, Request, RequestError, Response, plan};
pub use retention::{Contents, ReadMarks, Retention};
pub use segment::{CopyState, Segment, SegmentCopy, SegmentState};
pub use snapshot::{SNAPSHOT_VERSION, SnapshotError};
pub use state::{Compaction, Listener, Metadata, Node, NodeState, Partition, Protocol, Topic};
pub use stop_impact::{StopImpact, stop_impact};
pub use topic_config::{
    BATCH_BYTES_MAX, DEFINITIONS, Definition, Effect, Fallback, SettingInForce, SettingProblem, Source,
    Timestamps, TopicConfig, TopicSettings, Values, WrongSetting,
};
pub use upkeep::{CopyChange, Progress, Upkeep, upkeep};
