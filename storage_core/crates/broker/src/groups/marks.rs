//! Telling the metadata how far groups have read, for topics whose retention asks: what they have read may go, or what they have not
//! read stays. The coordinator of a group tells what is durable and has changed.

use walrus_groups::GroupName;
use walrus_metadata::{ReadMark, Topic};
use walrus_model::Offset;

use super::service::GroupService;
use crate::node::error::Result;
use crate::node::patience;
use crate::owners::tell_read;

/// What stands before the name of a group where a topic's settings mean one.
const PREFIX: &str = "group:";

/// Tells it again and again, until the node stops.
pub(crate) async fn keep_told(service: GroupService) {
    let tasks = service.topics().cluster().tasks().clone();
    let telling = async {
        loop {
            tell(&service).await;
            tokio::time::sleep(patience::READ_MARKS).await;
        }
    };
    tasks.until_stopped(telling).await;
}

async fn tell(service: &GroupService) {
    let cluster = service.topics().cluster();
    let metadata = cluster.routing().metadata.clone();
    for topic in metadata.topics.values() {
        for reader in topic.config.readers() {
            let Some(name) = reader.strip_prefix(PREFIX) else { continue };
            let name = GroupName { org: topic.org.clone(), name: name.to_owned() };
            // Whoever does not coordinate the group leaves it to the node that does.
            let Ok(marks) = marks(service, &name, topic).await else { continue };
            tell_read(cluster, topic, reader, marks).await;
        }
    }
}

async fn marks(service: &GroupService, name: &GroupName, topic: &Topic) -> Result<Vec<ReadMark>> {
    let offsets = service.offsets(name).await?;
    let of_topic = offsets.iter().filter(|(place, _)| place.topic == topic.id);
    let mark = |(place, committed): (&walrus_groups::Place, &walrus_groups::Committed)| ReadMark {
        partition: place.partition,
        next: Offset(u64::try_from(committed.offset).unwrap_or(0)),
    };
    Ok(of_topic.map(mark).filter(|mark| mark.partition < topic.partition_count()).collect())
}
