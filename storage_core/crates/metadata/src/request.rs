//! Requests of a data plane to the metadata store: the command that each becomes, and the answer that it gets. The host of
//! a data plane proposes bytes and hands bytes back; it decides nothing.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{AttemptId, Descriptor, Epoch, NodeId, ProcessId, ReplicaRef, SegmentId, TopicId, Value};

use crate::command::{
    Command, CopyReport, ENVELOPE_VERSION, Envelope, PartitionPlace, PartitionStart, ReadMark, SegmentPlace,
};
use crate::compaction::{CompactionOffer, PassEnd, Replacement};
use crate::placement::{Attempt, first_descriptor, recovery, successor};
use crate::presence::Present;
use crate::rejection::CommandRejection;
use crate::sizes::TOPIC_PARTITIONS_MAX;
use crate::state::{Metadata, NodeState};
use crate::topic_config::TopicConfig;

/// A request of a data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request {
    /// Answer once the node knows all that was committed before it asked; change nothing.
    Barrier,
    /// Create a topic, or name the one that has this name already.
    CreateTopic {
        /// The organisation whose topic it is to be.
        org: String,
        /// Name.
        name: String,
        /// At least 1.
        partitions: u32,
        /// Whether it is one of Walrus's own topics.
        internal: bool,
        /// Settings of a topic that is created, by name.
        config: BTreeMap<String, String>,
    },
    /// Give a topic more partitions.
    AddPartitions {
        /// Topic.
        topic: TopicId,
        /// The number that it is to have; nothing changes where it has as many.
        partitions: u32,
    },
    /// Change settings of a topic.
    AlterTopic {
        /// Topic.
        topic: TopicId,
        /// Names and their new values.
        set: BTreeMap<String, String>,
        /// Names that go back to the default.
        unset: BTreeSet<String>,
        /// The change is refused where the topic's settings have another version.
        expect: Option<u64>,
    },
    /// Allot a successor of an open segment.
    BeginRoll {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The open segment.
        segment: SegmentId,
        /// Nodes that cannot lead it.
        avoid: Vec<NodeId>,
    },
    /// Begin an attempt to decide where an unsealed segment ends, at a fresh epoch.
    BeginRecovery {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The segment.
        segment: SegmentId,
        /// The attempt's epoch must be above this one.
        above: Epoch,
        /// Nodes that cannot lead the next segment.
        avoid: Vec<NodeId>,
    },
    /// Publish the decided value of a segment.
    SealAndOpen {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The sealed segment.
        segment: SegmentId,
        /// Its value.
        value: Box<Value>,
    },
    /// Drop sealed segments.
    Trim {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// First segment to keep.
        below_number: u64,
        /// That segment, where the node's tombstone says that the trim was decided before.
        first: Option<Box<Descriptor>>,
    },
    /// Delete the records below an offset.
    DeleteRecords {
        /// Topic.
        topic: TopicId,
        /// Where its partitions begin then.
        starts: Vec<PartitionStart>,
    },
    /// Record up to where a reader has read a topic.
    ReportRead {
        /// Topic.
        topic: TopicId,
        /// The reader.
        reader: String,
        /// The first offset that it lacks of each of these partitions.
        marks: Vec<ReadMark>,
    },
    /// List a candidate of a compaction.
    OfferCompaction {
        /// The partition.
        place: PartitionPlace,
        /// The candidate.
        offer: CompactionOffer,
    },
    /// Give a candidate up.
    AbandonCompaction {
        /// The partition.
        place: PartitionPlace,
        /// The candidate.
        segment: SegmentId,
    },
    /// Put a segment in the place of others again, which the metadata have forgotten.
    RepeatCompaction {
        /// The partition.
        place: PartitionPlace,
        /// The segment, as the node's disk remembers it.
        replacement: Box<Replacement>,
        /// Disks that are to have a copy.
        copies: Vec<ReplicaRef>,
    },
    /// Record the end of a pass of compaction.
    FinishCompaction {
        /// The partition.
        place: PartitionPlace,
        /// How far it came.
        end: PassEnd,
    },
    /// Record that the node's disk has the logs of unsealed segments, or remembers of others that they took the place of some.
    ReportBegun {
        /// The disk.
        replica: ReplicaRef,
        /// The segments.
        segments: Vec<SegmentPlace>,
    },
    /// Record how the copies on the node's disk are.
    ReportCopies {
        /// The disk.
        replica: ReplicaRef,
        /// Its findings.
        reports: Vec<CopyReport>,
    },
    /// Delete a topic.
    DeleteTopic {
        /// Topic.
        topic: TopicId,
    },
    /// Record that the node's disk has nothing any more of topics that were deleted.
    ReportEmptied {
        /// The disk.
        replica: ReplicaRef,
        /// The topics.
        topics: Vec<TopicId>,
    },
    /// Record that the node's disk is full, or has space again, or that its process is about to stop.
    SetNodeState {
        /// The node.
        node: NodeId,
        /// Its process.
        process: ProcessId,
        /// The state that it reports.
        state: NodeState,
    },
}

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// There is nothing to tell.
    Done,
    /// `CreateTopic`: the topic of that name.
    Topic {
        /// Its identity.
        topic: TopicId,
        /// Whether this request created it; else it was there before.
        created: bool,
    },
    /// `AddPartitions`: how many the topic has now.
    Partitions(u32),
    /// `BeginRoll`: the segment that follows.
    Successor(Box<Descriptor>),
    /// `BeginRecovery`: the attempt that may fence now.
    Attempt(Box<Attempt>),
}

/// Why a node's request was not carried out, or is not known to be: its command was rejected, or the request never became a
/// command, or nobody answered. The verdict on the command itself is a [`CommandRejection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RequestError {
    /// The metadata do not take the command.
    #[error("{0}")]
    Rejected(CommandRejection),
    /// Too few nodes are up for the segment that would be opened.
    #[error("too few nodes are up to lead and store a segment")]
    NoNode,
    /// Nobody could be asked, or answered in time; the command may be carried out all the same.
    #[error("{why}")]
    Unavailable {
        /// What happened, for people.
        why: String,
    },
}

impl RequestError {
    /// Nobody could be asked, or answered in time.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable { why: why.into() }
    }

    /// Whether the same request may be taken a moment later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoNode | Self::Unavailable { .. } => true,
            Self::Rejected(rejected) => matches!(
                rejected,
                CommandRejection::TooManyCreations { .. } | CommandRejection::OrganisationTooFast { .. }
            ),
        }
    }
}

/// The way in which a request is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The node waits until it knows all that is committed.
    Barrier,
    /// A command is proposed.
    Propose(Box<Proposal>),
}

/// A command that carries a request out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    command: Command,
    expect: Option<u64>,
    response: Response,
}

/// The meaning of a command's outcome for the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The request is answered.
    Answered(Result<Response, RequestError>),
    /// The metadata had moved on since the command was built: the request is planned anew.
    Stale(CommandRejection),
}

impl Proposal {
    /// The command as it is to be proposed, under a fresh id, at that time.
    #[must_use]
    pub fn envelope(&self, id: Uuid, at_ms: u64) -> Envelope {
        Envelope { v: ENVELOPE_VERSION, id, at_ms, expect: self.expect, command: self.command.clone() }
    }

    /// Tells what the outcome of the command means for the request.
    #[must_use]
    pub fn conclude(&self, outcome: Result<(), CommandRejection>) -> Conclusion {
        match outcome {
            Ok(()) => Conclusion::Answered(Ok(self.response.clone())),
            Err(CommandRejection::TopicExists { topic, .. })
                if matches!(self.response, Response::Topic { .. }) =>
            {
                Conclusion::Answered(Ok(Response::Topic { topic, created: false }))
            }
            // A request with nothing to answer builds nothing from the state, so planning it anew would build the same command.
            Err(rejected) if rejected.is_stale() && self.response != Response::Done => {
                Conclusion::Stale(rejected)
            }
            Err(rejected) => Conclusion::Answered(Err(RequestError::Rejected(rejected))),
        }
    }
}

/// Checks the number of a topic's partitions.
pub(crate) fn check_topic_partitions(partitions: u32) -> Result<(), CommandRejection> {
    if (1..=TOPIC_PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    let (what, max) = ("partitions".to_owned(), TOPIC_PARTITIONS_MAX.into());
    Err(CommandRejection::OutOfRange { what, min: 1, max, got: partitions.into() })
}

/// The first segment of each of these partitions of a topic with such settings.
fn first_segments(
    metadata: &Metadata,
    config: &TopicConfig,
    topic: TopicId,
    partitions: Range<u32>,
    present: &Present,
    fresh: &mut impl FnMut() -> Uuid,
) -> Result<Vec<Descriptor>, RequestError> {
    let mut first =
        |partition| first_descriptor(metadata, config, (topic, partition, SegmentId(fresh())), present);
    partitions.map(|partition| first(partition).ok_or(RequestError::NoNode)).collect()
}

/// Builds the command for a request from the metadata as they are now. `fresh` makes identities that nobody has.
///
/// Errors: [`RequestError::NoNode`] where nobody could lead and store the segment that would be opened.
pub fn plan(
    metadata: &Metadata,
    present: &Present,
    request: &Request,
    mut fresh: impl FnMut() -> Uuid,
) -> Result<Plan, RequestError> {
    let mut expected = None;
    let (command, response) = match request.clone() {
        Request::Barrier => return Ok(Plan::Barrier),
        Request::CreateTopic { org, name, partitions, internal, config } => {
            // A command has a segment for each of them: so many are not even thought of.
            check_topic_partitions(partitions).map_err(RequestError::Rejected)?;
            let topic = TopicId(fresh());
            let settings =
                TopicConfig::new(&config, 0).map_err(|wrong| RequestError::Rejected(wrong.into()))?;
            let first = first_segments(metadata, &settings, topic, 0..partitions, present, &mut fresh)?;
            let command = Command::CreateTopic { topic, org, name, internal, config, first };
            (command, Response::Topic { topic, created: true })
        }
        Request::AddPartitions { topic, partitions } => {
            check_topic_partitions(partitions).map_err(RequestError::Rejected)?;
            let found = metadata.topics.get(&topic).ok_or(CommandRejection::UnknownTopic { topic });
            let found = found.map_err(RequestError::Rejected)?;
            let there = found.partition_count();
            match partitions.cmp(&there) {
                Ordering::Less => {
                    let fewer = CommandRejection::FewerPartitions { partitions: there, wanted: partitions };
                    return Err(RequestError::Rejected(fewer));
                }
                Ordering::Equal => return Ok(Plan::Barrier),
                Ordering::Greater => {}
            }
            let new = there..partitions;
            let first = first_segments(metadata, &found.config, topic, new, present, &mut fresh)?;
            (Command::AddPartitions { topic, first }, Response::Partitions(partitions))
        }
        Request::AlterTopic { topic, set, unset, expect } => {
            expected = expect;
            (Command::AlterTopic { topic, set, unset }, Response::Done)
        }
        Request::BeginRoll { topic, partition, segment, avoid } => {
            let next = successor(metadata, topic, partition, SegmentId(fresh()), &avoid, present);
            let successor = next.ok_or(RequestError::NoNode)?;
            let response = Response::Successor(Box::new(successor.clone()));
            (Command::BeginRoll { topic, partition, segment, successor }, response)
        }
        Request::BeginRecovery { topic, partition, segment, above, avoid } => {
            let ids = (AttemptId(fresh()), SegmentId(fresh()));
            let attempt = recovery(metadata, (topic, partition), ids, above, &avoid, present);
            let attempt = attempt.ok_or(RequestError::NoNode)?;
            let Attempt { ballot, successor } = attempt.clone();
            let command = Command::BeginRecovery { topic, partition, segment, ballot, successor };
            (command, Response::Attempt(Box::new(attempt)))
        }
        Request::SealAndOpen { topic, partition, segment, value } => {
            (Command::SealAndOpen { topic, partition, segment, value: *value }, Response::Done)
        }
        Request::Trim { topic, partition, below_number, first } => {
            let first = first.map(|first| *first);
            (Command::Trim { topic, partition, below_number, first }, Response::Done)
        }
        Request::DeleteRecords { topic, starts } => {
            (Command::DeleteRecords { topic, starts }, Response::Done)
        }
        Request::ReportRead { topic, reader, marks } => {
            (Command::ReportRead { topic, reader, marks }, Response::Done)
        }
        Request::OfferCompaction { place, offer } => {
            (Command::OfferCompaction { place, offer }, Response::Done)
        }
        Request::AbandonCompaction { place, segment } => {
            (Command::AbandonCompaction { place, segment }, Response::Done)
        }
        Request::RepeatCompaction { place, replacement, copies } => {
            (Command::RepeatCompaction { place, replacement, copies }, Response::Done)
        }
        Request::FinishCompaction { place, end } => {
            (Command::FinishCompaction { place, end }, Response::Done)
        }
        Request::ReportBegun { replica, segments } => {
            (Command::ReportBegun { replica, segments }, Response::Done)
        }
        Request::ReportCopies { replica, reports } => {
            (Command::ReportCopies { replica, reports }, Response::Done)
        }
        Request::DeleteTopic { topic } => (Command::DeleteTopic { topic }, Response::Done),
        Request::ReportEmptied { replica, topics } => {
            (Command::ReportEmptied { replica, topics }, Response::Done)
        }
        Request::SetNodeState { node, process, state } => {
            (Command::SetNodeState { node, process, state }, Response::Done)
        }
    };
    Ok(Plan::Propose(Box::new(Proposal { command, expect: expected, response })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(response: Response) -> Proposal {
        let command = Command::DeleteTopic { topic: TopicId::from_u128(1) };
        Proposal { command, expect: None, response }
    }

    #[test]
    fn what_was_built_from_a_state_that_moved_on_is_planned_anew_and_nothing_else_is() {
        let stale = CommandRejection::VersionMismatch { expected: 1, current: 2 };
        let topic = Response::Topic { topic: TopicId::from_u128(1), created: true };
        assert_eq!(proposal(topic.clone()).conclude(Err(stale.clone())), Conclusion::Stale(stale.clone()));
        let refused = Conclusion::Answered(Err(RequestError::Rejected(stale.clone())));
        assert_eq!(proposal(Response::Done).conclude(Err(stale)), refused);
        assert_eq!(proposal(topic.clone()).conclude(Ok(())), Conclusion::Answered(Ok(topic)));
    }

    #[test]
    fn a_topic_that_is_there_is_the_answer_to_its_creation() {
        let (other, mine) = (TopicId::from_u128(2), TopicId::from_u128(1));
        let exists = CommandRejection::TopicExists { name: "t".to_owned(), topic: other };
        let answer = proposal(Response::Topic { topic: mine, created: true }).conclude(Err(exists));
        let there = Response::Topic { topic: other, created: false };
        assert_eq!(answer, Conclusion::Answered(Ok(there)));
    }

    #[test]
    fn only_what_may_be_taken_a_moment_later_is_retryable() {
        assert!(RequestError::NoNode.is_retryable());
        assert!(RequestError::unavailable("away").is_retryable());
        assert!(RequestError::Rejected(CommandRejection::TooManyCreations { max: 1 }).is_retryable());
        let too_fast = CommandRejection::OrganisationTooFast { name: "acme".to_owned(), max: 1 };
        assert!(RequestError::Rejected(too_fast).is_retryable());
        assert!(!RequestError::Rejected(CommandRejection::NotBootstrapped).is_retryable());
    }

    #[test]
    fn an_answer_goes_through_a_host_as_it_was_given() {
        let rejected = CommandRejection::UnknownTopic { topic: TopicId::from_u128(7) };
        let answers: [Result<Response, RequestError>; 4] = [
            Ok(Response::Done),
            Err(RequestError::NoNode),
            Err(RequestError::unavailable("away")),
            Err(RequestError::Rejected(rejected)),
        ];
        for answer in answers {
            let json = serde_json::to_string(&answer).unwrap();
            assert_eq!(
                serde_json::from_str::<Result<Response, RequestError>>(&json).unwrap(),
                answer,
                "{json}"
            );
        }
    }
}
