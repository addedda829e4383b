//! The hand-over of a partition from whoever served it before.

use futures_util::future::join_all;

use super::ledger::Ledger;
use crate::node::patience;
use crate::topics::Topics;
use crate::topics::view::NodeView;

/// Asks every other node to stop serving a partition below segment `number`, and for what it knows. A node that cannot be asked is
/// taken for stopped: what it knew beyond its records is lost.
pub(super) async fn collect<L: Ledger>(topics: &Topics, partition: u32, number: u64) -> Vec<L::Handed> {
    let cluster = topics.cluster();
    let request = L::hand_over_request(partition, number, cluster.metadata_version());
    let others = topics.nodes().into_iter().filter(|node| node.id != cluster.node_id());
    let ask = |node: NodeView| {
        let request = request.clone();
        let limit = if node.alive { patience::HAND_OVER } else { patience::HAND_OVER_OF_LAPSED };
        async move {
            let answer = cluster.peers().call(node.id, request, limit).await;
            answer.and_then(L::handed_over).unwrap_or_else(|problem| {
                let what = L::WHAT;
                tracing::info!(node = node.id, partition, %problem, "takes {what} over without a node");
                Vec::new()
            })
        }
    };
    join_all(others.map(ask)).await.into_iter().flatten().collect()
}
