//! What a topic still keeps of the own copy of its open segment.

use walrus_model::Descriptor;

use crate::cluster::segment::log_id;
use crate::copies::Copies;

impl Copies {
    /// Whether the own copy of an open segment has records, and all of them are deleted or older than the topic keeps them, by the
    /// time of the metadata.
    pub(crate) fn holds_nothing_kept(&self, segment: &Descriptor) -> bool {
        let Some(log) = self.bucket().log(log_id(segment)) else { return false };
        if log.end_offset() == log.base_offset() {
            return false;
        }
        let routing = self.cluster().routing();
        let Some(route) = routing.topic(segment.topic) else { return false };
        let Ok(partition) = route.partition(segment.partition) else { return false };
        let is_deleted = partition.start.0 >= log.end_offset().0;
        is_deleted || route.retention.has_expired(log.newest_timestamp(), routing.metadata.reached_ms())
    }
}
