//! One idempotent producer that streams ready batches and keeps so many of them in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use walrus_bench_sample::{Latencies, Payload, Sample};
use walrus_log::batch::{BatchBuilder, ProducerRef};

use crate::Arguments;
use crate::log_service::v1::append_request;
use crate::log_service::v1::log_client::LogClient;
use crate::log_service::v1::{AppendRequest, InitProducerRequest, InitProducerResponse};
use crate::log_service::{check_records, connect, create_topic};

/// For how long batches are sent.
#[derive(Clone, Copy)]
enum Until {
    /// For a duration, after a warm-up of a tenth of it that is not counted.
    Elapsed(Duration),
    /// Until so many records are sent.
    Sent(u64),
}

/// Appends for the duration of the sample, then reads everything back and compares it.
pub(crate) async fn measure(arguments: &Arguments) -> Result<Sample> {
    let mut log = connect(arguments.grpc).await?;
    let run = stream(&mut log, arguments, Until::Elapsed(arguments.duration())).await?;
    let is_record = |number, value: &[u8]| run.payload.is_record(number, value);
    check_records(&mut log, &arguments.topic, run.acknowledged, is_record).await?;
    Ok(run.sample(arguments).with("records_checked", run.acknowledged))
}

/// Appends `--records` records, in whole batches.
pub(crate) async fn fill(arguments: &Arguments) -> Result<Sample> {
    let records = arguments.records.context("fill needs --records")?;
    let mut log = connect(arguments.grpc).await?;
    let run = stream(&mut log, arguments, Until::Sent(records)).await?;
    Ok(run.sample(arguments).with("records", run.acknowledged))
}

/// What one stream gave.
struct Run {
    latencies: Latencies, // of batches
    acknowledged: u64,    // records, warm-up included
    payload: Payload,
}

impl Run {
    #[expect(clippy::cast_precision_loss, reason = "records in a batch")]
    fn sample(&self, arguments: &Arguments) -> Sample {
        let records_per_second = self.latencies.per_second() * arguments.batch_records as f64;
        Sample::new(records_per_second, "records/s")
            .with_latencies(&self.latencies)
            .with("batch_records", arguments.batch_records)
            .with("in_flight", arguments.in_flight)
    }
}

async fn stream(log: &mut LogClient<Channel>, arguments: &Arguments, until: Until) -> Result<Run> {
    create_topic(log, &arguments.topic).await?;
    let mut producer =
        Producer::new(arguments, log.init_producer(InitProducerRequest {}).await?.into_inner())?;

    let (requests, outgoing) = mpsc::channel(arguments.in_flight);
    // the first batch is under way before the answer stream is asked for: a server may answer only then
    let mut in_flight = VecDeque::from([Instant::now()]);
    requests.send(producer.next_batch()?).await?;
    let mut answers = log.append_stream(ReceiverStream::new(outgoing)).await?.into_inner();

    let start = Instant::now();
    let (counted_from, counted_to) = match until {
        Until::Elapsed(duration) => (start + duration / 10, Some(start + duration / 10 + duration)),
        Until::Sent(_) => (start, None),
    };
    let mut nanos = Vec::new();
    let mut acknowledged = 0;
    let mut last_counted = counted_from;
    loop {
        while in_flight.len() < arguments.in_flight {
            let goes_on = match until {
                Until::Elapsed(_) => counted_to.is_some_and(|end| Instant::now() < end),
                Until::Sent(records) => producer.next_record < records,
            };
            if !goes_on {
                break;
            }
            in_flight.push_back(Instant::now());
            requests.send(producer.next_batch()?).await.context("the broker closed the stream")?;
        }
        let Some(sent) = in_flight.pop_front() else { break };
        let answer = answers.message().await?.context("the broker ended the stream")?;
        if let Some(error) = answer.error {
            bail!("append failed: {}: {}", error.reason, error.message);
        }
        ensure!(
            answer.base_offset == acknowledged && !answer.duplicate,
            "expected offset {acknowledged}, answered {} (duplicate: {})",
            answer.base_offset,
            answer.duplicate
        );
        acknowledged = answer.end_offset;
        let now = Instant::now();
        if counted_from <= now && counted_to.is_none_or(|end| now < end) {
            nanos.push(u64::try_from((now - sent).as_nanos())?);
            last_counted = now;
        }
    }
    let latencies = Latencies::new(nanos, last_counted - counted_from);
    Ok(Run { latencies, acknowledged, payload: producer.payload })
}

/// Builds the batches of one producer: records count up, and so do its sequences.
struct Producer {
    topic: String,
    id: i64,
    epoch: i16,
    payload: Payload,
    builder: BatchBuilder,
    batch_records: usize,
    next_record: u64,
    timestamp_ms: i64,
}

impl Producer {
    fn new(arguments: &Arguments, id: InitProducerResponse) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Ok(Self {
            topic: arguments.topic.clone(),
            id: id.producer_id,
            epoch: i16::try_from(id.producer_epoch)?,
            payload: Payload::with_pool(arguments.record_bytes, arguments.batch_records),
            builder: BatchBuilder::new(),
            batch_records: arguments.batch_records,
            next_record: 0,
            timestamp_ms: i64::try_from(now.as_millis())?,
        })
    }

    fn next_batch(&mut self) -> Result<AppendRequest> {
        let base_sequence = i32::try_from(self.next_record % (1 << 31))?;
        self.builder.producer(ProducerRef { id: self.id, epoch: self.epoch, base_sequence });
        for record in self.payload.batch(self.next_record) {
            self.builder.push(None, Some(record), self.timestamp_ms, &[]);
        }
        self.next_record += self.batch_records as u64;
        let mut batch = Vec::with_capacity(self.builder.size_bytes());
        self.builder.build(&mut batch)?;
        Ok(AppendRequest {
            topic: self.topic.clone(),
            payload: Some(append_request::Payload::Batch(batch.into())),
            ..AppendRequest::default()
        })
    }
}
