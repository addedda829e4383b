//! Scenarios of the leader of an open segment: what is acknowledged, and what becomes of appends that their segment ends without.

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;
use walrus_metadata::{Command, Request, Response};
use walrus_model::{Descriptor, Digest, NodeId, Offset, Value};
use walrus_replica::{Mark, Reply};

use super::node::{LOOK, TestNode, batch, place, two_of_three};
use crate::copies::marks::mark_batches;
use crate::partition::leader::Leader;
use crate::upkeep::catch_up;

/// Has the replica of a place say that it has everything below an offset.
fn acknowledge(node: &TestNode, leader: &std::sync::Arc<Leader>, from: usize, end: u64) {
    leader.reply(node.copies(), from, Reply::Ack { durable_end: Offset(end), suspect: None });
}

/// Returns when the log of a leader has everything below `end`.
async fn reaches(leader: &Leader, end: u64) {
    while leader.log().end_offset() < Offset(end) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Has somebody else decide that the segment of a leader ends behind its first batches, and the metadata say so.
fn end_behind(node: &TestNode, leader: &Leader, batches: &[Bytes]) {
    let Descriptor { id: segment, topic, partition, .. } = leader.descriptor;
    let roll = Request::BeginRoll { topic, partition, segment, avoid: vec![NodeId(2), NodeId(3)] };
    let Ok(Response::Successor(successor)) = node.carry_out(&roll) else { panic!("no successor") };
    let marks = mark_batches(Mark { end: Offset(0), digest: Digest(0) }, batches).unwrap();
    let last = marks.last().expect("a batch at least");
    let value = Value::without_loss(last.end, last.digest, successor.starting_at(last.end));
    node.propose(Command::SealAndOpen { topic, partition, segment, value }).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_append_is_acknowledged_once_w_disks_have_it_and_not_before() {
    let node = TestNode::start(3, two_of_three(), json!({}));
    let leader = node.topics.partitions().leader(&node.last()).await.unwrap();
    let to = place();
    let mut appended = Box::pin(node.topics.append(&to, batch("a")));
    for _ in 0..100 {
        assert!((&mut appended).now_or_never().is_none(), "one disk is not two");
        tokio::task::yield_now().await;
    }
    assert_eq!(leader.high_watermark(), 0);
    let other = leader.followers().next().unwrap();
    acknowledge(&node, &leader, other, 1);
    assert_eq!(appended.await.unwrap().base_offset, 0);
    assert_eq!(leader.high_watermark(), 1);
}

/// The end of a segment was told before the appends that it ended without had their places in the next one: an append that came
/// later could be handed on in front of them.
#[tokio::test(start_paused = true)]
async fn appends_that_their_segment_ended_without_go_in_front_of_those_that_come_later() {
    let node = TestNode::start(3, two_of_three(), json!({}));
    // The successor begins with the producers at the end of the own copy, which is brought there.
    node.copies().tasks().spawn("catch-up", catch_up::keep_up(node.copies().clone()));
    node.serve();
    let leader = node.topics.partitions().leader(&node.last()).await.unwrap();
    let to = place();
    let values = ["a", "b", "c"].map(batch);
    let mut early: Vec<_> =
        values.iter().map(|value| Box::pin(node.topics.append(&to, value.clone()))).collect();
    for append in &mut early {
        assert!(append.now_or_never().is_none());
    }
    reaches(&leader, 3).await;
    // Only the first of them was there when somebody else decided where the segment ends.
    end_behind(&node, &leader, &values[..1]);
    let late = Box::pin(node.topics.append(&to, batch("d")));
    early.push(late);

    let acknowledging = async {
        let next = loop {
            let listed = node.last();
            if let Some(next) = node.topics.partitions().leaders().known_leader(listed.descriptor.id) {
                break next;
            }
            tokio::time::sleep(LOOK).await;
        };
        reaches(&next, 4).await;
        let other = next.followers().next().unwrap();
        acknowledge(&node, &next, other, 4);
    };
    let (outcomes, ()) = tokio::join!(join_all(early), acknowledging);
    let bases: Vec<u64> = outcomes.into_iter().map(|outcome| outcome.unwrap().base_offset).collect();
    assert_eq!(bases, [0, 1, 2, 3]);
}

/// An append whose task was held up until its segment had ended was told that its outcome is unknown, by chance.
#[tokio::test(start_paused = true)]
async fn an_append_whose_task_is_held_up_until_its_segment_has_ended_is_acknowledged() {
    let node = TestNode::start(3, two_of_three(), json!({}));
    node.copies().tasks().spawn("catch-up", catch_up::keep_up(node.copies().clone()));
    node.serve();
    let segment = node.last();
    let leader = node.topics.partitions().leader(&segment).await.unwrap();
    let (to, first) = (place(), batch("a"));
    let mut appended = Box::pin(node.topics.append(&to, first.clone()));
    assert!((&mut appended).now_or_never().is_none());
    reaches(&leader, 1).await;
    let other = leader.followers().next().unwrap();
    acknowledge(&node, &leader, other, 1);
    end_behind(&node, &leader, &[first]);
    while node.topics.partitions().leaders().known_leader(segment.descriptor.id).is_some() {
        tokio::time::sleep(LOOK).await;
    }
    assert_eq!(appended.await.unwrap().base_offset, 0);
}
