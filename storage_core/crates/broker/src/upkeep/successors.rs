//! Making the logs behind segments that are to go. Who has written what is known at the end of a segment and told to the log
//! behind it when that is made, which mostly is at its first append. So the last sealed segment of a partition stays, and is not
//! compacted, until a quorum of the replicas of the open one has made its log, and here each of them does.

use std::sync::Arc;

use walrus_metadata::{Kept, Metadata, Request, Segment, SegmentPlace, verdict};

use crate::copies::Copies;
use crate::node::error::Result;
use crate::node::patience;

/// Limit on the segments of one report; the next one is soon.
const REPORTED_MAX: usize = 1_000;

/// Makes the logs that are waited for, and says so, until the node stops.
pub(crate) async fn keep_ready(copies: Arc<Copies>) {
    let making = async {
        loop {
            let metadata = copies.cluster().routing().metadata.clone();
            let mut begun = Vec::new();
            for segment in awaited(&copies, &metadata).into_iter().take(REPORTED_MAX) {
                match begin(&copies, segment).await {
                    Ok(place) => begun.push(place),
                    Err(error) => {
                        let segment = segment.descriptor.id;
                        tracing::info!(%segment, %error, "its log cannot be made yet: the segment before it stays");
                    }
                }
            }
            if !begun.is_empty() {
                let request = Request::ReportBegun { replica: copies.table().replica(), segments: begun };
                if let Err(refusal) =
                    copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await
                {
                    tracing::info!(%refusal, "the report of logs that have begun is not taken");
                }
            }
            tokio::time::sleep(patience::UPKEEP_LOOK).await;
        }
    };
    copies.tasks().until_stopped(making).await;
}

/// The open segments of which this disk is a replica, whose predecessors wait for their logs.
fn awaited<'a>(copies: &Copies, metadata: &'a Metadata) -> Vec<&'a Segment> {
    if !metadata.knows_retention() {
        return Vec::new();
    }
    let me = copies.table().replica();
    let of_topic = |topic: &'a walrus_metadata::Topic| {
        let (retention, is_compacted) = (topic.config.retention(), topic.config.compaction().is_some());
        topic.partitions.iter().filter_map(move |partition| {
            let open = partition.segments.last()?;
            let is_mine = open.descriptor.replicas.contains(&me) && !open.begun.contains(&me);
            let may = partition.has_deleted() || !retention.is_for_ever();
            let goes = || may && verdict(metadata, topic, partition).kept == Kept::Successor;
            let is_followed = partition.segments.len() > 1;
            (is_mine && ((is_compacted && is_followed) || goes())).then_some(open)
        })
    };
    metadata.topics.values().flat_map(|topic| of_topic(topic)).collect()
}

async fn begin(copies: &Arc<Copies>, segment: &Segment) -> Result<SegmentPlace> {
    let descriptor = &segment.descriptor;
    copies.table().open(descriptor)?;
    copies.open_log(descriptor).await?;
    let (topic, partition, segment) = (descriptor.topic, descriptor.partition, descriptor.id);
    Ok(SegmentPlace { topic, partition, segment })
}
