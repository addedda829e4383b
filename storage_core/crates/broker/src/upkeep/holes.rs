//! Looks through the unsealed copies that a start finds, and has holes filled until there are none.

use std::sync::Arc;

use walrus_log::LogId;

use crate::cluster::segment::segment_of;
use crate::copies::Copies;
use crate::copies::holes;
use crate::node::patience;

/// Looks for holes once, and has them filled until the node stops.
pub(crate) async fn keep_filling(copies: Arc<Copies>) {
    let filling = async {
        look_through(&copies).await;
        loop {
            let holed = copies.table().holed().all();
            for segment in &holed {
                match copies.table().find(*segment) {
                    Ok(Some(copy)) => {
                        if let Err(error) = holes::fill(&copies, &copy).await {
                            tracing::warn!(%segment, %error, "a damaged copy cannot be looked at");
                        }
                    }
                    Ok(None) => copies.table().holed().note(*segment, false), // it was given up
                    Err(error) => {
                        let is_gone = copies.bucket().log(LogId(segment.0)).is_none();
                        copies.table().holed().note(*segment, !is_gone);
                        tracing::warn!(%segment, %error, "what was promised about a copy cannot be read");
                    }
                }
            }
            let found = copies.table().holed().await_found();
            if holed.is_empty() {
                found.await;
            } else {
                drop(tokio::time::timeout(patience::HOLES_RETRY, found).await); // both ends are fine
            }
        }
    };
    copies.tasks().until_stopped(filling).await;
}

/// Reads all unsealed copies: rot is found by reading, and nobody reads an open copy but its leader.
async fn look_through(copies: &Arc<Copies>) {
    for log in copies.bucket().store().logs().into_iter().filter(|log| !log.is_sealed()) {
        let looked = match copies.table().find(segment_of(log.id())) {
            Ok(Some(copy)) => copies.cluster().tasks().blocking(move || copy.holes()).await.map(drop),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            // What the copy lacks is unknown, so it does not count as whole.
            tracing::warn!(log = log.name(), %error, "a copy cannot be looked through");
            copies.table().holed().note(segment_of(log.id()), true);
        }
    }
    copies.table().holed().set_complete();
}
