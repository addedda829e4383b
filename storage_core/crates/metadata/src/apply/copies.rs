//! Who stores a sealed segment: copies are added once they are verified, and given up while enough others stay.

use super::segments::{find_segment, segment_mut};
use super::{find_partition, partition_mut};
use crate::command::{Answer, Command};
use crate::model::{Metadata, ReplicaRef, SegmentCopy, SegmentState};
use crate::rejected::Rejected;

/// Compares with the version of the segment: a claim that a copy is verified is worth nothing once the list has changed,
/// for the copy may have been given up and deleted.
pub(super) fn set_copies(
    metadata: &mut Metadata,
    command: &Command,
    version: u64,
) -> Result<Answer, Rejected> {
    let Command::SetCopies { topic, partition, segment, version: expected, digest, verified, removed } =
        command
    else {
        unreachable!("the caller matched the variant");
    };
    let segment = *segment;
    let found = find_segment(find_partition(metadata, *topic, *partition)?, segment)?;
    let SegmentState::Sealed(value) = &found.state else {
        return Err(Rejected::NotSealed { segment });
    };
    if found.version != *expected {
        return Err(Rejected::VersionMismatch { expected: *expected, current: found.version });
    }
    if !verified.is_empty() && value.digest != *digest {
        return Err(Rejected::DigestMismatch { segment, expected: value.digest, got: *digest });
    }
    for replica in verified {
        check_disk(metadata, *replica)?;
    }
    let mut copies = found.copies.clone();
    for replica in verified {
        copies.retain(|copy| copy.replica.node != replica.node);
        copies.push(SegmentCopy { replica: *replica, verified: true });
    }
    copies.retain(|copy| !removed.contains(&copy.replica));
    let (before, left) = (verified_copies(metadata, &found.copies), verified_copies(metadata, &copies));
    let needed = found.descriptor.write_quorum;
    let given_up = removed.iter().any(|replica| !metadata.gone_disks.contains(&replica.disk));
    if copies.is_empty() || (left < needed && (left < before || given_up)) {
        return Err(Rejected::TooFewCopies { segment, left, needed });
    }
    let found = segment_mut(partition_mut(metadata, *topic, *partition)?, segment)?;
    found.copies = copies;
    found.version = version;
    Ok(Answer::Nothing)
}

/// A copy on a disk that is gone is none.
fn verified_copies(metadata: &Metadata, copies: &[SegmentCopy]) -> u32 {
    let is_there = |copy: &&SegmentCopy| copy.verified && !metadata.gone_disks.contains(&copy.replica.disk);
    u32::try_from(copies.iter().filter(is_there).count()).unwrap_or(u32::MAX)
}

fn check_disk(metadata: &Metadata, replica: ReplicaRef) -> Result<(), Rejected> {
    let ReplicaRef { node, disk } = replica;
    let found = metadata.nodes.get(&node).ok_or(Rejected::UnknownNode { node })?;
    if found.disk != disk || metadata.gone_disks.contains(&disk) {
        return Err(Rejected::DiskGone { disk });
    }
    Ok(())
}
