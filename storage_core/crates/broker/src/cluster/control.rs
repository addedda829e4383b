//! The queue of control events to the host. The data plane never changes metadata: it asks, and the host, which pulls
//! the events, proposes a command and answers when its outcome is known. Bounded, so that a host that has stopped
//! pulling makes requests fail instead of memory grow.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use walrus_metadata::CopyReport;
use walrus_model::{Descriptor, ReplicaRef, SegmentId, TopicId, Value};

use crate::node::refusal::Refusal;

/// Most events that wait for the host or for its answer.
const OUTSTANDING_MAX: usize = 4_096;

/// What the data plane asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Event {
    /// Nothing but an answer, when this node knows all that was committed before it asked.
    Barrier,
    /// A topic by its name; one that is there already is fine.
    CreateTopic {
        /// Tenant.
        org: String,
        /// Name.
        name: String,
        /// At least 1.
        partitions: u32,
        /// Walrus's own.
        internal: bool,
    },
    /// A successor of an open segment.
    BeginRoll {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The open segment.
        segment: SegmentId,
        /// Nodes that cannot lead it.
        avoid: Vec<u32>,
        /// Why the segment ends.
        reason: &'static str,
    },
    /// An attempt to decide where an unsealed segment ends, at a fresh epoch.
    BeginRecovery {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The segment.
        segment: SegmentId,
        /// The attempt's epoch must be above this one.
        above: u32,
        /// Nodes that cannot lead the next segment.
        avoid: Vec<u32>,
        /// Why.
        reason: String,
    },
    /// The decided value of a segment.
    SealAndOpen {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The sealed segment.
        segment: SegmentId,
        /// Its value.
        value: Box<Value>,
    },
    /// Drop sealed segments.
    Trim {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// First segment to keep.
        below_number: u64,
        /// That segment, where this node's tombstone says that the trim was decided before.
        first: Option<Box<Descriptor>>,
    },
    /// How copies on this node's disk are.
    ReportCopies {
        /// This node's disk.
        replica: ReplicaRef,
        /// Its findings.
        reports: Vec<CopyReport>,
    },
    /// Drop a topic.
    DeleteTopic {
        /// Topic.
        topic: TopicId,
    },
    /// This node's disk is full, or has space again.
    NodeState {
        /// `up` or `full`.
        state: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(serde_json::Value),
    Error(Refusal),
}

/// The bounded queue of events that the host pulls and answers.
pub(crate) struct ControlQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    next_id: u64,
    closed: bool,
    /// Not pulled yet.
    waiting: VecDeque<(u64, String)>,
    /// Not answered yet, pulled or not.
    unanswered: HashMap<u64, oneshot::Sender<Result<serde_json::Value, Refusal>>>,
}

impl ControlQueue {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new() }
    }

    /// Emits an event and waits for its answer; the command may be carried out after a refusal for lateness.
    pub(crate) async fn ask(&self, event: &Event, patience: Duration) -> Result<serde_json::Value, Refusal> {
        let text = serde_json::to_string(event).expect("events are plain data");
        let (id, answer) = self.push(text)?;
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Refusal::unavailable("this node is stopping")),
            Err(_) => {
                let mut state = self.state.lock();
                state.unanswered.remove(&id);
                state.waiting.retain(|(waiting, _)| *waiting != id);
                Err(Refusal::unavailable("the metadata store did not answer in time"))
            }
        }
    }

    #[allow(clippy::type_complexity)] // named nowhere else
    fn push(
        &self,
        text: String,
    ) -> Result<(u64, oneshot::Receiver<Result<serde_json::Value, Refusal>>), Refusal> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refusal::unavailable("this node is stopping"));
        }
        if state.unanswered.len() >= OUTSTANDING_MAX {
            return Err(Refusal::unavailable("too many requests wait for the metadata store"));
        }
        state.next_id += 1;
        let id = state.next_id;
        state.waiting.push_back((id, text));
        state.unanswered.insert(id, sender);
        self.arrived.notify_one();
        Ok((id, receiver))
    }

    /// Pulls up to `max` events in order, waiting up to `timeout` for the first. Blocks the calling thread.
    pub(crate) fn poll(&self, max: usize, timeout: Duration) -> Vec<(u64, String)> {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            if self.arrived.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let count = max.min(state.waiting.len());
        state.waiting.drain(..count).collect()
    }

    /// Answers an event. `Err` says what is wrong with the answer; an event that nobody waits for any more is fine.
    pub(crate) fn complete(&self, id: u64, answer_json: &str) -> Result<(), String> {
        let parsed = serde_json::from_str::<Answer>(answer_json);
        let Some(waiter) = self.state.lock().unanswered.remove(&id) else {
            return Ok(());
        };
        let (outcome, problem) = match parsed {
            Ok(Answer::Ok(ok)) => (Ok(ok), None),
            Ok(Answer::Error(refusal)) => (Err(refusal), None),
            Err(problem) => {
                let message = format!("the answer to event {id} is not understood: {problem}");
                (Err(Refusal::unavailable(&message)), Some(message))
            }
        };
        drop(waiter.send(outcome)); // whoever asked may have given up
        problem.map_or(Ok(()), Err)
    }

    /// Refuses whatever is unanswered, and all that comes.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting.clear();
        state.unanswered.clear();
        self.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn an_event_is_answered_by_its_id() {
        let queue = Arc::new(ControlQueue::new());
        let host = {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let events = queue.poll(10, PATIENCE);
                assert_eq!(events.len(), 1);
                assert_eq!(events[0].1, r#"{"kind":"node_state","state":"up"}"#);
                queue.complete(events[0].0, r#"{"ok": {"first": 3}}"#).unwrap();
            })
        };
        let answer = queue.ask(&Event::NodeState { state: "up" }, PATIENCE).await.unwrap();
        assert_eq!(answer["first"], 3);
        host.join().unwrap();
    }

    #[tokio::test]
    async fn a_host_that_does_not_pull_makes_requests_fail_and_not_pile_up() {
        let queue = ControlQueue::new();
        let refusal =
            queue.ask(&Event::NodeState { state: "full" }, Duration::from_millis(1)).await.unwrap_err();
        assert!(refusal.retryable);
        assert_eq!(queue.poll(10, Duration::ZERO), []);
    }

    #[tokio::test]
    async fn closing_refuses_what_waits() {
        let queue = Arc::new(ControlQueue::new());
        let asking = {
            let queue = queue.clone();
            tokio::spawn(async move { queue.ask(&Event::NodeState { state: "up" }, PATIENCE).await })
        };
        while queue.poll(1, Duration::ZERO).is_empty() {
            tokio::task::yield_now().await;
        }
        queue.close();
        assert!(asking.await.unwrap().is_err());
        assert_eq!(queue.poll(1, PATIENCE), []);
    }

    #[test]
    fn an_answer_that_is_not_understood_is_reported_to_the_host() {
        let queue = ControlQueue::new();
        let (id, mut receiver) = queue.push("{}".to_owned()).unwrap();
        assert!(queue.complete(id, "[]").is_err());
        assert!(receiver.try_recv().unwrap().is_err());
        assert!(queue.complete(id, r#"{"ok":{}}"#).is_ok());
    }
}
