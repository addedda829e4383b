//! Telling the metadata up to where somebody has read a topic.

use walrus_metadata::{ReadMark, Request, Topic};

use crate::cluster::Cluster;
use crate::node::patience;

/// Tells what the metadata do not have, by the name that the topic's settings have for the reader. What is told must be durable.
pub(crate) async fn tell_read(cluster: &Cluster, topic: &Topic, reader: &str, marks: Vec<ReadMark>) {
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
