//! Scenarios of copies that are brought to the decided end.

use serde_json::json;
use walrus_metadata::{CopyState, Found, Request, RequestError};
use walrus_model::Replication;

use super::node::{TestNode, batch, place};
use crate::upkeep::catch_up;

/// A report that the metadata store did not take was never made again.
#[tokio::test(start_paused = true)]
async fn a_copy_is_reported_whole_until_the_metadata_know_it() {
    let node = TestNode::start(1, Replication::single(), json!({"segment_entries_max": 1}));
    let tasks = node.copies().tasks();
    tasks.spawn("catch-up", catch_up::keep_up(node.copies().clone()));
    let to = place();
    let (serving, appending) = (node.clone(), node.topics.append(&to, batch("a")));
    let mut refusals = 0;
    let serve = async {
        loop {
            let (id, request) = serving.next_request().await;
            if let Request::ReportCopies { reports, .. } = &request {
                assert!(matches!(reports[..], [report] if matches!(report.found, Found::Whole { .. })));
                refusals += 1;
                if refusals < 3 {
                    serving.answer(id, &Err(RequestError::unavailable("away")));
                    continue;
                }
            }
            serving.answer(id, &serving.carry_out(&request));
            if serving.segments()[0].copies.iter().any(|copy| copy.state == CopyState::Verified) {
                return;
            }
        }
    };
    let (appended, ()) = tokio::join!(appending, serve);
    assert_eq!(appended.unwrap().base_offset, 0);
    assert_eq!(refusals, 3);
}
