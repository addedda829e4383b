//! Looks through the unsealed copies that a start finds, and has holes filled until there are none.

use std::time::Duration;

use walrus_log::LogId;

use crate::broker::Broker;
use crate::cluster::segment::segment_of;
use crate::copies::holes;

/// What could not be filled is tried again after so long.
const RETRY: Duration = Duration::from_millis(500);

/// Until the node stops.
pub(crate) async fn keep_filling(broker: Broker) {
    let filling = async {
        look_through(&broker).await;
        loop {
            let holed = broker.copies().holed().all();
            for segment in &holed {
                match broker.copies().find(*segment) {
                    Ok(Some(copy)) => {
                        if let Err(error) = holes::fill(&broker, &copy).await {
                            tracing::warn!(%segment, %error, "a damaged copy cannot be looked at");
                        }
                    }
                    Ok(None) => broker.copies().holed().note(*segment, false), // it was given up
                    Err(error) => {
                        let is_gone = broker.bucket().log(LogId(segment.0)).is_none();
                        broker.copies().holed().note(*segment, !is_gone);
                        tracing::warn!(%segment, %error, "what was promised about a copy cannot be read");
                    }
                }
            }
            let found = broker.copies().holed().found();
            if holed.is_empty() {
                found.await;
            } else {
                drop(tokio::time::timeout(RETRY, found).await); // both ends are fine
            }
        }
    };
    let _stopped = broker.shutdown_signal().run_until_cancelled(filling).await;
}

/// Rot is found by reading: nobody reads an open copy but its leader.
async fn look_through(broker: &Broker) {
    for log in broker.bucket().store().logs().into_iter().filter(|log| !log.is_sealed()) {
        let looked = match broker.copies().find(segment_of(log.id())) {
            Ok(Some(copy)) => broker.blocking(move || copy.holes()).await.map(drop),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            // Nobody knows what it lacks: it is not whole until somebody does.
            tracing::warn!(log = log.name(), %error, "a copy cannot be looked through");
            broker.copies().holed().note(segment_of(log.id()), true);
        }
    }
    broker.copies().holed().set_complete();
}
