//! Single records, so many each second, sent as they are due: from then until a reader has them.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use walrus_bench_sample::{Latencies, Sample};
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};

use crate::Arguments;
use crate::connection::Connection;
use crate::producer::{check_answer, producer_id, put_request};
use crate::reader::Reader;
use crate::topic;

/// This part of the records only warms up, and is not counted.
const WARM_UP_SHARE: f64 = 0.2;
const NUMBER_BYTES: usize = 8;
/// How late the kernel may wake the sender. The usual 50 us would be counted as the broker's.
const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::MIN;
/// What a client of Java puts into one batch at most.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// When each record is due.
#[derive(Clone, Copy)]
struct Schedule {
    began: Instant,
    every: Duration,
    records: u32,
}

impl Schedule {
    fn due(&self, number: u32) -> Instant {
        self.began + self.every * number
    }
}

pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    let leader = topic::create(arguments, 1)?;
    let every = Duration::from_secs(1) / arguments.rate.max(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds of a sample are few"
    )]
    let records = (arguments.seconds * f64::from(arguments.rate)) as u32;
    ensure!(records > 0, "no record is due within {} s", arguments.seconds);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the records")]
    let warm_up = (f64::from(records) * WARM_UP_SHARE) as usize;
    let schedule = Schedule { began: Instant::now() + Duration::from_millis(100), every, records };
    let (sent, nanos) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(arguments, leader, schedule));
        let sent = send(arguments, leader, schedule);
        (sent, reader.join())
    });
    let requests = sent?;
    let nanos = nanos.map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    topic::delete(arguments)?;
    let nanos = &nanos[warm_up..];
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a sample are far below 2^52")]
    let observations = nanos.iter().map(|nanos| *nanos as f64 / 1e3).collect();
    let latencies = Latencies::new(nanos.to_vec(), arguments.duration());
    Ok(Sample::new(latencies.quantile_us(500), "us")
        .with_latencies(&latencies)
        .with("records_a_request", f64::from(records) / f64::from(requests))
        .with("records_checked", records)
        .with_observations(observations))
}

/// Requests that have no answer yet.
struct Window {
    in_flight: Mutex<usize>,
    answered: Condvar,
}

/// Sends each record when it is due, and those that became due meanwhile together where all requests are under way, as clients
/// without a linger do. Returns how many requests that took.
fn send(arguments: &Arguments, leader: SocketAddr, schedule: Schedule) -> Result<u32> {
    rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS))?;
    let mut connection = Connection::to(leader)?;
    let (id, epoch) = producer_id(&mut connection)?;
    let mut answers = connection.reading_half()?;
    let window = Window { in_flight: Mutex::new(0), answered: Condvar::new() };
    let mut value = vec![b'x'; arguments.record_bytes.max(NUMBER_BYTES)];
    let (mut builder, mut batch, mut head) = (BatchBuilder::new(), Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| take_answers(&mut answers, &window));
        let (mut number, mut requests) = (0, 0);
        while number < schedule.records {
            thread::sleep(schedule.due(number).saturating_duration_since(Instant::now()));
            {
                let mut in_flight = window.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
                while *in_flight >= arguments.in_flight {
                    in_flight = window.answered.wait(in_flight).unwrap_or_else(PoisonError::into_inner);
                }
                *in_flight += 1;
            }
            builder.producer(ProducerRef { id, epoch, base_sequence: number.cast_signed() });
            let now = Instant::now();
            let room = (BATCH_BYTES_MAX / value.len()).max(1);
            for _ in 0..room {
                if number == schedule.records || schedule.due(number) > now {
                    break;
                }
                value[..NUMBER_BYTES].copy_from_slice(&u64::from(number).to_be_bytes());
                builder.push(None, Some(&value), 1, &[]);
                number += 1;
            }
            batch.clear();
            builder.build(&mut batch)?;
            put_request(&mut head, connection.next_correlation(), &arguments.topic, batch.len())?;
            connection.send(&head, &batch)?;
            requests += 1;
        }
        let mut in_flight = window.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        while *in_flight > 0 {
            in_flight = window.answered.wait(in_flight).unwrap_or_else(PoisonError::into_inner);
        }
        drop(in_flight);
        connection.close()?; // which ends the thread that takes answers
        Ok(requests)
    })
}

/// Takes answers until the connection ends. A refused append ends the program: there is nothing left to measure.
fn take_answers(answers: &mut Connection, window: &Window) {
    while let Ok(answer) = answers.receive() {
        if let Err(error) = check_answer(answer) {
            eprintln!("{error:#}");
            std::process::exit(1);
        }
        *window.in_flight.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        window.answered.notify_one();
    }
}

/// Reads all records, and returns how long each took from when it was due, in their order.
fn read(arguments: &Arguments, leader: SocketAddr, schedule: Schedule) -> Result<Vec<u64>> {
    let mut reader = Reader::connect(&arguments.topic, leader, arguments.fetch_bytes)?;
    let mut nanos = Vec::with_capacity(schedule.records as usize);
    let mut next = 0;
    while nanos.len() < schedule.records as usize {
        reader.next = next;
        let mut records = reader.fetch()?;
        let now = Instant::now();
        while let Ok((batch, rest)) = Batch::parse(records) {
            for record in batch.records() {
                let record = record?;
                let value = record.value.and_then(|value| value.first_chunk::<NUMBER_BYTES>());
                let number = u64::from_be_bytes(*value.context("a record without its number")?);
                ensure!(number == nanos.len() as u64, "record {number} behind {} others", nanos.len());
                let took = now.saturating_duration_since(schedule.due(u32::try_from(number)?));
                nanos.push(u64::try_from(took.as_nanos())?);
            }
            next = batch.end_offset().try_into()?;
            records = rest;
        }
    }
    Ok(nanos)
}
