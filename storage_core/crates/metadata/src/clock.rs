//! Time as the metadata know it. No single node's clock decides what is old enough to be forgotten, for it may be an hour
//! ahead.

use crate::state::Metadata;

impl Metadata {
    /// Time that the clocks of a majority of the nodes had reached when they last renewed their leases, milliseconds since the
    /// epoch; 0 as long as no majority has renewed one.
    #[must_use]
    pub fn reached_ms(&self) -> u64 {
        let mut clocks: Vec<u64> = self.nodes.values().map(|node| node.clock_ms).collect();
        clocks.sort_unstable();
        let majority = clocks.len() / 2 + 1;
        clocks.len().checked_sub(majority).map_or(0, |place| clocks[place])
    }
}
