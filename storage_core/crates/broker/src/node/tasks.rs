//! The tasks of the node, their runtime and the signal that ends them, and threads for work that waits for the disk.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node::error::{Error, Result};
use crate::node::metrics::Metrics;

/// Runs the tasks of the node's parts, and knows when all of them have ended. Cheap to clone.
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

    /// Runs a task that is waited for at the stop. A panic of it is counted and logged.
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

    /// Runs work that waits for the disk on a thread for that.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = self.runtime.spawn_blocking(work).await;
        done.unwrap_or_else(|problem| {
            Err(Error::Internal { message: format!("work on the disk: {problem}") })
        })
    }

    /// The runtime of the tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The signal that is cancelled when the node stops: then nothing new is accepted, and what is there is finished.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Runs a loop until it ends by itself or the node stops.
    pub(crate) async fn until_stopped(&self, work: impl Future<Output = ()>) {
        let _stopped = self.shutdown.run_until_cancelled(work).await;
    }

    /// Tells all tasks to end and waits for them, for at most `grace`; says whether all have ended.
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
