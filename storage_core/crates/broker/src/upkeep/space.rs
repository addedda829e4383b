//! Watches whether this node's disk has room, and tells the metadata: a node that is full is given no new segments, passes
//! on those that it leads, and takes part again by itself as soon as there is room.

use std::sync::Arc;
use std::time::Instant;

use walrus_metadata::{NodeState, Request};
use walrus_model::NodeId;

use crate::copies::Copies;
use crate::node::patience;

/// A disk that was full has room again when so many times the minimum is free: else a node would come and go with each segment.
const FREE_AGAIN_FACTOR: u64 = 2;

/// Decides whether the disk is full, by what was seen of it; pure.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    full: bool,
    /// When a write last found no room.
    refused: Option<Instant>,
}

impl Room {
    fn look(self, free_bytes: u64, min: u64, refused: bool, now: Instant) -> Self {
        let refused = if refused { Some(now) } else { self.refused };
        let is_doubted = refused.is_some_and(|at| now.duration_since(at) < patience::FULL_DISK_DOUBTED);
        let needed = if self.full { min.saturating_mul(FREE_AGAIN_FACTOR) } else { min };
        Self { full: is_doubted || free_bytes < needed, refused }
    }
}

/// Watches the room until the node stops.
pub(crate) async fn keep_watch(copies: Arc<Copies>) {
    let shutdown = copies.cluster().tasks().shutdown().clone();
    let mut ticks = tokio::time::interval(patience::ROOM_LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut room = Room::default();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = copies.cluster().room().await_refusal() => {}
            _ = ticks.tick() => {}
        }
        let store = copies.bucket().store().clone();
        let free_bytes = match tokio::task::spawn_blocking(move || store.free_bytes()).await {
            Ok(Ok(free_bytes)) => free_bytes,
            Ok(Err(error)) => {
                tracing::warn!(%error, "how much room the disk has is not known");
                continue;
            }
            Err(_) => return, // the runtime ends
        };
        let refused = copies.cluster().room().take_refusal();
        let min = copies.cluster().routing().metadata.config.free_bytes_min();
        let seen = room.look(free_bytes, min, refused, Instant::now());
        if seen.full != room.full {
            tracing::warn!(full = seen.full, free_bytes, "the disk's room changed");
        }
        room = seen;
        tell(&copies, room.full).await;
    }
}

/// Tells the metadata where they list something else of this process. A node that drains or stops does so whatever its disk says.
async fn tell(copies: &Arc<Copies>, full: bool) {
    let routing = copies.cluster().routing();
    let me = routing.metadata.nodes.get(&NodeId(copies.cluster().node_id()));
    let Some(me) = me.filter(|me| me.process == copies.cluster().config().process) else { return };
    let state = match (me.state, full) {
        (NodeState::Up, true) => NodeState::Full,
        (NodeState::Full, false) => NodeState::Up,
        (NodeState::Up | NodeState::Full | NodeState::Draining | NodeState::Stopping, _) => return,
    };
    let request = Request::SetNodeState { node: me.id, process: me.process, state };
    if let Err(refusal) = copies.cluster().control().ask(&request, patience::METADATA_NOTES_ROOM).await {
        tracing::warn!(?state, ?refusal, "the metadata do not know the state of this node's disk yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = 100;

    #[test]
    fn a_full_disk_has_room_again_only_with_clearly_more_than_made_it_full() {
        let now = Instant::now();
        let room = Room::default().look(MIN, MIN, false, now);
        assert!(!room.full);
        let full = room.look(MIN - 1, MIN, false, now);
        assert!(full.full);
        assert!(full.look(FREE_AGAIN_FACTOR * MIN - 1, MIN, false, now).full);
        assert!(!full.look(FREE_AGAIN_FACTOR * MIN, MIN, false, now).full);
    }

    #[test]
    fn a_disk_that_refused_a_write_is_full_for_a_while_whatever_it_says() {
        let now = Instant::now();
        let refused = Room::default().look(u64::MAX, MIN, true, now);
        assert!(refused.full);
        assert!(refused.look(u64::MAX, MIN, false, now + patience::FULL_DISK_DOUBTED / 2).full);
        assert!(!refused.look(u64::MAX, MIN, false, now + patience::FULL_DISK_DOUBTED).full);
    }
}
