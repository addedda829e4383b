//! The hand-over of a partition of `__cursors` from whoever served it before.

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message as _;

use super::ledger::HandedCursor;
use super::messages::{decode_answer, handed_cursor_of};
use crate::node::names::OrgName;
use crate::node::patience;
use crate::node::proto::peer::{CursorHandOver, CursorRequest, cursor_answer, cursor_request};
use crate::peer::Request;
use crate::topics::Topics;
use crate::topics::view::NodeView;

/// Asks every other node to stop serving a partition of `__cursors` below segment `number`, and for what it knows.
/// A node that cannot be asked is taken for stopped: what it had handed out may go out again.
pub(super) async fn collect(topics: &Topics, partition: u32, number: u64) -> Vec<HandedCursor> {
    let request = cursor_request::Request::HandOver(CursorHandOver {
        partition,
        number,
        metadata_version: topics.cluster().metadata_version(),
    });
    let request: Bytes = CursorRequest { request: Some(request) }.encode_to_vec().into();
    let others =
        topics.nodes(&OrgName::default()).into_iter().filter(|node| node.id != topics.cluster().node_id());
    let ask = |node: NodeView| {
        let request = Request::Cursor(request.clone());
        let limit = if node.alive { patience::HAND_OVER } else { patience::HAND_OVER_OF_LAPSED };
        async move {
            let answer = topics.cluster().peers().call(node.id, request, limit).await.and_then(decode_answer);
            match answer {
                Ok(cursor_answer::Answer::HandOver(answer)) => answer.cursors,
                Ok(_) => Vec::new(),
                Err(problem) => {
                    tracing::info!(node = node.id, partition, %problem, "takes cursors over without a node");
                    Vec::new()
                }
            }
        }
    };
    join_all(others.map(ask))
        .await
        .into_iter()
        .flatten()
        .filter_map(|state| handed_cursor_of(&state))
        .collect()
}
