//! Scenarios of reads that wait at the end of what can be read.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use walrus_model::Replication;

use super::node::{TestNode, batch, place};
use crate::ReadOptions;

fn waiting(wait: Duration) -> ReadOptions {
    ReadOptions { bytes_max: 1 << 20, wait, segment: None, unconfirmed: false }
}

#[tokio::test(start_paused = true)]
async fn a_read_at_the_end_waits_for_the_next_record_and_for_no_longer_than_it_was_told() {
    let node = TestNode::start(1, Replication::single(), json!({}));
    node.serve();
    let to = place();
    let reading = node.topics.reading();
    let began = Instant::now();
    let page = reading.read(&to, 0, waiting(Duration::from_secs(3))).await.unwrap();
    assert!(page.pieces.is_empty());
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());

    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.topics.append(&to, batch("a")).await.unwrap()
    };
    let began = Instant::now();
    let (page, _) = tokio::join!(reading.read(&to, 0, waiting(Duration::from_secs(60))), later);
    assert_eq!(page.unwrap().next_offset, 1);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A read that waits at the end of a segment is not told that there is nothing when the segment ends: it goes on in the next one.
#[tokio::test(start_paused = true)]
async fn a_read_that_waits_where_a_segment_ends_goes_on_in_the_next_one() {
    let node = TestNode::start(1, Replication::single(), json!({"segment_entries_max": 1}));
    node.serve();
    let to = place();
    node.topics.append(&to, batch("a")).await.unwrap();
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.topics.append(&to, batch("b")).await.unwrap()
    };
    let read = node.topics.reading().read(&to, 1, waiting(Duration::from_secs(60)));
    let (page, appended) = tokio::join!(read, later);
    assert_eq!(appended.base_offset, 1);
    assert_eq!(page.unwrap().next_offset, 2);
}
