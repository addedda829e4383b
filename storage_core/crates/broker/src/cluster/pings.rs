//! Pings all nodes all the time, so that one that died, froze or was cut off is noticed within about a second.

use std::sync::Arc;
use std::time::Instant;

use crate::cluster::Cluster;
use crate::node::patience;
use crate::peer::Request;

/// Pings all nodes until this one stops.
pub(crate) async fn keep_asking(cluster: Arc<Cluster>) {
    let shutdown = cluster.tasks().shutdown().clone();
    let mut ticks = tokio::time::interval(patience::PING_PAUSE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = Instant::now();
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        if std::mem::replace(&mut last, Instant::now()).elapsed() > 3 * patience::PING_PAUSE {
            cluster.liveness().forgive();
        }
        let nodes: Vec<u32> = cluster.routing().metadata.nodes.keys().map(|node| node.0).collect();
        cluster.liveness().retain(|node| nodes.contains(&node));
        for node in nodes.into_iter().filter(|node| *node != cluster.node_id()) {
            if let Some(patience) = cluster.liveness().begin(node) {
                let asking = cluster.clone();
                cluster.tasks().spawn("ping", async move {
                    let answered = asking.peers().call(node, Request::Ping, patience).await.is_ok();
                    asking.liveness().end(node, answered);
                    if answered {
                        asking.peers().take_back(node);
                    }
                });
            }
        }
        cluster.liveness().note_lost();
        cluster.liveness().report();
        for node in cluster.liveness().unanswering() {
            cluster.peers().give_up(node);
        }
    }
}
