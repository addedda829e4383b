//! Scenarios of topics that are deleted while something of them is under way.

use serde_json::json;
use walrus_metadata::Command;
use walrus_model::Replication;

use super::node::TestNode;

/// A log that was made behind the look for what is left of its topic would never be removed: the topic is forgotten then.
#[tokio::test(start_paused = true)]
async fn no_log_of_a_deleted_topic_is_made_any_more() {
    let node = TestNode::start(1, Replication::single(), json!({}));
    let segment = node.last().descriptor;
    node.propose(Command::DeleteTopic { topic: segment.topic }).unwrap();
    let refused = node.copies().open_log(&segment).await.unwrap_err();
    assert_eq!(refused.reason(), "UnknownSegment");
    assert!(node.copies().bucket().store().logs().is_empty());
}
