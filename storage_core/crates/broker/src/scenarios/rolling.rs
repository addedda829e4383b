//! Scenarios of rolls: the planned end of a segment, and the order of a partition's appends over it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;
use walrus_metadata::SegmentState;
use walrus_model::{NodeId, Replication};

use super::node::{TestNode, batch, place};

/// A driver that handed its queue over just as the next roll began left appends waiting for nobody.
#[tokio::test(start_paused = true)]
async fn appends_keep_their_order_though_each_of_them_ends_its_segment() {
    const COUNT: u64 = 30;
    let node = TestNode::start(1, Replication::single(), json!({"segment_entries_max": 1}));
    node.serve();
    let to = place();
    let appends = (0..COUNT).map(|number| node.topics.append(&to, batch(&number.to_string())));
    let bases: Vec<u64> =
        join_all(appends).await.into_iter().map(|outcome| outcome.unwrap().base_offset).collect();
    assert_eq!(bases, (0..COUNT).collect::<Vec<_>>());
    let ends: Vec<u64> = node
        .segments()
        .iter()
        .filter_map(|segment| match &segment.state {
            SegmentState::Sealed(value) => Some(value.end.0),
            _ => None,
        })
        .collect();
    assert!(ends.len() as u64 >= COUNT - 1, "{ends:?}");
    assert!(ends.is_sorted());
}

/// The successor's turn to lead would be the other node's, which answers nobody: after a while the roll passes it over.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_prepare_is_passed_over_after_a_while() {
    let node = TestNode::start(2, Replication::single(), json!({"segment_entries_max": 1}));
    node.serve();
    let to = place();
    let began = Instant::now();
    let appends = ["a", "b"].map(|value| node.topics.append(&to, batch(value)));
    let bases: Vec<u64> =
        join_all(appends).await.into_iter().map(|outcome| outcome.unwrap().base_offset).collect();
    assert_eq!(bases, [0, 1]);
    assert!(began.elapsed() >= Duration::from_secs(2), "it was not given its time: {:?}", began.elapsed());
    let leaders: Vec<NodeId> = node.segments().iter().map(|segment| segment.descriptor.leader.node).collect();
    assert_eq!(leaders[..2], [NodeId(1), NodeId(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_gets_no_successor_goes_on_for_a_while_and_loses_nothing() {
    let node = TestNode::start(1, Replication::single(), json!({"segment_entries_max": 4}));
    let to = place();
    // Nobody answers what the node asks: the metadata store is away.
    for number in 0..8 {
        let appended = node.topics.append(&to, batch(&number.to_string())).await.unwrap();
        assert_eq!(appended.base_offset, number);
    }
    assert_eq!(node.segments().len(), 1);
    node.serve();
    for number in 8..24 {
        let appended = node.topics.append(&to, batch(&number.to_string())).await.unwrap();
        assert_eq!(appended.base_offset, number);
    }
    assert!(node.segments().len() > 1, "it has ended by now");
}
