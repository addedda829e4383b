//! Finding the owner of a partition, and asking it, again when the owner moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use walrus_owners::Entry;

use super::ledger::batch_of;
use crate::cluster::leadership::Leadership;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicPath};
use crate::node::patience;
use crate::topics::Topics;
use crate::topics::catalogue::NewTopic;

/// Finds the owners of the partitions of one of Walrus's own topics.
pub(crate) struct Finder {
    topics: Arc<Topics>,
    topic: TopicPath,
    new: NewTopic,
    /// Makes a record that says nothing.
    nothing: fn() -> Entry,
}

impl Finder {
    /// A finder for a topic of so many partitions and these settings, and with a record that says nothing there.
    pub(crate) fn new(
        topics: Arc<Topics>,
        topic: TopicPath,
        partitions: u32,
        config: BTreeMap<String, String>,
        nothing: fn() -> Entry,
    ) -> Self {
        Self { topics, topic, new: NewTopic { partitions, config }, nothing }
    }

    /// One of the partitions.
    pub(crate) fn log(&self, partition: u32) -> PartitionRef {
        PartitionRef { topic: self.topic.clone(), partition }
    }

    /// The leadership of a partition, of a topic that is made if it is not there.
    pub(crate) async fn leadership(&self, partition: u32) -> Result<Leadership> {
        let log = self.log(partition);
        match self.topics.cluster().leadership(&log) {
            Err(Error::UnknownTopic { .. }) => {
                self.topics.create_topic(&self.topic, self.new.clone()).await?;
                self.topics.cluster().leadership(&log)
            }
            found => found,
        }
    }

    /// Asks the owner of a partition, again and again, for at most `patience`. What is asked may be asked twice. `ask` says
    /// `NotLeader` where the node that the metadata name does not own the partition.
    pub(crate) async fn ask<A, Asked: Future<Output = Result<A>>>(
        &self,
        partition: u32,
        patience: Duration,
        ask: impl Fn(Leadership, Instant) -> Asked,
    ) -> Result<A> {
        let cluster = self.topics.cluster();
        let log = self.log(partition);
        let deadline = Instant::now() + patience;
        loop {
            let mut metadata = cluster.watch_metadata();
            metadata.mark_unchanged();
            let leadership = self.leadership(partition).await;
            let asked = match leadership.clone() {
                Ok(leadership) => ask(leadership, deadline).await,
                Err(problem) => Err(problem),
            };
            let problem = match asked {
                Ok(answer) => return Ok(answer),
                Err(problem) => problem,
            };
            match &problem {
                Error::UnknownTopic { topic } if *topic == self.topic.to_string() => {} // not heard of it yet
                Error::NotLeader { .. } | Error::OutcomeUnknown { .. } => {}
                other if other.retryable() => {}
                _ => return Err(problem),
            }
            if Instant::now() + patience::OWNER_NAMED >= deadline {
                return Err(problem);
            }
            cluster.check_reach(&log)?;
            let moved = tokio::time::timeout(patience::OWNER_NAMED, metadata.changed()).await.is_ok();
            if let (Error::NotLeader { .. }, Ok(leadership), false) = (&problem, leadership, moved) {
                self.wake(partition, leadership, deadline).await;
            }
        }
    }

    /// The answer to whoever asks a node that does not lead by the metadata, though these name it: an earlier process of it did.
    pub(crate) fn led_by_an_earlier_process(&self, leadership: &Leadership) -> Error {
        let key = format!("{}/{}", self.topic, leadership.number);
        Error::NotLeader { key, hint: None }
    }

    /// Appends a record that says nothing. The leader that the metadata name serves no more if its process was replaced, and a new
    /// segment is opened only when an append asks for it.
    pub(crate) async fn wake(&self, partition: u32, seen: Leadership, deadline: Instant) {
        let log = self.log(partition);
        if self.topics.cluster().leadership(&log).is_ok_and(|now| now != seen) {
            return;
        }
        let append = async { self.topics.append(&log, batch_of(&[(self.nothing)()])?).await };
        let left = deadline.saturating_duration_since(Instant::now());
        if let Ok(Err(problem)) = tokio::time::timeout(left, append).await {
            tracing::debug!(%log, %problem, "cannot open a new segment");
        }
    }
}
