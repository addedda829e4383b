//! The wait of an append's sender, and what it learns.

use std::time::Instant;

use tokio::sync::oneshot;

use super::{AppendOutcome, Leader};
use crate::cluster::Cluster;
use crate::node::error::Result;

/// What became of an append that was waited for.
pub(crate) enum WaitOutcome {
    /// It is on w disks.
    Acknowledged,
    /// It is not in this segment; its place in the next one comes over this channel.
    Carried(oneshot::Receiver<Result<AppendOutcome>>),
    /// Nobody knows whether it was appended, or not in time; the text says why.
    Unknown(&'static str),
}

impl Leader {
    /// Waits until an append of this leader is acknowledged, or is known not to be here.
    pub(crate) async fn await_acked(
        &self,
        cluster: &Cluster,
        (base, end): (u64, u64),
        deadline: Instant,
    ) -> WaitOutcome {
        let mut lost = cluster.liveness().watch_lost();
        let mut reaching = std::pin::pin!(self.lead.high_watermark.reaches(end));
        let mut ended = self.ended.subscribe();
        loop {
            // This is read before the rest: what metadata told the leader, it was told before it was closed.
            let is_closed = self.closed.is_cancelled();
            if self.lead.high_watermark.get() >= end {
                return WaitOutcome::Acknowledged;
            }
            let decided = ended.borrow_and_update().clone();
            if let Some(value) = decided {
                let is_lost = value.lost.iter().any(|range| range.start.0 < end && base < range.end.0);
                if is_lost {
                    return WaitOutcome::Unknown("it rotted on every disk that had it");
                }
                if value.end.0 >= end {
                    return WaitOutcome::Acknowledged;
                }
                return match self.state.lock().carried.remove(&base) {
                    Some(receiver) => WaitOutcome::Carried(receiver),
                    None => WaitOutcome::Unknown("its segment has ended before it"),
                };
            }
            if is_closed {
                return WaitOutcome::Unknown("its segment is not listed any more");
            }
            lost.mark_unchanged();
            if cluster.is_cut_off(&self.descriptor) {
                return WaitOutcome::Unknown("too few of its replicas answer this node");
            }
            tokio::select! {
                biased; // a task that was held up finds several: it is too late only if nothing else is so
                () = &mut reaching => return WaitOutcome::Acknowledged,
                _ = ended.changed() => {}
                _ = lost.changed() => {}
                () = self.closed.cancelled() => {}
                () = tokio::time::sleep_until(deadline.into()) => {
                    return WaitOutcome::Unknown("too few replicas have it");
                }
            }
        }
    }
}
