//! Telling the metadata how far the shared cursors of topics have come, for topics whose retention asks: what it has read may go, or
//! what it has not read stays. The owner of a cursor tells, what is durable and has changed.

use super::service::CursorService;
use crate::node::patience;
use crate::owners::tell_read;

/// The name by which a topic's settings mean its shared cursor.
const READER: &str = "GET";

/// Tells it again and again, until the node stops.
pub(crate) async fn keep_told(service: CursorService) {
    let tasks = service.topics().cluster().tasks().clone();
    let telling = async {
        loop {
            tell(&service).await;
            tokio::time::sleep(patience::READ_MARKS).await;
        }
    };
    tasks.until_stopped(telling).await;
}

async fn tell(service: &CursorService) {
    let cluster = service.topics().cluster();
    let metadata = cluster.routing().metadata.clone();
    for topic in metadata.topics.values().filter(|topic| topic.config.asks_reader(READER)) {
        // Whoever does not own the cursor leaves it to the node that does.
        let Ok(marks) = service.marks(topic.id, topic.partition_count()).await else { continue };
        tell_read(cluster, topic, READER, marks).await;
    }
}
