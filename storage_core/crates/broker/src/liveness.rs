//! Which nodes answer: each is pinged all the time, so that one that died, froze or was cut off is noticed within about a
//! second. A hint only: whoever acts on it is held to the rules of replication.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::broker::Broker;
use crate::peer::Request;

/// Between two pings of a node.
const PING_EVERY: Duration = Duration::from_millis(200);
/// A ping unanswered for so long is a failure.
const PING_PATIENCE: Duration = Duration::from_millis(1_000);
/// After so many failures in a row a node is silent: a refused connection fails at once, a frozen node by the patience.
const FAILURES: u32 = 3;

/// See the module.
#[derive(Default)]
pub(crate) struct Liveness {
    nodes: Mutex<HashMap<u32, Seen>>,
}

struct Seen {
    answered: Instant,
    failures: u32,
    /// A ping is on its way since then.
    asked: Option<Instant>,
    reported: bool,
}

impl Liveness {
    /// Whether a node has not answered lately. A node that was never asked is not silent.
    pub(crate) fn is_silent(&self, node: u32) -> bool {
        self.nodes.lock().get(&node).is_some_and(Seen::is_silent)
    }

    /// All silent nodes, in order.
    pub(crate) fn silent(&self) -> Vec<u32> {
        let nodes = self.nodes.lock();
        let mut silent: Vec<u32> =
            nodes.iter().filter(|(_, seen)| seen.is_silent()).map(|(node, _)| *node).collect();
        silent.sort_unstable();
        silent
    }

    /// Whether it is time for a ping.
    fn begin(&self, node: u32) -> bool {
        let mut nodes = self.nodes.lock();
        let now = Instant::now();
        let fresh = || Seen { answered: now, failures: 0, asked: None, reported: false };
        let seen = nodes.entry(node).or_insert_with(fresh);
        seen.asked.is_none() && seen.asked.replace(now).is_none()
    }

    fn end(&self, node: u32, answered: bool) {
        let mut nodes = self.nodes.lock();
        let Some(seen) = nodes.get_mut(&node) else { return };
        seen.asked = None;
        if answered {
            seen.answered = Instant::now();
            seen.failures = 0;
            if std::mem::take(&mut seen.reported) {
                tracing::info!(node, "a node answers again");
            }
        } else {
            seen.failures += 1;
        }
    }

    /// Nodes that have just become silent.
    fn newly_silent(&self) -> Vec<u32> {
        let mut nodes = self.nodes.lock();
        let fallen = nodes.iter_mut().filter(|(_, seen)| seen.is_silent() && !seen.reported);
        fallen
            .map(|(node, seen)| {
                seen.reported = true;
                let silent_ms = u64::try_from(seen.answered.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(node, silent_ms, "a node does not answer any more");
                *node
            })
            .collect()
    }

    /// This process itself was held up: that others have not answered meanwhile says nothing.
    fn forgive(&self) {
        let now = Instant::now();
        for seen in self.nodes.lock().values_mut().filter(|seen| !seen.is_silent()) {
            (seen.answered, seen.failures) = (now, 0);
        }
    }

    fn retain(&self, listed: impl Fn(u32) -> bool) {
        self.nodes.lock().retain(|node, _| listed(*node));
    }
}

impl Seen {
    fn is_silent(&self) -> bool {
        self.failures >= FAILURES || (self.failures > 0 && self.answered.elapsed() > PING_PATIENCE)
    }
}

/// Pings all nodes until this one stops.
pub(crate) async fn keep_asking(broker: Broker) {
    let shutdown = broker.shutdown_signal().clone();
    let mut ticks = tokio::time::interval(PING_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = Instant::now();
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        if std::mem::replace(&mut last, Instant::now()).elapsed() > 3 * PING_EVERY {
            broker.liveness().forgive();
        }
        let nodes: Vec<u32> = broker.routing().metadata.nodes.keys().map(|node| node.0).collect();
        broker.liveness().retain(|node| nodes.contains(&node));
        for node in nodes.into_iter().filter(|node| *node != broker.node_id()) {
            if broker.liveness().begin(node) {
                let asking = broker.clone();
                broker.spawn("ping", async move {
                    let answered = asking.peers().call(node, Request::Ping, PING_PATIENCE).await.is_ok();
                    asking.liveness().end(node, answered);
                });
            }
        }
        for node in broker.liveness().newly_silent() {
            broker.peers().sever(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_silent_after_failures_in_a_row_and_alive_with_the_first_answer() {
        let liveness = Liveness::default();
        assert!(!liveness.is_silent(7));
        for _ in 0..FAILURES {
            assert!(liveness.begin(7));
            assert!(!liveness.begin(7), "one ping at a time");
            liveness.end(7, false);
        }
        assert_eq!(liveness.silent(), [7]);
        assert_eq!(liveness.newly_silent(), [7]);
        assert_eq!(liveness.newly_silent(), [0_u32; 0]);
        liveness.begin(7);
        liveness.end(7, true);
        assert!(!liveness.is_silent(7));
    }
}
