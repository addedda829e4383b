//! Who is alive, as one node sees it: a node is alive whose lease the viewer has seen renewed lately, by the viewer's own
//! clock. Clocks of two machines are never compared, and no wall clock is asked: times are of CLOCK_BOOTTIME, which only
//! goes forward and counts what the machine slept. Pure: the caller passes the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use walrus_model::{DiskId, NodeId, ProcessId};

use crate::state::{Metadata, Node};

/// The renewals of all nodes, as one process has seen them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Time for which a node that renews no more is held to be alive.
    lease: Duration,
    nodes: BTreeMap<NodeId, Sign>,
}

/// The last sign of life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sign {
    disk: DiskId,
    /// Highest [`Node::renewals`] seen.
    renewals: u64,
    /// When that number was seen first.
    seen: Duration,
}

/// The nodes that are there at one moment, for decisions that are made at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Nodes whose lease has not lapsed: candidates for leaders and copies.
    pub alive: BTreeSet<NodeId>,
    /// Nodes that have not been silent for longer than a lease and the grace for copies: the upkeep counts on what they store.
    pub staying: BTreeSet<NodeId>,
}

impl Presence {
    /// The view of a process that has seen nothing yet. All nodes of a cluster have leases of the same length.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        Self { lease, nodes: BTreeMap::new() }
    }

    /// Takes in a newer state at the time `now`. A node that was never seen before counts as seen now, for it is not known
    /// when it renewed its lease: one that is long dead is taken for alive for one lease. A number that went back, in a
    /// state that has lost commands, is no sign of life.
    pub fn observe(&mut self, metadata: &Metadata, now: Duration) {
        self.nodes.retain(|id, sign| metadata.nodes.get(id).is_some_and(|node| node.disk == sign.disk));
        for node in metadata.nodes.values().filter(|node| node.renewals > 0) {
            let fresh = Sign { disk: node.disk, renewals: node.renewals, seen: now };
            let sign = self.nodes.entry(node.id).or_insert(fresh);
            if node.renewals > sign.renewals {
                *sign = fresh;
            }
        }
    }

    /// The nodes that are there at the time `now`, which must not be before the last [`Presence::observe`]. The grace for
    /// copies is the one that `metadata` sets.
    #[must_use]
    pub fn look(&self, metadata: &Metadata, now: Duration) -> Present {
        let grace = Duration::from_millis(metadata.config.copies_grace_ms());
        let within = |limit: Duration| {
            let recent = move |sign: &Sign| now.saturating_sub(sign.seen) < limit;
            self.nodes.iter().filter(move |(_, sign)| recent(sign)).map(|(id, _)| *id).collect()
        };
        Present { alive: within(self.lease), staying: within(self.lease.saturating_add(grace)) }
    }

    /// Whether `process` runs as this node and holds its lease at `now`, by its own clock: it asked for the last renewal
    /// less than a lease ago, so it knows all that was committed until then. Only that process itself can tell.
    #[must_use]
    pub fn is_held(&self, node: &Node, process: ProcessId, now: Duration) -> bool {
        let asked = Duration::from_millis(node.asked_boottime_ms);
        node.process == process && node.asked_boottime_ms > 0 && now.saturating_sub(asked) < self.lease
    }
}

impl Present {
    /// These nodes, all of them alive and staying, and nobody else, for a host that knows it by other means.
    #[must_use]
    pub fn only(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let alive: BTreeSet<NodeId> = nodes.into_iter().collect();
        Self { staying: alive.clone(), alive }
    }
}
