//! The queue of control events to the host. The data plane never changes metadata: it asks, and the host, which pulls
//! the events, proposes a command and answers when its outcome is known. Bounded, so that a host that has stopped
//! pulling makes requests fail instead of memory grow.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use walrus_metadata::{Request, RequestError, Response};

/// Limit on the events that wait for the host or for its answer; a request above it is refused.
const OUTSTANDING_MAX: usize = 4_096;

/// The host's answer to a request.
pub(crate) type Outcome = Result<Response, RequestError>;

/// The bounded queue of events that the host pulls and answers. Its lock has a condition, which `locks.rs` has no use for
/// elsewhere; no other lock is taken under it.
pub(crate) struct ControlQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    next_id: u64,
    closed: bool,
    /// Events that the host has not pulled yet, in order.
    waiting: VecDeque<(u64, String)>,
    /// Those who wait for an answer, by the event's id, whether it was pulled or not.
    unanswered: HashMap<u64, oneshot::Sender<Outcome>>,
}

impl ControlQueue {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new() }
    }

    /// Emits a request and waits for its answer, for at most `patience`. A command that was refused because the answer came too
    /// late may still be carried out.
    pub(crate) async fn ask(&self, request: &Request, patience: Duration) -> Outcome {
        let text = serde_json::to_string(request).expect("events are plain data");
        let (id, answer) = self.push(text)?;
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RequestError::unavailable("this node is stopping")),
            Err(_) => {
                let mut state = self.state.lock();
                state.unanswered.remove(&id);
                state.waiting.retain(|(waiting, _)| *waiting != id);
                Err(RequestError::unavailable("the metadata store did not answer in time"))
            }
        }
    }

    #[allow(clippy::type_complexity)] // named nowhere else
    fn push(&self, text: String) -> Result<(u64, oneshot::Receiver<Outcome>), RequestError> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if state.closed {
            return Err(RequestError::unavailable("this node is stopping"));
        }
        if state.unanswered.len() >= OUTSTANDING_MAX {
            return Err(RequestError::unavailable("too many requests wait for the metadata store"));
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
        let parsed = serde_json::from_str::<Outcome>(answer_json);
        let Some(waiter) = self.state.lock().unanswered.remove(&id) else {
            return Ok(());
        };
        let (outcome, problem) = match parsed {
            Ok(outcome) => (outcome, None),
            Err(problem) => {
                let message = format!("the answer to event {id} is not understood: {problem}");
                (Err(RequestError::unavailable(message.clone())), Some(message))
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
    async fn a_request_is_answered_by_its_id() {
        let queue = Arc::new(ControlQueue::new());
        let host = {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let events = queue.poll(10, PATIENCE);
                assert_eq!(events.len(), 1);
                assert_eq!(events[0].1, r#"{"kind":"barrier"}"#);
                queue.complete(events[0].0, r#"{"Ok": "done"}"#).unwrap();
            })
        };
        assert_eq!(queue.ask(&Request::Barrier, PATIENCE).await, Ok(Response::Done));
        host.join().unwrap();
    }

    #[tokio::test]
    async fn a_host_that_does_not_pull_makes_requests_fail_and_not_pile_up() {
        let queue = ControlQueue::new();
        let refusal = queue.ask(&Request::Barrier, Duration::from_millis(1)).await.unwrap_err();
        assert!(refusal.is_retryable());
        assert_eq!(queue.poll(10, Duration::ZERO), []);
    }

    #[tokio::test]
    async fn closing_refuses_what_waits() {
        let queue = Arc::new(ControlQueue::new());
        let asking = {
            let queue = queue.clone();
            tokio::spawn(async move { queue.ask(&Request::Barrier, PATIENCE).await })
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
        assert!(queue.complete(id, r#"{"Ok": "done"}"#).is_ok());
    }
}
