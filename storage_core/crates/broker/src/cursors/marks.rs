//! How far shared cursors have come, for the metadata: the owner of a cursor tells.

use super::service::CursorService;
use crate::owners;

/// The name by which a topic's settings mean its shared cursor.
const READER: &str = "GET";

/// Tells it again and again, until the node stops.
pub(crate) async fn keep_told(service: CursorService) {
    let (cluster, service) = (service.topics().cluster().clone(), &service);
    owners::keep_told(cluster, |topic, reader| async move {
        if reader != READER {
            return None;
        }
        // Whoever does not own the cursor leaves it to the node that does.
        service.marks(topic.id, topic.partition_count()).await.ok()
    })
    .await;
}
