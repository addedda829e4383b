//! Look-ups of topics and segments that get to know more before they call something unknown.

use walrus_model::NodeId;
use walrus_replica::Doubt;

use crate::cluster::Cluster;
use crate::cluster::standing;
use crate::node::error::Result;
use crate::node::names::PartitionRef;
use crate::node::obstacle::Obstacle;
use crate::node::patience;

impl Cluster {
    /// Looks something up in the metadata here. Before it is called unknown the metadata are made as new as the question, and
    /// looked through again; `Unavailable` where that cannot be.
    pub(crate) async fn find_confirmed<T>(&self, look: impl Fn() -> Result<T>) -> Result<T> {
        match look() {
            Err(unknown) if unknown.is_unknown() => {
                self.await_all_metadata(&format!("{unknown}, perhaps")).await?;
                look()
            }
            found => found,
        }
    }

    /// Returns when this node knows all metadata that were committed before the call; else `Unavailable`, with what is
    /// doubted.
    pub(crate) async fn await_all_metadata(&self, doubted: &str) -> Result<()> {
        let doubted = || doubted.to_owned();
        self.may_be_told().map_err(|doubt| Obstacle::MetadataDoubted { doubted: doubted(), doubt })?;
        let passed = self.barrier().pass(self.control()).await;
        passed
            .map_err(|error| Obstacle::MetadataUnasked { doubted: doubted(), error: Box::new(error) }.into())
    }

    /// Whether it is worth asking the metadata store: one that has not answered for seconds would be waited for in vain.
    fn may_be_told(&self) -> Result<(), Doubt> {
        let (routing, process) = (self.routing(), self.config().process);
        let me = routing.metadata.nodes.get(&NodeId(self.node_id())).filter(|node| node.process == process);
        standing::may_claim_unknown(me.is_some(), me.is_some_and(|me| self.holds_lease(me)))
    }

    /// Waits until this node lists, or has trimmed, the segment of that number; a peer acted on `version` of the metadata.
    /// `Unavailable` where that version, too, lists no such segment.
    pub(crate) async fn await_listed(&self, log: &PartitionRef, number: u64, version: u64) -> Result<()> {
        let is_listed = || {
            let routing = self.routing();
            let last = routing.partition(log).ok().and_then(|(_, found)| found.segments.last());
            last.is_some_and(|last| last.descriptor.number >= number)
        };
        if !is_listed() {
            self.metadata_reaches(version, patience::MESSAGE_NEWS).await;
            if !is_listed() {
                let (node, here) = (self.node_id(), self.metadata_version());
                let partition = log.to_string();
                return Err(Obstacle::SegmentNumberUnlisted { node, partition, number, here, version }.into());
            }
        }
        Ok(())
    }
}
