//! The wait for entries of a topic that may not exist yet: its first append makes it, a wait never does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Topic, Walrus};
use crate::error::Result;
use crate::handle::Arrival;
use crate::sync::now;
use crate::types::Offset;

impl Walrus {
    /// Blocks until the default cursor has an entry to read, or until the time is over. Waits for a topic that does
    /// not exist too, and does not make it. See [`Log::wait_for`](crate::Log::wait_for).
    pub fn wait_for_data(&self, topic: &str, timeout: Duration) -> Result<bool> {
        // A deadline that no clock can hold is no deadline.
        let deadline = now().checked_add(timeout);
        let Some(topic) = self.wait_for_topic(topic, deadline)? else { return Ok(false) };
        let left = deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(now()));
        topic.inner.cursor.wait(left)
    }

    /// Blocks until the topic exists; `None` if the time was over before.
    fn wait_for_topic(&self, name: &str, deadline: Option<Instant>) -> Result<Option<Topic>> {
        let store = &self.inner.store;
        store.resources().check_open()?;
        if let Some(topic) = self.find(name) {
            return Ok(Some(topic));
        }
        loop {
            let tasks = store.topics_made().expect();
            store.resources().check_open()?;
            if let Some(topic) = self.find(name) {
                return Ok(Some(topic));
            }
            let (_tasks, is_over) = store.topics_made().wait(tasks, deadline);
            if is_over {
                return Ok(self.find(name));
            }
        }
    }

    /// Resolves when the topic has an entry at an offset, or (`None`) at the place of its default cursor. It can be
    /// awaited in any runtime and has no limit of time. Waits for a topic that does not exist too, and does not make
    /// it.
    pub fn arrival(&self, topic: &str, offset: Option<Offset>) -> TopicArrival {
        TopicArrival { walrus: self.clone(), name: topic.to_owned(), offset, task: None, of_log: None }
    }
}

/// Resolves when a topic exists and has an entry (true), or never will have (false). Dropping it forgets the wait.
#[must_use = "futures do nothing unless polled"]
pub struct TopicArrival {
    walrus: Walrus,
    name: String,
    /// Offset of the entry; `None` for the place of the default cursor when the topic exists.
    offset: Option<Offset>,
    /// Number of the wait for the topic, while there is one.
    task: Option<u64>,
    of_log: Option<Arrival>,
}

impl Future for TopicArrival {
    type Output = Result<bool>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { walrus, name, offset, task, of_log } = &mut *self;
        if let Some(arrival) = of_log {
            return Pin::new(arrival).poll(context);
        }
        let store = &walrus.inner.store;
        store.resources().check_open()?;
        let mut tasks = store.topics_made().expect();
        // The store may have closed since the check above: its close announces itself only to waits that were there
        // before.
        store.resources().check_open()?;
        let Some(topic) = walrus.find(name) else {
            let replaced = tasks.note(task, context.waker());
            drop((tasks, replaced));
            return Poll::Pending;
        };
        drop(tasks);
        store.topics_made().forget(task.take());
        let offset = offset.unwrap_or_else(|| topic.inner.cursor.position());
        Pin::new(of_log.insert(topic.inner.log.arrival(offset))).poll(context)
    }
}

impl Drop for TopicArrival {
    fn drop(&mut self) {
        let store = &self.walrus.inner.store;
        // A forked child cannot take the lock: the thread that holds it may not exist there.
        if store.resources().check_origin().is_ok() {
            store.topics_made().forget(self.task);
        }
    }
}
