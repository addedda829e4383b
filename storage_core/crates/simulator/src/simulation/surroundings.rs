//! What is around a node's process in a moment: the cluster, what the node knows of the metadata, and which others it hears.

use std::sync::Arc;

use walrus_model::{NodeId, SegmentId};

use super::index;
use crate::mistake::Mistake;
use crate::world::{Committed, Violation, World};

/// The cluster in a moment.
pub(super) struct Surroundings<'a> {
    pub(super) world: &'a mut World,
    pub(super) known: &'a [Arc<Committed>],
    /// Which nodes run and are awake.
    pub(super) alive: Vec<bool>,
    /// Cuts, one-way.
    pub(super) cuts: Vec<(NodeId, NodeId)>,
    /// Whether commands are committed.
    pub(super) metadata_answer: bool,
    /// Microseconds since the beginning.
    pub(super) now: u64,
}

impl Surroundings<'_> {
    /// Milliseconds since the beginning, by clocks that do not jump.
    pub(super) fn now_ms(&self) -> u64 {
        self.now / 1_000
    }

    /// The metadata that a node knows.
    pub(super) fn known(&self, node: NodeId) -> &Arc<Committed> {
        &self.known[index(node)]
    }

    pub(super) fn is_alive(&self, node: NodeId) -> bool {
        self.alive[index(node)]
    }

    /// Whether a node gets an answer of another one.
    pub(super) fn hears(&self, node: NodeId, other: NodeId) -> bool {
        let is_cut = |cut: &(NodeId, NodeId)| *cut == (node, other) || *cut == (other, node);
        self.is_alive(other) && (node == other || !self.cuts.iter().any(is_cut))
    }

    /// Whether the other copies confirm that a node leads a segment.
    pub(super) fn confirms(&self, node: NodeId, segment: SegmentId) -> Result<bool, Violation> {
        self.world.claim(segment, self.known, |other| self.hears(node, other))
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.world.setting.mistake == Some(mistake)
    }
}
