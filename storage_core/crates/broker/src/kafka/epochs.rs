//! Leader epochs as Kafka's clients are told them: the epoch of a partition's last segment, which only grows. The first half is
//! pure.

use kafka_protocol::ResponseError;
use tokio::time::Instant;
use walrus_metadata::Partition;
use walrus_model::Epoch;

use super::context::Context;
use crate::cluster::routing::base_of;
use crate::node::error::Error;
use crate::node::names::PartitionRef;
use crate::node::patience;

/// An epoch that a client does not name.
const NONE: i32 = -1;

/// Where an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochEnd {
    /// It was followed by another: the epoch, and the first offset behind it.
    At(i32, u64),
    /// It is the last one: it ends where the partition does.
    Last(i32),
    /// No epoch is that high.
    Unknown,
}

/// The epoch that clients are told: that of the last segment, be it open or just ending.
pub(super) fn told(partition: &Partition) -> i32 {
    partition.last_epoch().map_or(NONE, number)
}

/// The epoch under which an offset was written, or will be.
pub(super) fn at(partition: &Partition, offset: u64) -> i32 {
    let starts = starts(partition);
    let behind = starts.partition_point(|(_, first)| *first <= offset);
    // Below the oldest there is nothing to tell apart.
    starts.get(behind.saturating_sub(1)).map_or(NONE, |(epoch, _)| *epoch)
}

/// Where an epoch ends, or the last one before it that there was. One below the oldest known ends where that begins.
pub(super) fn end_of(partition: &Partition, asked: i32) -> EpochEnd {
    if asked > told(partition) {
        return EpochEnd::Unknown;
    }
    let starts = starts(partition);
    let behind = starts.partition_point(|(epoch, _)| *epoch <= asked);
    let last_not_above = behind.checked_sub(1).map_or(asked, |place| starts[place].0);
    match starts.get(behind) {
        Some((_, first)) => EpochEnd::At(last_not_above, *first),
        None => EpochEnd::Last(last_not_above),
    }
}

/// Whether another node has led since the epoch that a client names: what it knows of the partition is too old then. A leader that
/// goes on with a new segment has a new epoch, and its clients need not notice.
fn is_fenced(partition: &Partition, named: i32) -> bool {
    let leader = |above: bool| {
        let segments = partition
            .segments
            .iter()
            .filter(move |listed| (number(listed.descriptor.epoch) > named) == above);
        segments.map(|segment| segment.descriptor.leader.node)
    };
    leader(false).next_back().is_some_and(|then| leader(true).any(|later| later != then))
}

/// The epochs of a partition in their order, each with its first offset.
fn starts(partition: &Partition) -> Vec<(i32, u64)> {
    let mut starts: Vec<(i32, u64)> = Vec::with_capacity(partition.segments.len());
    for segment in &partition.segments {
        match segment.epochs().as_slice() {
            [] => starts.push((number(segment.descriptor.epoch), base_of(segment))),
            epochs => starts.extend(epochs.iter().map(|one| (number(one.epoch), one.first_offset.0))),
        }
    }
    starts.dedup_by_key(|(epoch, _)| *epoch);
    starts
}

fn number(epoch: Epoch) -> i32 {
    i32::try_from(epoch.0).unwrap_or(i32::MAX)
}

/// Compares the epoch that a client names as the present one, if it does. One that is not known yet is waited for.
pub(super) async fn check(context: &Context, place: &PartitionRef, named: i32) -> Result<(), ResponseError> {
    if named == NONE {
        return Ok(());
    }
    let cluster = context.broker.cluster();
    let until = Instant::now() + patience::EPOCH_NEWS;
    loop {
        let news = cluster.news();
        {
            let routing = cluster.routing();
            // A partition that is not known has no epoch: whoever looks it up says that it is not there.
            let Ok((_, partition)) = routing.partition(place) else { return Ok(()) };
            if named <= told(partition) {
                let is_fenced = named < told(partition) && is_fenced(partition, named);
                return if is_fenced { Err(ResponseError::FencedLeaderEpoch) } else { Ok(()) };
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ResponseError::UnknownLeaderEpoch);
        }
        news.wait(left).await;
    }
}

/// The partition that a client means, whose index may be any number.
pub(super) fn place(context: &Context, topic: &str, index: i32) -> Result<PartitionRef, Error> {
    let topic = context.listener.principal.topic(topic)?;
    let unknown = || Error::UnknownTopic { topic: topic.to_string() };
    let partition = u32::try_from(index).map_err(|_| unknown())?;
    Ok(PartitionRef { topic, partition })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A partition whose segments have these epochs, leaders and first offsets; the last one is open.
    fn partition(segments: &[(u32, u32, u64)]) -> Partition {
        let uuid = |n: usize| format!("00000000-0000-0000-0000-{n:012}");
        let listed = |(number, (epoch, node, base)): (usize, &(u32, u32, u64))| {
            let descriptor = json!({
                "uuid": uuid(number), "topic": uuid(99), "partition": 0, "number": number, "base_offset": base,
                "epoch": epoch, "leader": { "node": node, "process": uuid(98) }, "replicas": [],
            });
            json!({ "descriptor": descriptor, "state": "open", "version": 0, "opened_at_ms": 0 })
        };
        let segments: Vec<Value> = segments.iter().enumerate().map(listed).collect();
        let partition = json!({
            "index": 0, "next_epoch": 99, "trimmed_below": 0, "segments": segments, "version": 0,
        });
        serde_json::from_value(partition).unwrap()
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins() {
        let partition = partition(&[(3, 1, 0), (5, 1, 10), (8, 2, 20)]);
        assert_eq!(told(&partition), 8);
        assert_eq!(
            [at(&partition, 0), at(&partition, 9), at(&partition, 10), at(&partition, 99)],
            [3, 3, 5, 8]
        );
        assert_eq!(end_of(&partition, 3), EpochEnd::At(3, 10));
        assert_eq!(end_of(&partition, 7), EpochEnd::At(5, 20), "the last epoch that is not above it");
        assert_eq!(end_of(&partition, 8), EpochEnd::Last(8));
        assert_eq!(end_of(&partition, 9), EpochEnd::Unknown);
        assert_eq!(end_of(&partition, 1), EpochEnd::At(1, 0), "below the oldest");
    }

    /// A leader that rolls its segment has a new epoch. A broker that fenced every client with the one of before sent all of them
    /// for new metadata at each roll, though nothing had changed for them.
    #[test]
    fn only_another_leader_fences_the_epoch_of_before() {
        let partition = partition(&[(3, 1, 0), (5, 1, 10), (8, 2, 20), (9, 2, 30)]);
        assert!(is_fenced(&partition, 3) && is_fenced(&partition, 5) && is_fenced(&partition, 7));
        assert!(!is_fenced(&partition, 8) && !is_fenced(&partition, 9));
        assert!(!is_fenced(&partition, 1), "who led then is not known any more");
    }
}
