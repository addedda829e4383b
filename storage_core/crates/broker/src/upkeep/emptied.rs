//! Tells metadata of which deleted topics this disk has nothing any more: once no member's disk has anything of one, it is
//! forgotten.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use walrus_metadata::{Metadata, Request};
use walrus_model::TopicId;

use crate::cluster::segment::Place;
use crate::copies::Copies;
use crate::copies::{promises, remains};
use crate::node::patience;

/// Limit on the topics of one report; the next one is soon.
const REPORTED_MAX: usize = 1_000;

/// What this disk is rid of.
#[derive(Default)]
pub(super) struct EmptiedTopics {
    /// Since when nothing was found of each deleted topic. What was under way when the topic was deleted may still leave
    /// something behind, so a topic counts only when nothing was found for a while.
    since: HashMap<TopicId, Instant>,
}

impl EmptiedTopics {
    /// Whether there is something to report in a while, though the metadata change no more.
    pub(super) fn is_waiting(&self) -> bool {
        !self.since.is_empty()
    }

    /// Looks once, and reports what is due. A report that is not taken is made again at the next look.
    pub(super) async fn look(&mut self, copies: &Arc<Copies>, metadata: &Metadata) {
        let replica = copies.table().replica();
        let is_told =
            |topic: &TopicId| metadata.emptied.get(topic).is_some_and(|disks| disks.contains(&replica.disk));
        let untold: HashSet<TopicId> =
            metadata.deleted.iter().filter(|topic| !is_told(topic)).copied().collect();
        self.since.retain(|topic, _| untold.contains(topic));
        if untold.is_empty() || !metadata.knows_organisations() {
            return;
        }
        let held = tokio::task::block_in_place(|| held(copies));
        for topic in untold {
            if held.contains(&topic) {
                self.since.remove(&topic);
            } else {
                self.since.entry(topic).or_insert_with(Instant::now);
            }
        }
        let due = self.since.iter().filter(|(_, since)| since.elapsed() >= patience::EMPTIED_FOR);
        let topics: Vec<TopicId> = due.map(|(topic, _)| *topic).take(REPORTED_MAX).collect();
        if topics.is_empty() {
            return;
        }
        let count = topics.len();
        let request = Request::ReportEmptied { replica, topics };
        match copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await {
            Ok(_) => tracing::info!(count, "this disk has nothing any more of topics that were deleted"),
            Err(refusal) => tracing::debug!(%refusal, "the report of emptied topics is not taken"),
        }
    }
}

/// The topics of which this disk, or what is left of a former one, has logs, or remembers anything.
fn held(copies: &Copies) -> HashSet<TopicId> {
    let store = copies.bucket().store();
    let logs = store.logs();
    let of_logs = logs.iter().filter_map(|log| Place::parse(log.name())).map(|place| place.topic);
    let promised = promises::all_descriptors(store).into_iter().map(|descriptor| descriptor.topic);
    let trimmed = copies.table().tombstones().topics();
    of_logs
        .chain(promised)
        .chain(remains::noted_topics(store))
        .chain(trimmed)
        .chain(copies.table().replacements().topics())
        .chain(copies.left().topics())
        .collect()
}
