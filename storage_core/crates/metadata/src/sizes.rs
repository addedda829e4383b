//! Counts of topics and partitions, kept with each change, so that a limit is checked without a look at what is there.

use std::sync::Arc;

use imbl::OrdMap;

use crate::state::{Metadata, Topic};

/// How many topics and partitions there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) topics: u64,
    /// Partitions of all of them together.
    pub(crate) partitions: u64,
}

/// The sizes of the cluster and of each organisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    cluster: Size,
    by_org: OrdMap<String, Size>,
}

impl Sizes {
    /// Counts all topics of a state.
    pub(crate) fn of<'a>(topics: impl Iterator<Item = &'a Arc<Topic>>) -> Self {
        let mut sizes = Self::default();
        topics.for_each(|topic| sizes.add(topic));
        sizes
    }

    pub(crate) fn cluster(&self) -> Size {
        self.cluster
    }

    /// An organisation's; nothing where it has no topics.
    pub(crate) fn of_org(&self, org: &str) -> Size {
        self.by_org.get(org).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, topic: &Topic) {
        let partitions = topic.partitions.len() as u64;
        for size in [&mut self.cluster, self.by_org.entry(topic.org.clone()).or_default()] {
            size.topics += 1;
            size.partitions += partitions;
        }
    }

    pub(crate) fn remove(&mut self, topic: &Topic) {
        let partitions = topic.partitions.len() as u64;
        for size in [&mut self.cluster, self.by_org.entry(topic.org.clone()).or_default()] {
            size.topics = size.topics.saturating_sub(1);
            size.partitions = size.partitions.saturating_sub(partitions);
        }
        if self.of_org(&topic.org) == Size::default() {
            self.by_org.remove(&topic.org);
        }
    }
}

impl Metadata {
    /// The number of an organisation's topics, and that of the partitions of all of them.
    pub(crate) fn size_of(&self, org: &str) -> Size {
        self.sizes.of_org(org)
    }
}
