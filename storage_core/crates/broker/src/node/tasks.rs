//! The tasks of the node: where they run, who is told that they must end, and what waits for the disk aside from them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node::error::{Error, Result};
use crate::node::metrics::Metrics;

/// Runs what the parts of the node do beside each other, and knows when all of it has ended. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tasks {
    runtime: Handle,
    running: TaskTracker,
    shutdown: CancellationToken,
    metrics: Arc<Metrics>,
}

impl Tasks {
    pub(crate) fn new(runtime: Handle, metrics: Arc<Metrics>) -> Self {
        Self { runtime, running: TaskTracker::new(), shutdown: CancellationToken::new(), metrics }
    }

    /// Runs a task that is waited for at the stop. A panic is reported.
    pub(crate) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let metrics = self.metrics.clone();
        let guarded = async move {
            if std::panic::AssertUnwindSafe(task).catch_unwind().await.is_err() {
                metrics.panics.inc();
                tracing::error!(task = name, "a task panicked");
            }
        };
        self.running.spawn_on(guarded, &self.runtime);
    }

    /// Runs what waits for the disk on a thread for such things.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = self.runtime.spawn_blocking(work).await;
        done.unwrap_or_else(|problem| {
            Err(Error::Internal { message: format!("work on the disk: {problem}") })
        })
    }

    /// What the tasks run on.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Cancelled when the node stops: accept nothing new, finish what is there.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Runs a loop until it ends by itself or the node stops.
    pub(crate) async fn until_stopped(&self, work: impl Future<Output = ()>) {
        let _stopped = self.shutdown.run_until_cancelled(work).await;
    }

    /// Tells all tasks to end and waits for them, at most so long. False: some have not ended.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.shutdown.cancel();
        self.running.close();
        tokio::time::timeout(grace, self.running.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn tasks() -> Tasks {
        Tasks::new(Handle::current(), Arc::new(Metrics::new()))
    }

    #[tokio::test]
    async fn a_stop_waits_for_what_runs_and_ends_loops() {
        let tasks = tasks();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(2);
        let (looping, ended) = (tasks.clone(), sender.clone());
        tasks.spawn("loop", async move {
            looping.until_stopped(std::future::pending()).await;
            ended.send("loop").await.unwrap();
        });
        let stopping = tasks.shutdown().clone();
        tasks.spawn("last words", async move {
            stopping.cancelled().await;
            tokio::task::yield_now().await;
            sender.send("last words").await.unwrap();
        });
        assert!(tasks.stop(SOON).await);
        let mut heard = [receiver.recv().await.unwrap(), receiver.recv().await.unwrap()];
        heard.sort_unstable();
        assert_eq!(heard, ["last words", "loop"]);
    }

    #[tokio::test]
    async fn a_task_that_does_not_end_holds_a_stop_up_for_its_grace_only() {
        let tasks = tasks();
        tasks.spawn("deaf", std::future::pending());
        assert!(!tasks.stop(Duration::from_millis(1)).await);
    }

    #[tokio::test]
    async fn a_panic_is_counted_and_ends_its_task_only() {
        let tasks = tasks();
        tasks.spawn("clumsy", async { panic!("on purpose") });
        assert!(tasks.stop(SOON).await);
        assert_eq!(tasks.metrics.panics.get(), 1);
        assert!(tasks.blocking(|| -> Result<()> { panic!("on purpose") }).await.is_err());
    }
}
