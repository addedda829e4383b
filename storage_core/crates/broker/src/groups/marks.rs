//! How far groups have read, for the metadata: the coordinator of a group tells.

use walrus_groups::{Committed, GroupName, Place};
use walrus_metadata::ReadMark;
use walrus_model::Offset;

use super::service::GroupService;
use crate::owners;

/// What stands before the name of a group where a topic's settings mean one.
const PREFIX: &str = "group:";

/// Tells it again and again, until the node stops.
pub(crate) async fn keep_told(service: GroupService) {
    let (cluster, service) = (service.topics().cluster().clone(), &service);
    owners::keep_told(cluster, |topic, reader| async move {
        let name = GroupName { org: topic.org.clone(), name: reader.strip_prefix(PREFIX)?.to_owned() };
        // Whoever does not coordinate the group leaves it to the node that does.
        let places = (0..topic.partition_count()).map(|partition| Place { topic: topic.id, partition });
        let offsets = service.offsets(&name, Some(&places.collect())).await.ok()?;
        let mark = |(place, committed): (&Place, &Committed)| ReadMark {
            partition: place.partition,
            next: Offset(u64::try_from(committed.offset).unwrap_or(0)),
        };
        Some(offsets.iter().map(mark).collect())
    })
    .await;
}
