//! The generated client of the Log service, and the reading back that every case ends with.

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)] // generated
pub(crate) mod v1 {
    tonic::include_proto!("walrus.v1");
}

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tonic::Code;
use tonic::transport::Channel;
use v1::log_client::LogClient;
use v1::{CreateTopicRequest, Format, ListSegmentsRequest, ReadRequest, Segment};
use walrus_log::batch::Batch;

const MESSAGE_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: u32 = 4 << 20;
/// For a leader to know that it is one.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) async fn connect(address: SocketAddr) -> Result<LogClient<Channel>> {
    let client = LogClient::connect(format!("http://{address}"))
        .await
        .with_context(|| format!("no gRPC listener at {address}"))?;
    Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX))
}

/// Makes a topic of one partition; one that is there already holds records of somebody else.
pub(crate) async fn create_topic(log: &mut LogClient<Channel>, topic: &str) -> Result<()> {
    let request = CreateTopicRequest { topic: topic.to_owned(), partitions: 1, ..Default::default() };
    let created = log.create_topic(request).await.context("cannot create the topic")?.into_inner().created;
    ensure!(created, "topic {topic} was there before");
    Ok(())
}

/// The segments of a topic of one partition, in order.
pub(crate) async fn segments(log: &mut LogClient<Channel>, topic: &str) -> Result<Vec<Segment>> {
    let request = ListSegmentsRequest { topic: topic.to_owned() };
    let until = Instant::now() + SETTLE_PATIENCE;
    let listed = loop {
        match log.list_segments(request.clone()).await {
            // A leader that has just been named may not know it yet.
            Err(status) if status.code() == Code::Unavailable && Instant::now() < until => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            listed => break listed.context("cannot list the segments")?.into_inner(),
        }
    };
    let partition = listed.partitions.into_iter().next().context("a topic without partitions")?;
    Ok(partition.segments)
}

/// A connection to the broker that orders the appends to a topic now.
pub(crate) async fn connect_to_leader(
    log: &mut LogClient<Channel>,
    topic: &str,
) -> Result<LogClient<Channel>> {
    let open = segments(log, topic).await?.pop().context("a topic without segments")?;
    let leader = open.leader.context("the open segment has no leader")?;
    connect(leader.grpc_address.parse().context("the leader's address")?).await
}

/// Reads the topic from its start to its high watermark and checks that it holds `records` records, each of which
/// `is_record` knows by its number.
pub(crate) async fn check_records(
    log: &mut LogClient<Channel>,
    topic: &str,
    records: u64,
    is_record: impl Fn(u64, &[u8]) -> bool,
) -> Result<()> {
    let request = ReadRequest {
        topic: topic.to_owned(),
        bytes_max: READ_BYTES,
        format: Format::Batches.into(),
        ..ReadRequest::default()
    };
    let mut answers = log.read(request).await.context("cannot read back")?.into_inner();
    let mut found = 0;
    while let Some(answer) = answers.message().await.context("reading back broke off")? {
        let mut rest = answer.batches.as_ref();
        while !rest.is_empty() {
            let (batch, behind) = Batch::parse(rest)?;
            for record in batch.records() {
                let record = record?;
                let value = record.value.context("a record without a value")?;
                ensure!(record.offset == found, "expected offset {found}, read offset {}", record.offset);
                ensure!(is_record(found, value), "record {found} read back differs from what was written");
                found += 1;
            }
            rest = behind;
        }
    }
    ensure!(found == records, "{records} records were acknowledged and {found} read back");
    Ok(())
}
