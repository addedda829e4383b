//! The segments for which a peer's word is taken: those that the metadata here list or have allotted, and those about which this
//! disk has promised something. Whoever speaks names the version of the metadata that it acted on, and a node that knows less
//! waits for it; so a node that lags is slow and not wrong, and no peer can make logs or promises for what never was.

use walrus_model::{Descriptor, Epoch};

use crate::cluster::segment::log_id;
use crate::copies::Copies;
use crate::node::error::Result;
use crate::node::obstacle::Obstacle;
use crate::node::patience;

/// Limit on the epochs of a partition that metadata may have handed out and lost again.
const EPOCHS_LOST_MAX: u32 = 1 << 16;

/// Whether metadata that have lost a part may have handed out `epoch`, if the highest that is known is `known`. Without a bound
/// one message would keep everybody else out for good: no epoch is above the last.
fn is_near(epoch: Epoch, known: Epoch) -> bool {
    epoch.0 <= known.0.saturating_add(EPOCHS_LOST_MAX)
}

impl Copies {
    /// Waits until this node knows a segment and the epoch of an attempt to end it; a peer acted on `version` of the metadata.
    /// `Unavailable` where that version, too, knows nothing of them: this node or the peer has lost commands, or the peer lies.
    pub(crate) async fn knows(&self, segment: &Descriptor, epoch: Epoch, version: u64) -> Result<()> {
        if !self.knows_now(segment, epoch)? {
            self.cluster().metadata_reaches(version, patience::MESSAGE_NEWS).await;
            if !self.knows_now(segment, epoch)? {
                let (node, here) = (self.cluster().node_id(), self.cluster().metadata_version());
                let (segment, epoch) = (segment.id, epoch.0);
                return Err(Obstacle::EpochUnlisted { node, segment, epoch, here, version }.into());
            }
        }
        Ok(())
    }

    fn knows_now(&self, segment: &Descriptor, epoch: Epoch) -> Result<bool> {
        let next_epoch = {
            let routing = self.cluster().routing();
            let topic = routing.metadata.topics.get(&segment.topic);
            let found = topic.and_then(|topic| topic.partitions.get(segment.partition as usize));
            if let Some(found) = found.filter(|found| found.knows(segment)) {
                // What the metadata have handed out in this partition is below its next epoch.
                return Ok(epoch < found.next_epoch);
            }
            found.map_or(Epoch(0), |found| found.next_epoch)
        };
        let log = self.bucket().log(log_id(segment));
        let promised = self.table().promised(segment)?;
        Ok(match (promised, log) {
            // Its end is decided: no promise is made any more.
            (_, Some(log)) if log.is_sealed() => true,
            (None, None) => false,
            (promised, _) => is_near(epoch, promised.unwrap_or(Epoch(0)).max(next_epoch)),
        })
    }
}
