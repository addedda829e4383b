//! The record of which nodes answer, as the pings of `pings.rs` say. It is a hint only: whoever acts on it is held to the rules of
//! replication.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::node::locks::Lock;
use crate::node::patience;
use tokio::sync::watch;

/// A ping is given so many times as long as answers lately took.
const SLOWNESS: u32 = 4;
/// Failures in a row after which a node is silent. A refused connection fails at once, a frozen node when the patience ends.
const FAILURES: u32 = 2;

/// The record of the pings of all nodes, and of which nodes are lost.
pub(crate) struct Liveness {
    nodes: Lock<HashMap<u32, PingHistory>>,
    lost: watch::Sender<Vec<u32>>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { nodes: Lock::default(), lost: watch::Sender::new(Vec::new()) }
    }
}

/// What the pings to one node, and those from it, have shown.
struct PingHistory {
    /// When it last answered, or was first asked.
    answered: Instant,
    /// Pings that failed since then, in a row.
    failures: u32,
    /// When the ping that is on its way was sent.
    asked: Option<Instant>,
    /// The longest that answers lately took; it shrinks with each answer that is quicker.
    slow: Duration,
    /// When its own last ping came, or it was first asked: a node that answers and cannot ask leads nobody.
    heard: Instant,
    /// The log has a line that it is silent.
    reported: bool,
}

impl Liveness {
    /// Whether a node has not answered lately. A node that was never asked is not silent.
    pub(crate) fn is_silent(&self, node: u32) -> bool {
        self.nodes.lock().get(&node).is_some_and(PingHistory::is_silent)
    }

    /// All silent nodes, in order.
    pub(crate) fn silent(&self) -> Vec<u32> {
        let nodes = self.nodes.lock();
        let mut silent: Vec<u32> =
            nodes.iter().filter(|(_, seen)| seen.is_silent()).map(|(node, _)| *node).collect();
        silent.sort_unstable();
        silent
    }

    /// Nodes that have not answered for [`patience::CALLS_TO_SILENT_NODE`], in order.
    pub(crate) fn lost(&self) -> Vec<u32> {
        self.lost.borrow().clone()
    }

    /// The lost nodes; the receiver wakes when they change.
    pub(crate) fn watch_lost(&self) -> watch::Receiver<Vec<u32>> {
        self.lost.subscribe()
    }

    /// Takes stock of which nodes are lost, and wakes who watches if they are others than before.
    pub(super) fn note_lost(&self) {
        let nodes = self.nodes.lock();
        let mut lost: Vec<u32> =
            nodes.iter().filter(|(_, seen)| seen.is_lost()).map(|(node, _)| *node).collect();
        lost.sort_unstable();
        self.lost.send_if_modified(|known| {
            let has_changed = *known != lost;
            *known = lost;
            has_changed
        });
    }

    /// Begins a ping and says how long it is given; `None` while the last one is on its way.
    pub(super) fn begin(&self, node: u32) -> Option<Duration> {
        let mut nodes = self.nodes.lock();
        let now = Instant::now();
        let fresh = || PingHistory {
            answered: now,
            failures: 0,
            asked: None,
            slow: Duration::ZERO,
            heard: now,
            reported: false,
        };
        let seen = nodes.entry(node).or_insert_with(fresh);
        if seen.asked.is_some() {
            return None;
        }
        seen.asked = Some(now);
        Some(seen.patience())
    }

    /// A ping of that node came.
    pub(crate) fn heard(&self, node: u32) {
        if let Some(seen) = self.nodes.lock().get_mut(&node) {
            seen.heard = Instant::now();
        }
    }

    /// Notes how the ping ended that [`Liveness::begin`] began.
    pub(super) fn end(&self, node: u32, answered: bool) {
        let mut nodes = self.nodes.lock();
        let Some(seen) = nodes.get_mut(&node) else { return };
        let took = seen.asked.take().map_or(Duration::ZERO, |asked| asked.elapsed());
        if answered {
            seen.answered = Instant::now();
            seen.slow = took.max(seen.slow * 7 / 8);
            seen.failures = 0;
            if !seen.is_silent() && std::mem::take(&mut seen.reported) {
                tracing::info!(node, "a node answers again");
            }
        } else {
            seen.failures += 1;
        }
    }

    /// Logs which nodes have become silent since the last call.
    pub(super) fn report(&self) {
        let mut nodes = self.nodes.lock();
        for (node, seen) in nodes.iter_mut().filter(|(_, seen)| seen.is_silent() && !seen.reported) {
            seen.reported = true;
            let silent_ms = u64::try_from(seen.answered.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(node, silent_ms, "a node does not answer any more");
        }
    }

    /// Nodes that do not answer, whether their own pings come or not.
    pub(super) fn unanswering(&self) -> Vec<u32> {
        let nodes = self.nodes.lock();
        nodes.iter().filter(|(_, seen)| seen.does_not_answer()).map(|(node, _)| *node).collect()
    }

    /// Takes back what was noted while this process itself was held up, which says nothing of others. Nodes that were silent
    /// before stay so.
    pub(super) fn forgive(&self) {
        let now = Instant::now();
        for seen in self.nodes.lock().values_mut().filter(|seen| !seen.reported) {
            (seen.answered, seen.failures, seen.heard) = (now, 0, now);
        }
    }

    /// A node has registered as another process: what the one before it did not answer says nothing of this one, which may be
    /// given segments before it is pinged.
    pub(crate) fn restarted(&self, node: u32) {
        self.nodes.lock().remove(&node);
    }

    /// Forgets nodes that are not listed any more.
    pub(super) fn retain(&self, listed: impl Fn(u32) -> bool) {
        self.nodes.lock().retain(|node, _| listed(*node));
    }
}

impl PingHistory {
    fn is_silent(&self) -> bool {
        let is_mute = self.heard.elapsed() > patience::PING_ANSWER_MAX;
        is_mute || self.does_not_answer()
    }

    fn does_not_answer(&self) -> bool {
        self.failures >= FAILURES || (self.failures > 0 && self.answered.elapsed() > self.patience())
    }

    fn is_lost(&self) -> bool {
        self.does_not_answer() && self.answered.elapsed() > patience::CALLS_TO_SILENT_NODE
    }

    fn patience(&self) -> Duration {
        (patience::PING_ANSWER_MIN + SLOWNESS * self.slow).min(patience::PING_ANSWER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(liveness: &Liveness, answered: bool) {
        assert!(liveness.begin(7).is_some());
        assert_eq!(liveness.begin(7), None, "one ping at a time");
        liveness.end(7, answered);
    }

    const NOBODY: [u32; 0] = [];

    #[test]
    fn a_node_is_silent_after_failures_in_a_row_and_alive_with_the_first_answer() {
        let liveness = Liveness::default();
        (0..FAILURES).for_each(|_| ping(&liveness, false));
        assert_eq!(liveness.silent(), [7]);
        assert_eq!(liveness.unanswering(), [7]);
        assert_eq!(liveness.unanswering(), [7], "as long as it does not answer");
        ping(&liveness, true);
        assert_eq!(liveness.silent(), NOBODY);
        assert_eq!(liveness.unanswering(), NOBODY);
    }

    /// A segment that it was given just then was taken from it at once.
    #[test]
    fn a_node_that_has_registered_as_another_process_is_not_silent() {
        let liveness = Liveness::default();
        (0..FAILURES).for_each(|_| ping(&liveness, false));
        assert!(liveness.begin(7).is_some());
        liveness.restarted(7);
        liveness.end(7, false); // the ping that was on its way to the process before
        assert!(!liveness.is_silent(7));
        (0..FAILURES).for_each(|_| ping(&liveness, false));
        assert!(liveness.is_silent(7), "it does not answer either");
    }

    /// Its pings had failed before it was noticed that nobody had listened for the answers.
    #[test]
    fn nobody_is_silent_because_this_process_was_held_up() {
        let liveness = Liveness::default();
        (0..FAILURES).for_each(|_| ping(&liveness, false));
        liveness.forgive();
        assert_eq!(liveness.silent(), NOBODY);

        (0..FAILURES).for_each(|_| ping(&liveness, false));
        liveness.report();
        liveness.forgive();
        assert!(liveness.is_silent(7), "it was so before");
    }

    /// What was sent to it in the moment in which it could be reached waited for half a minute.
    #[test]
    fn a_lost_node_that_answers_once_and_falls_silent_again_is_lost_again() {
        let liveness = Liveness::default();
        let mut watch = liveness.watch_lost();
        let long_ago = |liveness: &Liveness| {
            liveness.nodes.lock().get_mut(&7).unwrap().answered -= 2 * patience::CALLS_TO_SILENT_NODE;
            liveness.note_lost();
        };
        (0..FAILURES).for_each(|_| ping(&liveness, false));
        long_ago(&liveness);
        assert_eq!(*watch.borrow_and_update(), [7]);
        ping(&liveness, true);
        liveness.note_lost();
        assert_eq!(*watch.borrow_and_update(), NOBODY, "it answered");
        (0..FAILURES).for_each(|_| ping(&liveness, false));
        long_ago(&liveness);
        assert!(watch.has_changed().unwrap(), "whoever waits for it hears that it is lost again");
        assert_eq!(liveness.lost(), [7]);
    }

    #[test]
    fn a_node_whose_own_pings_do_not_come_is_silent_and_can_be_asked() {
        let liveness = Liveness::default();
        ping(&liveness, true);
        liveness.nodes.lock().get_mut(&7).unwrap().heard -= 2 * patience::PING_ANSWER_MAX;
        assert_eq!(liveness.silent(), [7]);
        assert_eq!(liveness.unanswering(), NOBODY);
    }
}
