//! Counts the copies of unsealed segments on this node that lack something. Their leaders are asked, for nobody else knows what
//! was acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message as _;
use walrus_metadata::SegmentState;
use walrus_model::Descriptor;

use crate::cluster::routing::is_led_by;
use crate::cluster::segment::log_id;
use crate::cluster::segment::uuid_bytes;
use crate::copies::Copies;
use crate::node::patience;
use crate::node::proto::peer::{SegmentFacts, SegmentInfoAnswer};
use crate::peer::Request;

/// Limit on the segments in one request.
const ASKED_MAX: usize = 1_000;

/// How many unsealed segments this disk stores without all that was acknowledged before the call, or without anybody who
/// says what that is: their end is being decided, or their leader does not answer. Answers within the patience.
pub(crate) async fn count(copies: &Arc<Copies>, patience: Duration) -> u64 {
    let until = Instant::now() + patience;
    let (mut behind, mut led_by): (usize, BTreeMap<u32, Vec<Descriptor>>) = Default::default();
    let metadata = copies.cluster().routing().metadata.clone();
    let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
    for segment in partitions.flat_map(|partition| &partition.segments) {
        let descriptor = &segment.descriptor;
        // A segment's only copy has all that there is.
        if copies.table().place(descriptor).is_none() || descriptor.replicas.len() == 1 {
            continue;
        }
        let leader = descriptor.leader;
        let serves = metadata.nodes.get(&leader.node).is_some_and(|node| node.process == leader.process);
        match segment.state {
            SegmentState::Sealed(_) => {}
            SegmentState::Open if is_led_by(leader, copies.cluster().config()) => {}
            SegmentState::Open if serves => led_by.entry(leader.node.0).or_default().push(descriptor.clone()),
            SegmentState::Open | SegmentState::Sealing(_) => behind += 1,
        }
    }
    let asked = led_by.iter().flat_map(|(leader, segments)| {
        segments.chunks(ASKED_MAX).map(|asked| behind_leader(copies, *leader, asked, until))
    });
    behind += join_all(asked).await.into_iter().sum::<usize>();
    behind as u64
}

/// How many segments of one leader lack something here. Waits until it is none, or the time is up.
async fn behind_leader(copies: &Arc<Copies>, leader: u32, segments: &[Descriptor], until: Instant) -> usize {
    let patience = until.saturating_duration_since(Instant::now());
    let uuids = segments.iter().map(|segment| uuid_bytes(segment.id.0)).collect();
    let info = copies.segment_info(uuids, false);
    let answer = copies.cluster().peers().call(leader, Request::SegmentInfo(info), patience).await;
    let Some(answer) = answer.ok().and_then(|payload| SegmentInfoAnswer::decode(payload).ok()) else {
        return segments.len();
    };
    let facts: HashMap<&Bytes, &SegmentFacts> =
        answer.segments.iter().map(|facts| (&facts.segment, facts)).collect();
    let is_behind = |segment: &&Descriptor| match facts.get(&uuid_bytes(segment.id.0)) {
        Some(facts) => facts.unsettled || !has_all(copies, segment, facts.end_offset),
        None => false, // nobody has written it
    };
    loop {
        let behind = segments.iter().filter(is_behind).count();
        if behind == 0 || Instant::now() + patience::LAG_LOOK >= until {
            return behind;
        }
        tokio::time::sleep(patience::LAG_LOOK).await;
    }
}

/// Whether the own copy has everything below an offset.
fn has_all(copies: &Arc<Copies>, segment: &Descriptor, end: u64) -> bool {
    match copies.bucket().log(log_id(segment)) {
        Some(log) => {
            let is_whole = !log.is_suspect() && copies.table().holed().knows_as_whole(segment.id);
            is_whole && log.durable_offset().0 >= end
        }
        None => segment.base_offset.is_some_and(|base| base.0 >= end),
    }
}
