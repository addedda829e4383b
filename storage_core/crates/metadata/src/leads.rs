//! Counts of the partitions that each node leads and goes on leading from segment to segment, kept with each change, so that a
//! new leader is chosen without a look at what is there.

use imbl::OrdMap;
use walrus_model::NodeId;

/// How many partitions each node leads whose leaders stay: those of topics with sticky leaders, and of Walrus's own topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leads {
    by_node: OrdMap<NodeId, u64>,
}

impl Leads {
    /// The number of a node, whether it is a member or not.
    pub(crate) fn of(&self, node: NodeId) -> u64 {
        self.by_node.get(&node).copied().unwrap_or(0)
    }

    /// Counts one that the node leads now.
    pub(crate) fn add(&mut self, node: NodeId) {
        *self.by_node.entry(node).or_default() += 1;
    }

    /// Counts one that it leads no more.
    pub(crate) fn remove(&mut self, node: NodeId) {
        match self.of(node) {
            0 | 1 => drop(self.by_node.remove(&node)),
            count => drop(self.by_node.insert(node, count - 1)),
        }
    }
}
