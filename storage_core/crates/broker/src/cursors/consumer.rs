//! The consumer: what one connection holds of the shared cursors, and what it knows to have arrived at its client.

use bytes::Bytes;
use uuid::Uuid;

use super::reservation::HolderId;
use super::service::CursorService;
use super::terms::{EntryRef, HolderReport, TopicRef, Urgency};
use crate::node::error::{Error, Result};
use crate::node::names::TopicPath;

/// Limit on the entries that one connection holds; a client that waits for its answers never comes near it.
const HELD_MAX: usize = 1_024;

/// Limit on deliveries that are not known to be durable; at it the next `GET` waits until they are.
const UNSURE_MAX: usize = 4_096;

/// An entry that was answered to the client and is not known to have arrived.
struct HeldEntry {
    /// Number of the answer that carried it.
    answer: u64,
    topic: TopicRef,
    entry: EntryRef,
}

/// A connection's part of the shared cursors. Whoever drops it without [`Consumer::close`] leaves what it holds to
/// the time limit.
pub struct Consumer {
    service: CursorService,
    holder: HolderId,
    held: Vec<HeldEntry>,
    /// Deliveries of which the owners do not know yet.
    arrived: Vec<(TopicRef, EntryRef)>,
    /// Deliveries of which an owner knows; should it die before they are recorded, the next one must be told again.
    unsure: Vec<(TopicRef, EntryRef)>,
    /// How many deliveries came too late; the next `COMMIT` says so.
    lost: u32,
    /// An owner could not be told; that is not tried again until the client asks for something of a cursor.
    deferred: bool,
}

impl Consumer {
    /// The consumer of a new connection.
    #[must_use]
    pub fn new(service: CursorService) -> Self {
        let holder = HolderId(Uuid::new_v4());
        Self {
            service,
            holder,
            held: Vec::new(),
            arrived: Vec::new(),
            unsure: Vec::new(),
            lost: 0,
            deferred: false,
        }
    }

    /// Notes that the client has seen its answers up to this number.
    pub fn confirm(&mut self, answer: u64) {
        for held in self.held.extract_if(.., |held| held.answer <= answer) {
            self.arrived.push((held.topic, held.entry));
        }
    }

    /// Whether entries wait for a sign of the client.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The value of the topic's next entry, which goes out with the client's answer of this number; `None` when every
    /// entry is delivered or held.
    pub async fn next(&mut self, topic: &TopicPath, answer: u64) -> Result<Option<Bytes>> {
        if self.held.len() >= HELD_MAX {
            let problem = format!("{HELD_MAX} answers to GET wait for a sign that they arrived: send COMMIT");
            return Err(Error::InvalidRequest { problem });
        }
        let topic = self.service.resolve(topic).await?;
        if self.unsure.len() >= UNSURE_MAX {
            self.record().await?;
        }
        self.deferred = false;
        self.report_arrived_but(Some(&topic)).await;
        let report = HolderReport {
            delivered: of_topic(&topic, self.arrived.iter().map(|(topic, entry)| (topic, *entry))),
            kept: of_topic(&topic, self.held.iter().map(|held| (&held.topic, held.entry))),
        };
        let next = self.service.next(&topic, self.holder, report).await?;
        self.note_told(&topic);
        let Some((entry, value)) = next else { return Ok(None) };
        self.held.push(HeldEntry { answer, topic, entry });
        Ok(Some(value))
    }

    /// Tells the owners what has arrived. What cannot be told now is told with the next `GET` or `COMMIT`, or at the
    /// close.
    pub async fn report_arrived(&mut self) {
        if !self.deferred {
            self.report_arrived_but(None).await;
        }
    }

    /// Takes everything that was answered as arrived; that is durable on return. An error says how many entries came too late:
    /// they go to another client again.
    pub async fn commit(&mut self) -> Result<()> {
        self.confirm(u64::MAX);
        self.record().await?;
        match std::mem::take(&mut self.lost) {
            0 => Ok(()),
            lost => {
                let problem = format!("COMMIT came too late for {lost} entries, they are delivered again");
                Err(Error::InvalidRequest { problem })
            }
        }
    }

    /// Has all that has arrived recorded; it is durable on return. An owner that has just taken over hears it all: what the one
    /// before had heard and not recorded died with it.
    async fn record(&mut self) -> Result<()> {
        for topic in self.topics() {
            let delivered = self.delivered(&topic);
            self.lost += self
                .service
                .report_deliveries(&topic, self.holder, delivered, Vec::new(), Urgency::Durable)
                .await?;
            self.arrived.retain(|(arrived, _)| arrived.id != topic.id);
            self.unsure.retain(|(unsure, _)| unsure.id != topic.id);
        }
        Ok(())
    }

    /// Ends the consumer with its connection. What it holds counts as delivered if the client has `received` all answers, else
    /// it goes back in front.
    pub async fn close(mut self, received: bool) {
        if received {
            self.confirm(u64::MAX);
        }
        let mut topics = self.topics();
        for held in &self.held {
            add(&mut topics, &held.topic);
        }
        for topic in topics {
            let delivered = self.delivered(&topic);
            let returned = of_topic(&topic, self.held.iter().map(|held| (&held.topic, held.entry)));
            if delivered.is_empty() && returned.is_empty() {
                continue;
            }
            if let Err(problem) = self
                .service
                .report_deliveries(&topic, self.holder, delivered, returned, Urgency::Finally)
                .await
            {
                tracing::debug!(%problem, topic = %topic.path, "entries of a closed connection are left to the time limit");
            }
        }
    }

    /// Tells the owners of all topics but one what has arrived, as far as that is possible now.
    async fn report_arrived_but(&mut self, except: Option<&TopicRef>) {
        for topic in self.topics() {
            let delivered = of_topic(&topic, self.arrived.iter().map(|(topic, entry)| (topic, *entry)));
            if delivered.is_empty() || except.is_some_and(|except| except.id == topic.id) {
                continue;
            }
            match self
                .service
                .report_deliveries(&topic, self.holder, delivered, Vec::new(), Urgency::Soon)
                .await
            {
                Ok(lost) => {
                    self.lost += lost;
                    self.note_told(&topic);
                }
                Err(problem) => {
                    tracing::debug!(%problem, topic = %topic.path, "deliveries are told later");
                    self.deferred = true;
                }
            }
        }
    }

    /// Topics of which the owners may have something to hear.
    fn topics(&self) -> Vec<TopicRef> {
        let mut topics = Vec::new();
        for (topic, _) in self.unsure.iter().chain(&self.arrived) {
            add(&mut topics, topic);
        }
        topics
    }

    /// All entries of a topic that were delivered and are not known to be durable.
    fn delivered(&self, topic: &TopicRef) -> Vec<EntryRef> {
        of_topic(topic, self.unsure.iter().chain(&self.arrived).map(|(topic, entry)| (topic, *entry)))
    }

    /// Notes that the owner of a topic knows what has arrived of it.
    fn note_told(&mut self, topic: &TopicRef) {
        self.unsure.extend(self.arrived.extract_if(.., |(arrived, _)| arrived.id == topic.id));
    }
}

fn add(topics: &mut Vec<TopicRef>, topic: &TopicRef) {
    if topics.iter().all(|other| other.id != topic.id) {
        topics.push(topic.clone());
    }
}

fn of_topic<'a>(topic: &TopicRef, entries: impl Iterator<Item = (&'a TopicRef, EntryRef)>) -> Vec<EntryRef> {
    entries.filter(|(of, _)| of.id == topic.id).map(|(_, entry)| entry).collect()
}
