//! The remains of topics on this disk, so that one whose creation the metadata have lost can be named again: a note of its
//! name, made with the first log of it, and what there is of topics that the metadata do not name.

use std::collections::{BTreeMap, HashSet};

use uuid::Uuid;
use walrus_log::{Log, Store};
use walrus_metadata::{Metadata, Remains, SegmentRemains, Topic, TopicFacts};
use walrus_model::{Descriptor, TopicId};

use crate::cluster::segment::{Place, segment_of};
use crate::copies::Copies;
use crate::copies::promises;

/// Prefix of the keys under which the notes lie.
const KEYS: &str = "topic/";

/// Notes a topic's organisation, name and number of partitions, durably, unless the same is noted already.
pub(crate) fn note(store: &Store, topic: &Topic) -> walrus_log::Result<()> {
    let facts = TopicFacts {
        org: topic.org.clone(),
        name: topic.name.clone(),
        internal: topic.internal,
        partitions: topic.partition_count(),
    };
    let (key, bytes) = (key(topic.id), serde_json::to_vec(&facts).expect("facts are plain data"));
    if store.property(&key).is_some_and(|noted| noted == bytes) {
        return Ok(());
    }
    store.put_property(&key, &bytes)
}

/// The topics that are noted.
pub(crate) fn noted_topics(store: &Store) -> Vec<TopicId> {
    store.properties().into_iter().filter_map(|(key, _)| parse(&key)).collect()
}

/// Drops the notes of topics that were deleted.
pub(crate) fn forget(store: &Store, is_deleted: impl Fn(TopicId) -> bool) -> walrus_log::Result<()> {
    for (key, _) in store.properties() {
        if parse(&key).is_some_and(&is_deleted) {
            store.remove_property(&key)?;
        }
    }
    Ok(())
}

impl Copies {
    /// The remains on this disk of topics that the metadata here neither name nor call deleted.
    #[must_use]
    pub(crate) fn remains(&self) -> Vec<Remains> {
        let (store, metadata) = (self.bucket().store(), self.cluster().routing().metadata.clone());
        let mut found: BTreeMap<TopicId, Vec<SegmentRemains>> = BTreeMap::new();
        let descriptors = promises::all_descriptors(store);
        let mut with_logs = HashSet::new();
        for log in store.logs() {
            let Some(place) = Place::parse(log.name()).filter(|place| is_lost(&metadata, place.topic)) else {
                continue;
            };
            with_logs.insert(log.id().0);
            let recorded = descriptors.iter().find(|descriptor| descriptor.id == segment_of(log.id()));
            found.entry(place.topic).or_default().push(of_log(&log, place, recorded.cloned()));
        }
        for descriptor in descriptors {
            let is_new = is_lost(&metadata, descriptor.topic) && !with_logs.contains(&descriptor.id.0);
            // A buried copy only remembers how its segment was sealed: its records are elsewhere, or trimmed.
            if is_new && !promises::is_buried(store, descriptor.id).unwrap_or(false) {
                found.entry(descriptor.topic).or_default().extend(of_promise(descriptor));
            }
        }
        let replica = self.table().replica();
        let remains = |(topic, segments)| Remains { replica, topic, facts: noted(store, topic), segments };
        found.into_iter().map(remains).collect()
    }
}

/// Whether the metadata, if there are any, neither name a topic nor call it deleted.
fn is_lost(metadata: &Metadata, topic: TopicId) -> bool {
    metadata.cluster_id.is_some()
        && !metadata.topics.contains_key(&topic)
        && !metadata.deleted.contains(&topic)
}

fn of_log(log: &Log, place: Place, descriptor: Option<Descriptor>) -> SegmentRemains {
    SegmentRemains {
        segment: segment_of(log.id()),
        partition: place.partition,
        number: place.number,
        base_offset: log.base_offset(),
        end_offset: log.end_offset(),
        epoch: log.epoch(),
        is_sealed: log.is_sealed(),
        bytes: log.size_bytes(),
        descriptor,
    }
}

/// The remains of a segment that this disk promised something about and has no log of: nothing was written to it here.
fn of_promise(descriptor: Descriptor) -> Option<SegmentRemains> {
    let base = descriptor.base_offset?;
    Some(SegmentRemains {
        segment: descriptor.id,
        partition: descriptor.partition,
        number: descriptor.number,
        base_offset: base,
        end_offset: base,
        epoch: descriptor.epoch,
        is_sealed: false,
        bytes: 0,
        descriptor: Some(descriptor),
    })
}

/// The note of a topic's name. One that cannot be read counts as none: the topic is found without its name.
fn noted(store: &Store, topic: TopicId) -> Option<TopicFacts> {
    let bytes = store.property(&key(topic))?;
    serde_json::from_slice(&bytes)
        .inspect_err(
            |problem| tracing::error!(topic = %topic.0, %problem, "the note of a topic's name is damaged"),
        )
        .ok()
}

fn key(topic: TopicId) -> String {
    format!("{KEYS}{}", topic.0)
}

fn parse(key: &str) -> Option<TopicId> {
    Some(TopicId(Uuid::try_parse(key.strip_prefix(KEYS)?).ok()?))
}
