//! The machines' messages as bytes of the peer RPC, encoded and decoded side by side. Batches travel as their bytes; the
//! digests along them are computed anew where they arrive.

use bytes::Bytes;
use uuid::Uuid;
use walrus_metadata::EPOCH_MAX;
use walrus_model::{
    AttemptId, Ballot, Descriptor, Digest, DiskId, Epoch, FsyncSchedule, LeaderRef, NodeId, Offset,
    OffsetRange, ProcessId, ReplicaRef, SegmentId, TopicId, Value,
};
use walrus_replica::{Accept, Assigned, CutId, Fence, FenceAnswer, Refusal, Reply};

use crate::cluster::segment::uuid_bytes;
use crate::node::error::{Error, Result};
use crate::node::proto::peer::replica_answer::Answer;
use crate::node::proto::peer::replica_refused::Why;
use crate::node::proto::peer::replica_request::Message;
use crate::node::proto::peer::{
    self, ReplicaAccept, ReplicaAck, ReplicaAnswer, ReplicaAppend, ReplicaAssigned, ReplicaBallot,
    ReplicaFence, ReplicaPromised, ReplicaRefused, ReplicaRequest, SegmentEnd,
};

/// What a replica is asked, its batches being bytes. A sealed notice is not among them: replicas learn decisions from
/// the metadata.
pub(crate) enum Ask {
    Append(AppendBytes),
    Assigned(Assigned),
    Fence(Fence, Box<Descriptor>),
    /// With batches from an offset on.
    Accept(Accept, Offset, Vec<Bytes>, Box<Descriptor>),
}

/// [`walrus_replica::Append`] with its bytes.
pub(crate) struct AppendBytes {
    pub(crate) epoch: Epoch,
    pub(crate) writer: ProcessId,
    pub(crate) from: walrus_replica::Mark,
    pub(crate) batches: Vec<Bytes>,
    pub(crate) commit: Offset,
}

/// `metadata_version` is what the sender knows of the metadata: a fence or an accept names it.
pub(crate) fn encode_ask(
    segment: SegmentId,
    disk: DiskId,
    ask: Ask,
    metadata_version: u64,
) -> ReplicaRequest {
    let names_version = matches!(ask, Ask::Fence(..) | Ask::Accept(..));
    let message = match ask {
        Ask::Append(AppendBytes { epoch, writer, from, batches, commit }) => Message::Append(ReplicaAppend {
            epoch: epoch.0,
            writer: uuid_bytes(writer.0),
            offset: from.end.0,
            digest: from.digest.0,
            batches,
            commit: commit.0,
        }),
        Ask::Assigned(Assigned { writer, cut, end }) => Message::Assigned(ReplicaAssigned {
            writer: uuid_bytes(writer.0),
            cut: uuid_bytes(Uuid::from_u128(cut.0)),
            end: end.0,
        }),
        Ask::Fence(Fence { ballot }, descriptor) => Message::Fence(Box::new(ReplicaFence {
            ballot: Some(encode_ballot(ballot)),
            descriptor: Some(encode_descriptor(&descriptor)),
        })),
        Ask::Accept(Accept { ballot, value, .. }, offset, batches, descriptor) => {
            Message::Accept(Box::new(ReplicaAccept {
                ballot: Some(encode_ballot(ballot)),
                value: Some(encode_value(&value)),
                batches,
                offset: offset.0,
                descriptor: Some(encode_descriptor(&descriptor)),
            }))
        }
    };
    ReplicaRequest {
        segment: uuid_bytes(segment.0),
        disk: uuid_bytes(disk.0),
        message: Some(message),
        metadata_version: if names_version { metadata_version } else { 0 },
    }
}

/// Segment, disk and what is asked.
pub(crate) fn decode_ask(request: ReplicaRequest) -> Result<(SegmentId, DiskId, Ask)> {
    let ReplicaRequest { segment, disk, message, .. } = request;
    let ask = match message.ok_or_else(|| wrong("a replica's request without message"))? {
        Message::Append(ReplicaAppend { epoch, writer, offset, digest, batches, commit }) => {
            Ask::Append(AppendBytes {
                epoch: Epoch(epoch),
                writer: ProcessId(uuid(&writer)?),
                from: walrus_replica::Mark { end: Offset(offset), digest: Digest(digest) },
                batches,
                commit: Offset(commit),
            })
        }
        Message::Assigned(ReplicaAssigned { writer, cut, end }) => Ask::Assigned(Assigned {
            writer: ProcessId(uuid(&writer)?),
            cut: CutId(uuid(&cut)?.as_u128()),
            end: Offset(end),
        }),
        Message::Fence(fence) => {
            let ReplicaFence { ballot, descriptor } = *fence;
            Ask::Fence(Fence { ballot: decode_ballot(ballot)? }, Box::new(decode_descriptor(descriptor)?))
        }
        Message::Accept(accept) => {
            let ReplicaAccept { ballot, value, batches, offset, descriptor } = *accept;
            let (ballot, value) = (decode_ballot(ballot)?, decode_value(value)?);
            let accept = Accept { ballot, value, missing: Vec::new() };
            Ask::Accept(accept, Offset(offset), batches, Box::new(decode_descriptor(descriptor)?))
        }
    };
    Ok((SegmentId(uuid(&segment)?), DiskId(uuid(&disk)?), ask))
}

pub(crate) fn encode_reply(reply: Reply) -> ReplicaAnswer {
    let refused = |why: Why| ReplicaRefused { why: why.into(), ..ReplicaRefused::default() };
    let cut =
        |suspect: Option<CutId>| suspect.map(|cut| uuid_bytes(Uuid::from_u128(cut.0))).unwrap_or_default();
    let answer = match reply {
        Reply::Ack { durable_end, suspect } => {
            Answer::Ack(ReplicaAck { durable_end: durable_end.0, suspect: cut(suspect) })
        }
        Reply::Promised(FenceAnswer { ballot, durable_end, digest, accepted, sealed, suspect, holes }) => {
            Answer::Promised(Box::new(ReplicaPromised {
                ballot: Some(encode_ballot(ballot)),
                durable_end: durable_end.0,
                digest: digest.0,
                accepted: accepted.as_ref().map(|(ballot, _)| encode_ballot(*ballot)),
                accepted_value: accepted.as_ref().map(|(_, value)| encode_value(value)),
                sealed: sealed.as_ref().map(encode_value),
                suspect,
                holes: encode_ranges(&holes),
            }))
        }
        Reply::Accepted { ballot } => Answer::Accepted(encode_ballot(ballot)),
        Reply::Sealed => Answer::Refused(Box::default()),
        Reply::Refused(refusal) => Answer::Refused(Box::new(match refusal {
            Refusal::OtherReplica => refused(Why::OtherReplica),
            Refusal::Fenced { promised } => {
                ReplicaRefused { promised: Some(encode_ballot(promised)), ..refused(Why::Fenced) }
            }
            Refusal::Voted { promised } => {
                ReplicaRefused { promised: Some(encode_ballot(promised)), ..refused(Why::Voted) }
            }
            Refusal::Sealed { value } => {
                ReplicaRefused { value: Some(encode_value(&value)), ..refused(Why::Sealed) }
            }
            Refusal::OtherWriter { writer } => {
                ReplicaRefused { writer: uuid_bytes(writer.0), ..refused(Why::OtherWriter) }
            }
            Refusal::Gap { end, suspect } => {
                ReplicaRefused { end: end.0, suspect: cut(suspect), ..refused(Why::Gap) }
            }
            Refusal::Holes { holes } => {
                ReplicaRefused { holes: encode_ranges(&holes), ..refused(Why::Holes) }
            }
            Refusal::Diverged => refused(Why::Diverged),
        })),
    };
    ReplicaAnswer { answer: Some(answer) }
}

pub(crate) fn decode_reply(answer: ReplicaAnswer) -> Result<Reply> {
    let cut = |bytes: &Bytes| {
        if bytes.is_empty() { Ok(None) } else { uuid(bytes).map(|cut| Some(CutId(cut.as_u128()))) }
    };
    Ok(match answer.answer.ok_or_else(|| wrong("a replica's answer without answer"))? {
        Answer::Ack(ReplicaAck { durable_end, suspect }) => {
            Reply::Ack { durable_end: Offset(durable_end), suspect: cut(&suspect)? }
        }
        Answer::Promised(promised) => {
            let accepted = match promised.accepted {
                Some(ballot) => Some((decode_ballot(Some(ballot))?, decode_value(promised.accepted_value)?)),
                None => None,
            };
            let sealed = promised.sealed.map(|value| decode_value(Some(value))).transpose()?;
            Reply::Promised(FenceAnswer {
                ballot: decode_ballot(promised.ballot)?,
                durable_end: Offset(promised.durable_end),
                digest: Digest(promised.digest),
                accepted,
                sealed,
                suspect: promised.suspect,
                holes: decode_holes(&promised.holes)?,
            })
        }
        Answer::Accepted(ballot) => Reply::Accepted { ballot: decode_ballot(Some(ballot))? },
        Answer::Refused(refused) => Reply::Refused(match refused.why() {
            Why::OtherReplica => Refusal::OtherReplica,
            Why::Fenced => Refusal::Fenced { promised: decode_ballot(refused.promised)? },
            Why::Voted => Refusal::Voted { promised: decode_ballot(refused.promised)? },
            Why::Sealed => Refusal::Sealed { value: decode_value(refused.value)? },
            Why::OtherWriter => Refusal::OtherWriter { writer: ProcessId(uuid(&refused.writer)?) },
            Why::Gap => Refusal::Gap { end: Offset(refused.end), suspect: cut(&refused.suspect)? },
            Why::Holes => Refusal::Holes { holes: decode_holes(&refused.holes)? },
            Why::Diverged => Refusal::Diverged,
            Why::Unspecified => return Err(wrong("a refusal without reason")),
        }),
    })
}

/// A descriptor as it travels.
pub(crate) fn encode_descriptor(descriptor: &Descriptor) -> peer::Descriptor {
    let replica =
        |replica: &ReplicaRef| peer::Replica { node: replica.node.0, disk: uuid_bytes(replica.disk.0) };
    peer::Descriptor {
        segment: uuid_bytes(descriptor.id.0),
        topic: uuid_bytes(descriptor.topic.0),
        partition: descriptor.partition,
        number: descriptor.number,
        base_offset: descriptor.base_offset.map(|offset| offset.0),
        epoch: descriptor.epoch.0,
        leader_node: descriptor.leader.node.0,
        leader_process: uuid_bytes(descriptor.leader.process.0),
        replicas: descriptor.replicas.iter().map(replica).collect(),
        write_quorum: descriptor.write_quorum,
        fsync: descriptor.fsync.map(FsyncSchedule::to_number),
    }
}

/// The descriptor that a message brings. One that names no possible set of replicas is refused: quorums are counted by it.
pub(crate) fn decode_descriptor(descriptor: Option<peer::Descriptor>) -> Result<Descriptor> {
    let read = descriptor.ok_or_else(|| wrong("a descriptor is missing"))?;
    let replica = |replica: &peer::Replica| {
        Ok(ReplicaRef { node: NodeId(replica.node), disk: DiskId(uuid(&replica.disk)?) })
    };
    let descriptor = Descriptor {
        id: SegmentId(uuid(&read.segment)?),
        topic: TopicId(uuid(&read.topic)?),
        partition: read.partition,
        number: read.number,
        base_offset: read.base_offset.map(Offset),
        epoch: Epoch(read.epoch),
        leader: LeaderRef { node: NodeId(read.leader_node), process: ProcessId(uuid(&read.leader_process)?) },
        replicas: read.replicas.iter().map(replica).collect::<Result<_>>()?,
        write_quorum: read.write_quorum,
        fsync: read.fsync.map(FsyncSchedule::from_number),
    };
    if !descriptor.is_sound() {
        return Err(wrong(&format!("the replicas of segment {} are not possible", descriptor.id)));
    }
    Ok(descriptor)
}

fn encode_value(value: &Value) -> SegmentEnd {
    SegmentEnd {
        end: value.end.0,
        digest: value.digest.0,
        successor: Some(encode_descriptor(&value.successor)),
        possible_loss: encode_ranges(&value.possible_loss),
        lost: encode_ranges(&value.lost),
    }
}

fn decode_value(value: Option<SegmentEnd>) -> Result<Value> {
    let SegmentEnd { end, digest, successor, possible_loss, lost } =
        value.ok_or_else(|| wrong("a segment's end is missing"))?;
    Ok(Value {
        end: Offset(end),
        digest: Digest(digest),
        successor: Box::new(decode_descriptor(successor)?),
        possible_loss: possible_loss.iter().map(decode_range).collect(),
        lost: decode_holes(&lost)?,
    })
}

fn encode_ranges(ranges: &[OffsetRange]) -> Vec<peer::OffsetRange> {
    ranges.iter().map(|range| peer::OffsetRange { start: range.start.0, end: range.end.0 }).collect()
}

fn decode_range(range: &peer::OffsetRange) -> OffsetRange {
    OffsetRange { start: Offset(range.start), end: Offset(range.end) }
}

/// The ranges of a message, which are in order and apart from each other, as the machines take for granted.
fn decode_holes(holes: &[peer::OffsetRange]) -> Result<Vec<OffsetRange>> {
    let is_sound = holes.iter().all(|hole| hole.start < hole.end)
        && holes.windows(2).all(|pair| pair[0].end < pair[1].start);
    if !is_sound {
        return Err(wrong("offsets that a copy lacks are empty, out of order or overlap"));
    }
    Ok(holes.iter().map(decode_range).collect())
}

fn encode_ballot(ballot: Ballot) -> ReplicaBallot {
    ReplicaBallot { epoch: ballot.epoch.0, attempt: uuid_bytes(ballot.attempt.0) }
}

fn decode_ballot(ballot: Option<ReplicaBallot>) -> Result<Ballot> {
    let ReplicaBallot { epoch, attempt } = ballot.ok_or_else(|| wrong("a ballot is missing"))?;
    if epoch > EPOCH_MAX.0 {
        // A promise of it would be the last one: no attempt could have a higher epoch.
        return Err(wrong(&format!("a ballot of epoch {epoch}, the highest is {}", EPOCH_MAX.0)));
    }
    Ok(Ballot { epoch: Epoch(epoch), attempt: AttemptId(uuid(&attempt)?) })
}

fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(|problem| wrong(&problem.to_string()))
}

fn wrong(problem: &str) -> Error {
    Error::InvalidRequest { problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        let replica = ReplicaRef { node: NodeId(1), disk: DiskId::from_u128(2) };
        Descriptor {
            id: SegmentId::from_u128(3),
            topic: TopicId::from_u128(4),
            partition: 5,
            number: 6,
            base_offset: Some(Offset(7)),
            epoch: Epoch(8),
            leader: LeaderRef { node: NodeId(1), process: ProcessId::from_u128(9) },
            replicas: vec![replica],
            write_quorum: 1,
            fsync: Some(FsyncSchedule::Milliseconds(std::num::NonZeroU64::MIN)),
        }
    }

    #[test]
    fn every_answer_comes_back_as_it_was() {
        let ballot = Ballot { epoch: Epoch(3), attempt: AttemptId::from_u128(4) };
        let value = Value::without_loss(Offset(7), Digest(u64::MAX), descriptor());
        let promised = FenceAnswer {
            ballot,
            durable_end: Offset(9),
            digest: Digest(1),
            accepted: Some((ballot, value.clone())),
            sealed: Some(value.clone()),
            suspect: true,
            holes: vec![OffsetRange { start: Offset(2), end: Offset(4) }],
        };
        let replies = [
            Reply::Ack { durable_end: Offset(5), suspect: None },
            Reply::Ack { durable_end: Offset(5), suspect: Some(CutId(6)) },
            Reply::Promised(FenceAnswer { accepted: None, sealed: None, ..promised.clone() }),
            Reply::Promised(promised),
            Reply::Accepted { ballot },
            Reply::Refused(Refusal::OtherReplica),
            Reply::Refused(Refusal::Fenced { promised: ballot }),
            Reply::Refused(Refusal::Voted { promised: ballot }),
            Reply::Refused(Refusal::Sealed { value }),
            Reply::Refused(Refusal::OtherWriter { writer: ProcessId::from_u128(3) }),
            Reply::Refused(Refusal::Gap { end: Offset(2), suspect: Some(CutId(1)) }),
            Reply::Refused(Refusal::Holes { holes: vec![OffsetRange { start: Offset(2), end: Offset(4) }] }),
            Reply::Refused(Refusal::Diverged),
        ];
        for reply in replies {
            assert_eq!(decode_reply(encode_reply(reply.clone())).unwrap(), reply);
        }
        assert!(decode_reply(ReplicaAnswer::default()).is_err());
    }

    #[test]
    fn a_descriptor_whose_replicas_cannot_be_is_refused() {
        let told = |change: &dyn Fn(&mut peer::Descriptor)| {
            let mut message = encode_descriptor(&descriptor());
            change(&mut message);
            decode_descriptor(Some(message))
        };
        assert_eq!(told(&|_| ()).unwrap(), descriptor());
        let nameless = told(&|message| message.base_offset = None).unwrap();
        assert_eq!(nameless, Descriptor { base_offset: None, ..descriptor() });
        assert!(told(&|message| message.write_quorum = 0).is_err());
        assert!(told(&|message| message.write_quorum = 2).is_err());
        assert!(told(&|message| message.replicas.clear()).is_err());
        assert!(told(&|message| message.segment = Bytes::from_static(b"short")).is_err());
        assert!(decode_descriptor(None).is_err());
    }

    #[test]
    fn holes_that_overlap_or_are_out_of_order_are_refused() {
        let holes = |pairs: &[(u64, u64)]| {
            let holes: Vec<peer::OffsetRange> =
                pairs.iter().map(|&(start, end)| peer::OffsetRange { start, end }).collect();
            decode_holes(&holes)
        };
        assert_eq!(holes(&[(1, 2), (4, 5)]).unwrap().len(), 2);
        for wrong in
            [[(1, 2), (2, 3)], [(4, 5), (1, 2)], [(1, 5), (4, 9)], [(1, 1), (3, 4)], [(3, 1), (5, 6)]]
        {
            assert!(holes(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_question_comes_back_with_its_addressee() {
        let (segment, disk) = (SegmentId::from_u128(3), DiskId::from_u128(2));
        let ballot = Ballot { epoch: Epoch(3), attempt: AttemptId::from_u128(4) };
        let request = encode_ask(segment, disk, Ask::Fence(Fence { ballot }, Box::new(descriptor())), 9);
        assert_eq!(request.metadata_version, 9);
        let (to_segment, to_disk, ask) = decode_ask(request).unwrap();
        assert_eq!((to_segment, to_disk), (segment, disk));
        assert!(matches!(ask, Ask::Fence(fence, known) if fence.ballot == ballot && *known == descriptor()));
        assert!(decode_ask(ReplicaRequest::default()).is_err());
    }

    #[test]
    fn a_ballot_above_which_there_is_none_is_no_ballot() {
        let ballot =
            |epoch| Some(encode_ballot(Ballot { epoch: Epoch(epoch), attempt: AttemptId::from_u128(4) }));
        assert!(decode_ballot(ballot(EPOCH_MAX.0)).is_ok());
        for epoch in [EPOCH_MAX.0 + 1, u32::MAX] {
            assert!(decode_ballot(ballot(epoch)).is_err());
        }
    }
}
