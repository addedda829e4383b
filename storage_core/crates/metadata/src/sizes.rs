//! Counts of topics and partitions, kept with each change, so that a limit is checked without a look at what is there.

use imbl::OrdMap;

/// Limit on the partitions of one topic: each costs a log on some disk.
pub(crate) const TOPIC_PARTITIONS_MAX: u32 = 10_000;

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
    pub(crate) fn cluster(&self) -> Size {
        self.cluster
    }

    /// An organisation's; nothing where it has no topics.
    pub(crate) fn of_org(&self, org: &str) -> Size {
        self.by_org.get(org).copied().unwrap_or_default()
    }

    /// Counts a topic of an organisation with so many partitions.
    pub(crate) fn add(&mut self, org: &str, partitions: usize) {
        for size in [&mut self.cluster, self.by_org.entry(org.to_owned()).or_default()] {
            size.topics += 1;
        }
        self.add_partitions(org, partitions);
    }

    /// Counts more partitions of a topic that is counted.
    pub(crate) fn add_partitions(&mut self, org: &str, partitions: usize) {
        for size in [&mut self.cluster, self.by_org.entry(org.to_owned()).or_default()] {
            size.partitions += partitions as u64;
        }
    }

    /// Counts one less.
    pub(crate) fn remove(&mut self, org: &str, partitions: usize) {
        for size in [&mut self.cluster, self.by_org.entry(org.to_owned()).or_default()] {
            size.topics = size.topics.saturating_sub(1);
            size.partitions = size.partitions.saturating_sub(partitions as u64);
        }
        if self.of_org(org) == Size::default() {
            self.by_org.remove(org);
        }
    }
}
