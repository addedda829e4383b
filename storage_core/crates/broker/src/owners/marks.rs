//! Telling the metadata up to where topics are read, for topics whose retention asks: what their readers have read may go, or what they
//! have not read stays.

use std::sync::Arc;

use walrus_metadata::{ReadMark, Request, Topic};

use crate::cluster::Cluster;
use crate::node::patience;

/// Tells it again and again, until the node stops. `marks` answers how far a reader has read a topic, by what is durable, if this
/// node knows that: the reader has the name by which the topic's settings mean it.
pub(crate) async fn keep_told<Marks: Future<Output = Option<Vec<ReadMark>>>>(
    cluster: Arc<Cluster>,
    marks: impl Fn(Arc<Topic>, String) -> Marks,
) {
    let telling = async {
        loop {
            let metadata = cluster.routing().metadata.clone();
            for topic in metadata.topics.values() {
                for reader in topic.config.readers() {
                    if let Some(marks) = marks(topic.clone(), reader.to_owned()).await {
                        tell(&cluster, topic, reader, marks).await;
                    }
                }
            }
            tokio::time::sleep(patience::READ_MARKS).await;
        }
    };
    cluster.tasks().until_stopped(telling).await;
}

/// Tells what the metadata do not have.
async fn tell(cluster: &Cluster, topic: &Topic, reader: &str, marks: Vec<ReadMark>) {
    let is_news = |mark: &ReadMark| topic.read.of(reader, mark.partition) != mark.next;
    let marks: Vec<ReadMark> = marks.into_iter().filter(is_news).collect();
    if marks.is_empty() {
        return;
    }
    let request = Request::ReportRead { topic: topic.id, reader: reader.to_owned(), marks };
    if let Err(refusal) = cluster.control().ask(&request, patience::METADATA_ANSWER).await {
        tracing::info!(?refusal, topic = topic.name, reader, "what a reader has read is not told yet");
    }
}
