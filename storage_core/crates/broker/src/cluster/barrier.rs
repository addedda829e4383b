//! The barrier that makes metadata as new as a question: before a node says that something is not there, it has heard of all
//! that was committed when it was asked. A lease is not enough: it lasts for seconds in which others may have changed much.

use std::time::Instant;

use tokio::sync::Mutex;
use walrus_metadata::{Request, RequestError};

use crate::cluster::control::ControlQueue;
use crate::node::patience;

/// Runs at most one barrier of the metadata store at a time, and shares it among all who wait for one.
#[derive(Default)]
pub(crate) struct Barrier {
    last: Mutex<Option<LastBarrier>>,
}

struct LastBarrier {
    began: Instant,
    outcome: Result<(), RequestError>,
}

impl Barrier {
    /// Returns when a barrier that began after this call has passed, or why it has not.
    pub(crate) async fn pass(&self, control: &ControlQueue) -> Result<(), RequestError> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(passed) = last.as_ref().filter(|passed| passed.began > asked) {
            return passed.outcome.clone();
        }
        let began = Instant::now();
        let outcome = control.ask(&Request::Barrier, patience::BARRIER).await.map(drop);
        *last = Some(LastBarrier { began, outcome: outcome.clone() });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test(flavor = "multi_thread")]
    async fn all_who_come_while_a_barrier_is_under_way_share_the_next() {
        let (barrier, control) = (Arc::new(Barrier::default()), Arc::new(ControlQueue::new()));
        let pass = || {
            let (barrier, control) = (barrier.clone(), control.clone());
            async move { barrier.pass(&control).await }
        };
        let next = || {
            let control = control.clone();
            tokio::task::spawn_blocking(move || control.poll(10, SOON))
        };
        let first = tokio::spawn(pass());
        let asked = next().await.unwrap();
        assert_eq!(asked.len(), 1);
        let mut late: Vec<_> = (0..50).map(|_| Box::pin(pass())).collect();
        for waiting in &mut late {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        control.complete(asked[0].0, r#"{"Ok": "done"}"#).unwrap();
        first.await.unwrap().unwrap();
        let late = tokio::spawn(futures_util::future::join_all(late));
        let asked = next().await.unwrap();
        control.complete(asked[0].0, r#"{"Err": {"unavailable": {"why": "away"}}}"#).unwrap();
        let outcomes = late.await.unwrap();
        assert!(outcomes.iter().all(Result::is_err), "they hear what became of the one that they waited for");
        assert_eq!(control.poll(10, Duration::ZERO), [], "one was enough for all");
    }
}
