//! Bringing a decided end into the metadata.

use std::sync::Arc;

use walrus_metadata::{Request, SegmentState};
use walrus_model::{Descriptor, Value};

use crate::cluster::segment::log_id;
use crate::copies::Copies;
use crate::node::error::{Error, Result};
use crate::node::patience;

/// Makes the successor's log on its leader's node, should it answer, so that it need not ask around later.
pub(crate) async fn prepare_ahead(copies: &Arc<Copies>, segment: &Descriptor, value: &Value) {
    let log = copies.bucket().log(log_id(segment));
    let Some(log) = log.filter(|log| log.is_sealed()) else { return };
    let producers = copies.producers_behind(segment, log.producers());
    if let Err(error) = copies.prepare_successor(&value.successor, &producers).await {
        tracing::debug!(segment = %value.successor.id, %error, "the next leader could not be prepared");
    }
}

/// Proposes the value until metadata has it. Gives up only where metadata has another value or no such segment, and when
/// this node stops.
pub(crate) async fn publish(copies: &Arc<Copies>, segment: &Descriptor, value: &Value) -> Result<()> {
    let request = Request::SealAndOpen {
        topic: segment.topic,
        partition: segment.partition,
        segment: segment.id,
        value: Box::new(value.clone()),
    };
    loop {
        let news = copies.cluster().news();
        let known = copies.cluster().current(segment).map(|listed| listed.state);
        match known {
            Some(SegmentState::Sealed(published)) if published == *value => return Ok(()),
            Some(SegmentState::Sealed(published)) => {
                let message =
                    format!("segment {} was sealed as {value:?}, metadata says {published:?}", segment.id);
                tracing::error!(alarm = "seal_conflict", "{message}");
                copies.cluster().metrics().alarms.inc();
                return Err(Error::Internal { message });
            }
            Some(_) => {}
            None => return Err(Error::UnknownSegment { segment: segment.id.to_string() }),
        }
        match copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await {
            // The snapshot comes before the answer, so the next look sees it.
            Ok(_) if copies.cluster().is_sealed(segment) => {}
            Ok(_) => news.wait(patience::STEP_RETRY).await,
            Err(refusal) => {
                tracing::warn!(
                    segment = %segment.id,
                    ?refusal,
                    "the sealed segment is not published yet"
                );
                if copies.cluster().tasks().shutdown().is_cancelled() {
                    return Err(refusal.into());
                }
                copies.cluster().news().wait(patience::STEP_RETRY).await; // its own refusal is no news
            }
        }
    }
}
