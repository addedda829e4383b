//! A wait for metadata that are published after a look at them.

use std::time::Duration;

use tokio::sync::watch;

/// Metadata that are published from here on. Whoever looks at them and then waits takes this before the look: what is
/// published in between would be missed, and waited for in vain.
pub(crate) struct News {
    version: watch::Receiver<u64>,
}

impl News {
    pub(crate) fn new(version: watch::Receiver<u64>) -> Self {
        Self { version }
    }

    /// Waits until a version is published, or returns at once if one was since this was taken; waits for at most `patience`.
    pub(crate) async fn wait(mut self, patience: Duration) {
        drop(tokio::time::timeout(patience, self.version.changed()).await); // both ends of the wait are fine
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_is_published_between_the_look_and_the_wait_is_not_missed() {
        let published = watch::Sender::new(1);
        let news = News::new(published.subscribe());
        published.send_replace(2);
        assert!(news.wait(LONG).now_or_never().is_some());
    }

    #[tokio::test]
    async fn where_nothing_is_published_the_wait_ends_after_its_patience() {
        let published = watch::Sender::new(1);
        let mut waiting = std::pin::pin!(News::new(published.subscribe()).wait(Duration::from_millis(1)));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        waiting.await;
    }
}
