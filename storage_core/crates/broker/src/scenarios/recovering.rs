//! Scenarios of recoveries: where a segment ends whose leader does not say so.

use walrus_metadata::{Command, CommandRejection, Request, RequestError, Response, SegmentState};
use walrus_model::{Offset, Value};

use super::node::{TestNode, batch, place};
use crate::ending::recovery;

#[tokio::test(start_paused = true)]
async fn the_segment_of_an_earlier_process_ends_and_appends_go_on_in_the_next_one() {
    let node = TestNode::start_after_a_restart();
    node.serve();
    let appended = node.topics.append(&place(), batch("a")).await.unwrap();
    assert_eq!(appended.base_offset, 0);
    let segments = node.segments();
    assert!(matches!(&segments[0].state, SegmentState::Sealed(value) if value.end == Offset(0)));
    assert_eq!(segments.len(), 2);
}

/// Somebody else had decided the end, and the metadata here were older than that: the attempt failed instead of looking again.
#[tokio::test(start_paused = true)]
async fn a_recovery_that_comes_too_late_waits_until_it_hears_of_the_end() {
    let node = TestNode::start_after_a_restart();
    let segment = node.last().descriptor;
    let (copies, ending) = (node.copies().clone(), segment.clone());
    let recovering = tokio::spawn(async move { recovery::run(&copies, &ending, &[], "test").await });
    let (asked, request) = node.next_request().await;
    assert!(matches!(request, Request::BeginRecovery { .. }), "{request:?}");
    let Ok(Response::Attempt(attempt)) = node.carry_out(&request) else { panic!("no attempt") };
    let refused = RequestError::Rejected(CommandRejection::Sealed { segment: segment.id });
    node.answer(asked, &Err(refused));
    tokio::task::yield_now().await;
    assert!(!recovering.is_finished());
    let first = segment.first();
    let successor = walrus_model::Descriptor { base_offset: Some(first), ..attempt.successor };
    let value = Value::without_loss(first, walrus_model::Digest(0), successor);
    let (topic, partition) = (segment.topic, segment.partition);
    node.propose(Command::SealAndOpen { topic, partition, segment: segment.id, value }).unwrap();
    node.serve(); // it may have asked once more
    recovering.await.unwrap().unwrap();
}
