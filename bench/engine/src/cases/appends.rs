//! Appends: alone, side by side, in batches, synced or not.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use walrus_bench_sample::{Durability, Latencies, Payload, Sample, Writer, burst, closed_loop};
use walrus_log::{Offset, Retention};

use super::{BATCH_RECORDS, duration, finish, mb_per_second, numbered, open, refuse_peers, side_by_side};
use crate::Arguments;
use crate::systems::walrus::{LogWriter, WalrusLog, read_from};

const CALLERS_MAX: usize = 8;
const LOGS_MAX: usize = 1_000_000;

const BURST_RECORDS_PER_SECOND: f64 = 300_000.0; // at the usual 3 s: a burst of 0.9 GB
/// Bytes of memory that are touched before a burst, at least: less leaves cold memory among what the page cache takes.
const WARM_BYTES: u64 = 3_000_000_000;
const SUSTAINED_KEPT_BYTES: u64 = 2_000_000_000;

/// As many threads as topics; each waits until its record is durable before it appends the next.
pub(super) fn durable_callers(arguments: &Arguments, callers: usize) -> Result<Sample> {
    let system = open(arguments, Durability::Each, callers)?;
    let start = Barrier::new(callers);
    let one = &|(topic, mut writer): (usize, Box<dyn Writer>)| -> Result<(Latencies, u64)> {
        let mut payload = Payload::new(arguments.record_bytes);
        let mut records = 0;
        start.wait();
        let latencies = closed_loop(duration(arguments), |number| {
            records = number + 1;
            writer.append(payload.record(numbered(topic, number)))
        })?;
        Ok((latencies, records))
    };
    let writers = system.writers()?;
    let answers = side_by_side(writers.into_iter().enumerate().map(|caller| move || one(caller)))?;
    let (latencies, records): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let latencies = Latencies::of_all(latencies);
    let sample = Sample::new(latencies.per_second(), "records/s").with_latencies(&latencies);
    finish(sample, system, &Payload::new(arguments.record_bytes), &records, records.iter().sum())
}

/// Logs that have been written before: what making them costs is not counted.
pub(super) fn durable_logs(arguments: &Arguments) -> Result<Sample> {
    refuse_peers(arguments)?;
    let Arguments { logs, record_bytes, .. } = *arguments;
    ensure!((1..=LOGS_MAX).contains(&logs), "--logs must be 1 to {LOGS_MAX}, got {logs}");
    let walrus = WalrusLog::open(&arguments.dir, &arguments.backend, Durability::Each, 0)?.of_topics(logs);
    let callers = logs.min(CALLERS_MAX);
    let start = Barrier::new(callers);
    let one = &|caller: usize| -> Result<(Latencies, Vec<(usize, u64)>)> {
        let mut payload = Payload::new(record_bytes);
        let mut own = (caller..logs)
            .step_by(callers)
            .map(|topic| Ok((topic, walrus.writer(topic)?, 0)))
            .collect::<Result<Vec<(usize, LogWriter, u64)>>>()?;
        let mut append = |place: usize| {
            let (topic, writer, records) = &mut own[place];
            writer.append(payload.record(numbered(*topic, *records)))?;
            *records += 1;
            Ok(())
        };
        let places = (logs - caller).div_ceil(callers);
        (0..places).try_for_each(&mut append)?;
        start.wait();
        let latencies = closed_loop(duration(arguments), |number| append(usize::try_from(number)? % places))?;
        Ok((latencies, own.into_iter().map(|(topic, _, records)| (topic, records)).collect()))
    };
    let answers = side_by_side((0..callers).map(|caller| move || one(caller)))?;
    let (latencies, counts): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let latencies = Latencies::of_all(latencies);
    let mut records = vec![0; logs];
    for (topic, count) in counts.into_iter().flatten() {
        records[topic] = count;
    }
    let sample = Sample::new(latencies.per_second(), "records/s").with_latencies(&latencies);
    finish(sample, Box::new(walrus), &Payload::new(record_bytes), &records, records.iter().sum())
}

pub(super) fn durable_batches(arguments: &Arguments) -> Result<Sample> {
    let system = open(arguments, Durability::Each, 1)?;
    let mut writer = only_writer(system.writers()?)?;
    let mut payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
    let mut records = 0;
    let latencies = closed_loop(duration(arguments), |number| {
        let first = number * BATCH_RECORDS as u64;
        records = first + BATCH_RECORDS as u64;
        writer.append_batch(&payload.batch(first))
    })?;
    let batch_bytes = BATCH_RECORDS * arguments.record_bytes;
    #[expect(clippy::cast_precision_loss, reason = "a batch is a few megabytes")]
    let rate = latencies.per_second() * batch_bytes as f64 / 1e6;
    drop(writer);
    finish(
        Sample::new(rate, "MB/s").with_latencies(&latencies),
        system,
        &payload,
        &[records],
        records / BATCH_RECORDS as u64,
    )
}

pub(super) fn nosync_burst(arguments: &Arguments) -> Result<Sample> {
    let system = open(arguments, Durability::Never, 1)?;
    let mut writer = only_writer(system.writers()?)?;
    let mut payload = Payload::new(arguments.record_bytes);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds were checked")]
    let counted = (arguments.seconds * BURST_RECORDS_PER_SECOND).max(1.0) as u64;
    let mut append = |writer: &mut Box<dyn Writer>, numbers| {
        burst(numbers, |number| writer.append(payload.record(number)))
    };
    // What is measured is a burst into memory that the engine has had before: its first one is not counted. One with mapped
    // tails gets its memory from the page cache, which must have had it before.
    append(&mut writer, 0..counted)?;
    writer.drain();
    if !arguments.quick {
        warm_memory(&arguments.dir, WARM_BYTES.max(3 * counted * arguments.record_bytes as u64))?;
    }
    let burst = append(&mut writer, counted..2 * counted)?;
    drop(writer);
    let sample = Sample::new(burst.nanos_per_call(), "ns/record").with_latencies(&burst.latencies);
    finish(sample, system, &payload, &[2 * counted], 2 * counted)
}

/// More than memory would take: what the disk takes is the limit. What the log still keeps at the end is read back.
pub(super) fn nosync_sustained(arguments: &Arguments) -> Result<Sample> {
    refuse_peers(arguments)?;
    let walrus = WalrusLog::open(&arguments.dir, &arguments.backend, Durability::Never, 1)?;
    let mut writer = walrus.writer(0)?;
    writer.log.set_retention(Retention { bytes: Some(SUSTAINED_KEPT_BYTES), ..Retention::default() });
    let mut payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
    let batches = arguments.bytes.div_ceil((BATCH_RECORDS * arguments.record_bytes) as u64);
    let mut nanos = Vec::new();
    let start = Instant::now();
    for batch in 0..batches {
        let before = Instant::now();
        writer.append_batch(&payload.batch(batch * BATCH_RECORDS as u64))?;
        nanos.push(u64::try_from(before.elapsed().as_nanos())?);
    }
    let elapsed = start.elapsed();
    let records = batches * BATCH_RECORDS as u64;
    let rate = mb_per_second(records * arguments.record_bytes as u64, elapsed);
    let mut sample = Sample::new(rate, "MB/s").with_latencies(&Latencies::new(nanos, elapsed));
    for (fact, value) in walrus_bench_sample::System::facts(&walrus)? {
        sample = sample.with(fact, value);
    }

    // What is read must stay.
    writer.log.set_retention(Retention::default());
    walrus.store().drain();
    let mut next = writer.log.start_offset();
    let first = next.0;
    read_from(&writer.log, &mut next, &mut |number, record| {
        ensure!(payload.is_record(number, record), "record {number} read back differs from what was written");
        Ok(())
    })?;
    ensure!(next == Offset(records), "{records} records were acknowledged and {} read back", next.0);
    Ok(sample.with("records_checked", records - first))
}

fn only_writer(writers: Vec<Box<dyn Writer>>) -> Result<Box<dyn Writer>> {
    writers.into_iter().next().context("a system of one topic without a writer")
}

/// Writes a file of so many bytes and removes it before it comes to the disk. A virtual machine pays microseconds for each
/// page that its host has not backed yet: whoever ran first would be measured with that. The page cache gives its memory
/// to the next file in pieces as large as those that it was taken in.
fn warm_memory(directory: &Path, bytes: u64) -> Result<()> {
    let path = directory.join("warm.tmp");
    let mut file = File::create(&path)?;
    let piece = vec![1_u8; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&piece)?;
    }
    std::fs::remove_file(&path)?;
    Ok(())
}
