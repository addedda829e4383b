//! Idempotent producers, each with a connection of its own and so many requests under way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Buf as _;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::InitProducerIdRequest;
use walrus_bench_sample::{Latencies, Sample};

use crate::Arguments;
use crate::connection::{Connection, put_header, put_text, skip_text};
use crate::ready::Ready;
use crate::topic;

const API: i16 = 0;
/// The last version without tagged fields.
const VERSION: i16 = 8;
const ALL: i16 = -1;
const TIMEOUT_MS: i32 = 30_000;
/// For a producer's id.
const ID_PATIENCE: Duration = Duration::from_secs(30);
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// This part of the time only warms up, and is not counted.
const WARM_UP_SHARE: f64 = 0.1;

/// What producers sent, all of which was acknowledged.
pub(crate) struct Run {
    pub(crate) ready: Ready,
    /// The id of each producer, and how many batches it sent.
    pub(crate) sent: Vec<(i64, u64)>,
    latencies: Latencies,
}

impl Run {
    #[expect(clippy::cast_precision_loss, reason = "records in a batch")]
    /// The sample of it, in records a second.
    pub(crate) fn sample(&self, arguments: &Arguments) -> Sample {
        let records_per_second = self.latencies.per_second() * arguments.batch_records as f64;
        let batches: u64 = self.sent.iter().map(|(_, batches)| batches).sum();
        Sample::new(records_per_second, "records/s")
            .with_latencies(&self.latencies)
            .with("producers", arguments.producers)
            .with("in_flight", arguments.in_flight)
            .with("batch_records", arguments.batch_records)
            .with("batch_bytes", self.ready.batch_bytes())
            .with("records_checked", batches * arguments.batch_records as u64)
    }
}

/// Until when producers send.
#[derive(Clone, Copy)]
enum Until {
    Elapsed { counted_from: Instant, counted_to: Instant },
    Sent(u64),
}

fn ready(arguments: &Arguments) -> Result<Ready> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now_ms = i64::try_from(now.as_millis())?;
    Ready::new(arguments.codec, arguments.batch_records, arguments.record_bytes, now_ms)
}

/// Lets all producers send for the duration of the sample.
pub(crate) fn produce(arguments: &Arguments, leader: SocketAddr) -> Result<Run> {
    let ready = ready(arguments)?;
    let counted_from = Instant::now() + arguments.duration().mul_f64(WARM_UP_SHARE);
    let until = Until::Elapsed { counted_from, counted_to: counted_from + arguments.duration() };
    let ended: Result<Vec<_>> = thread::scope(|scope| {
        let producers: Vec<_> = (0..arguments.producers)
            .map(|_| {
                let ready = ready.clone();
                scope.spawn(move || {
                    Producer::connect(arguments, leader, ready)?.run(arguments.in_flight, until)
                })
            })
            .collect();
        let ended = producers.into_iter().map(|producer| producer.join());
        ended.map(|ended| ended.map_err(|_| anyhow::anyhow!("a producer panicked"))?).collect()
    });
    let (sent, nanos): (Vec<_>, Vec<_>) = ended?.into_iter().unzip();
    let latencies = Latencies::new(nanos.concat(), arguments.duration());
    Ok(Run { ready, sent, latencies })
}

/// Sends so many batches by one producer.
pub(crate) fn fill(arguments: &Arguments, leader: SocketAddr, batches: u64) -> Result<Run> {
    let ready = ready(arguments)?;
    let producer = Producer::connect(arguments, leader, ready.clone())?;
    let (sent, nanos) = producer.run(arguments.in_flight, Until::Sent(batches))?;
    Ok(Run { ready, sent: vec![sent], latencies: Latencies::new(nanos, Duration::ZERO) })
}

/// The frame of a Produce request, but for its batch.
pub(crate) fn put_request(
    head: &mut Vec<u8>,
    correlation: i32,
    topic: &str,
    batch_bytes: usize,
) -> Result<()> {
    head.clear();
    put_header(head, API, VERSION, correlation);
    head.extend_from_slice(&(-1_i16).to_be_bytes()); // no transaction
    head.extend_from_slice(&ALL.to_be_bytes());
    head.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
    head.extend_from_slice(&1_i32.to_be_bytes());
    put_text(head, topic);
    head.extend_from_slice(&1_i32.to_be_bytes());
    head.extend_from_slice(&0_i32.to_be_bytes());
    head.extend_from_slice(&i32::try_from(batch_bytes)?.to_be_bytes());
    Ok(())
}

/// Checks the answer to a Produce request of one batch.
pub(crate) fn check_answer(mut answer: &[u8]) -> Result<()> {
    answer.try_get_i32()?; // correlation
    ensure!(answer.try_get_i32()? == 1, "an answer of one topic was expected");
    skip_text(&mut answer)?;
    ensure!(answer.try_get_i32()? == 1, "an answer of one partition was expected");
    answer.try_get_i32()?;
    topic::check(answer.try_get_i16()?, "an append failed")
}

/// The id and the epoch of a new idempotent producer. A broker of Apache Kafka that just started has none yet.
pub(crate) fn producer_id(connection: &mut Connection) -> Result<(i64, i16)> {
    let until = Instant::now() + ID_PATIENCE;
    loop {
        let id = connection.ask(1, &InitProducerIdRequest::default().with_transactional_id(None))?;
        if id.error_code != ResponseError::CoordinatorLoadInProgress.code() || Instant::now() > until {
            topic::check(id.error_code, "there is no producer id")?;
            return Ok((id.producer_id.0, id.producer_epoch));
        }
        thread::sleep(TRY_AGAIN);
    }
}

struct Producer {
    connection: Connection,
    id: (i64, i16),
    topic: String,
    ready: Ready,
    head: Vec<u8>,
}

impl Producer {
    fn connect(arguments: &Arguments, leader: SocketAddr, ready: Ready) -> Result<Self> {
        let mut connection = Connection::to(leader)?;
        let id = producer_id(&mut connection)?;
        Ok(Self { connection, id, topic: arguments.topic.clone(), ready, head: Vec::new() })
    }

    /// Sends until it is time to end, and waits for what is under way. Returns who sent how many batches, and what each of the
    /// counted ones took.
    fn run(mut self, in_flight_max: usize, until: Until) -> Result<((i64, u64), Vec<u64>)> {
        let mut in_flight = VecDeque::with_capacity(in_flight_max);
        let (mut sent, mut nanos) = (0, Vec::new());
        loop {
            while in_flight.len() < in_flight_max && goes_on(until, sent) {
                in_flight.push_back(Instant::now());
                self.send(sent)?;
                sent += 1;
            }
            let Some(began) = in_flight.pop_front() else { break };
            check_answer(self.connection.receive()?)?;
            let now = Instant::now();
            if is_counted(until, now) {
                nanos.push(u64::try_from((now - began).as_nanos())?);
            }
        }
        Ok(((self.id.0, sent), nanos))
    }

    fn send(&mut self, number: u64) -> Result<()> {
        let batch = self.ready.batch(self.id, number);
        put_request(&mut self.head, self.connection.next_correlation(), &self.topic, batch.len())?;
        self.connection.send(&self.head, batch)
    }
}

fn goes_on(until: Until, sent: u64) -> bool {
    match until {
        Until::Elapsed { counted_to, .. } => Instant::now() < counted_to,
        Until::Sent(batches) => sent < batches,
    }
}

fn is_counted(until: Until, now: Instant) -> bool {
    match until {
        Until::Elapsed { counted_from, counted_to } => counted_from <= now && now < counted_to,
        Until::Sent(_) => false,
    }
}
