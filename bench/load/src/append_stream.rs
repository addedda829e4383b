//! Idempotent producers, one as a rule, whose ready batches one stream carries; so many of them are kept in flight.

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
use crate::log_service::{check_records, connect, connect_to_leader, create_topic, segments};

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

/// Appends one record at a time and looks for how long nothing was acknowledged where one segment ended and the next one
/// began: ms (p99, each of them an observation).
pub(crate) async fn roll_pauses(arguments: &Arguments) -> Result<Sample> {
    ensure!(
        arguments.batch_records == 1 && arguments.in_flight == 1,
        "pauses are seen with --batch-records 1 and --in-flight 1"
    );
    let mut log = connect(arguments.grpc).await?;
    let run = stream(&mut log, arguments, Until::Elapsed(arguments.duration())).await?;
    let is_record = |number, value: &[u8]| run.payload.is_record(number, value);
    check_records(&mut log, &arguments.topic, run.acknowledged, is_record).await?;
    let bases: Vec<u64> =
        segments(&mut log, &arguments.topic).await?.iter().map(|segment| segment.base_offset).collect();
    let pauses = pauses_at(&bases, &run.acks);
    ensure!(!pauses.is_empty(), "no segment ended within {} s", arguments.seconds);
    let rolls = pauses.len();
    let nanos = pauses.iter().map(|pause| u64::try_from(pause.as_nanos())).collect::<Result<_, _>>()?;
    let latencies = Latencies::new(nanos, arguments.duration());
    Ok(Sample::new(latencies.quantile_us(990) / 1e3, "ms")
        .with("rolls", rolls)
        .with("records_checked", run.acknowledged)
        .with_observations(pauses.iter().map(|pause| pause.as_secs_f64() * 1e3).collect()))
}

/// From the last acknowledgement before each base to the first one of a record behind it. A topic's first segment and one
/// that nobody wrote to follow nothing.
fn pauses_at(bases: &[u64], acks: &[(u64, Instant)]) -> Vec<Duration> {
    let pause = |base: &u64| {
        let next = acks.partition_point(|(end, _)| end <= base);
        let (before, after) = (acks.get(next.checked_sub(1)?)?, acks.get(next)?);
        Some(after.1 - before.1)
    };
    bases.iter().filter_map(pause).collect()
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
    latencies: Latencies,      // one for each batch
    acknowledged: u64,         // records, warm-up included
    acks: Vec<(u64, Instant)>, // the end of each batch, and when it was acknowledged
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
    if !arguments.topic_exists {
        create_topic(log, &arguments.topic).await?;
    }
    let mut log = connect_to_leader(log, &arguments.topic).await?;
    let mut producer =
        Producer::new(arguments, log.init_producer(InitProducerRequest {}).await?.into_inner())?;

    let (requests, outgoing) = mpsc::channel(arguments.in_flight);
    // the first batch is under way before the answer stream is asked for: a server may answer only then
    let first = producer.next_batch()?;
    let mut in_flight = VecDeque::from([Instant::now()]);
    requests.send(first).await?;
    let mut answers = log.append_stream(ReceiverStream::new(outgoing)).await?.into_inner();

    let start = Instant::now();
    let (counted_from, counted_to) = match until {
        Until::Elapsed(duration) => (start + duration / 10, Some(start + duration / 10 + duration)),
        Until::Sent(_) => (start, None),
    };
    let mut nanos = Vec::new();
    let (mut acknowledged, mut acks) = (0, Vec::new());
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
            let batch = producer.next_batch()?;
            in_flight.push_back(Instant::now()); // what is timed is the broker, not the making of a batch
            requests.send(batch).await.context("the broker closed the stream")?;
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
        acks.push((acknowledged, now));
        if counted_from <= now && counted_to.is_none_or(|end| now < end) {
            nanos.push(u64::try_from((now - sent).as_nanos())?);
            last_counted = now;
        }
    }
    let latencies = Latencies::new(nanos, last_counted - counted_from);
    Ok(Run { latencies, acknowledged, acks, payload: producer.payload })
}

/// Builds batches: records count up, and so do the sequences of each of the producers, which take turns.
struct Producer {
    topic: String,
    first_id: i64,
    producers: u64,
    epoch: i16,
    payload: Payload,
    builder: BatchBuilder,
    batch_records: usize,
    keys: Option<u64>,
    next_record: u64,
    timestamp_ms: i64,
}

impl Producer {
    fn new(arguments: &Arguments, id: InitProducerResponse) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Ok(Self {
            topic: arguments.topic.clone(),
            first_id: id.producer_id,
            producers: arguments.producers,
            epoch: i16::try_from(id.producer_epoch)?,
            payload: Payload::with_pool(arguments.record_bytes, arguments.batch_records),
            builder: BatchBuilder::new(),
            batch_records: arguments.batch_records,
            keys: arguments.keys,
            next_record: 0,
            timestamp_ms: i64::try_from(now.as_millis())?,
        })
    }

    fn next_batch(&mut self) -> Result<AppendRequest> {
        let number = self.next_record / self.batch_records as u64;
        // The broker knows producers by whatever id they have; ids are drawn from 62 bits, and these follow the one that it drew.
        let id = (self.first_id + i64::try_from(number % self.producers)?) & (i64::MAX >> 1);
        let sent = number / self.producers * self.batch_records as u64;
        let base_sequence = i32::try_from(sent % (1 << 31))?;
        self.builder.producer(ProducerRef { id, epoch: self.epoch, base_sequence });
        for (number, record) in (self.next_record..).zip(self.payload.batch(self.next_record)) {
            let key = self.keys.map(|keys| (number % keys).to_be_bytes());
            self.builder.push(key.as_ref().map(|key| &key[..]), Some(record), self.timestamp_ms, &[]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lies_between_the_last_record_of_a_segment_and_the_first_of_the_next() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let acks: Vec<_> = [1, 2, 7, 8, 30].iter().zip(1..).map(|(at, end)| (end, start + ms(*at))).collect();
        assert_eq!(pauses_at(&[0, 2, 4], &acks), [ms(5), ms(22)]);
        assert_eq!(pauses_at(&[0, 5], &acks), [], "nobody wrote to the last one");
    }
}
