//! The cases: how a system is driven, and what of it is the figure.

use std::time::Duration;

use anyhow::{Result, ensure};
use walrus_bench_sample::{Payload, Sample, burst, closed_loop};

use crate::Arguments;
use crate::systems::{self, Durability, System};

const BATCH_RECORDS: usize = 2000;
const BURST_RECORDS_PER_SECOND: f64 = 350_000.0; // at the usual 3 s: a burst of 1 GiB

pub(crate) fn durable_1_caller(arguments: &Arguments) -> Result<Sample> {
    let mut system = open(arguments, Durability::Each)?;
    let mut payload = Payload::new(arguments.record_bytes);
    let mut records = 0;
    let latencies = closed_loop(duration(arguments), |number| {
        records = number + 1;
        system.append(payload.record(number))
    })?;
    let sample = Sample::new(latencies.per_second(), "records/s").with_latencies(&latencies);
    finish(sample, system, &payload, records)
}

pub(crate) fn nosync_1_caller(arguments: &Arguments) -> Result<Sample> {
    let mut system = open(arguments, Durability::Never)?;
    let mut payload = Payload::new(arguments.record_bytes);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds were checked")]
    let counted = (arguments.seconds * BURST_RECORDS_PER_SECOND).max(1.0) as u64;
    warm_memory(usize::try_from(counted)? * arguments.record_bytes * 3 / 2);
    let mut records = 0;
    let burst = burst(counted, |number| {
        records = number + 1;
        system.append(payload.record(number))
    })?;
    let sample = Sample::new(burst.nanos_per_call(), "ns/record").with_latencies(&burst.latencies);
    finish(sample, system, &payload, records)
}

pub(crate) fn durable_batch_2000(arguments: &Arguments) -> Result<Sample> {
    let mut system = open(arguments, Durability::Each)?;
    let mut payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
    let mut records = 0;
    let latencies = closed_loop(duration(arguments), |number| {
        let first = number * BATCH_RECORDS as u64;
        records = first + BATCH_RECORDS as u64;
        system.append_batch(&payload.batch(first))
    })?;
    let batch_bytes = BATCH_RECORDS * arguments.record_bytes;
    #[expect(clippy::cast_precision_loss, reason = "a batch is a few megabytes")]
    let mb_per_second = latencies.per_second() * batch_bytes as f64 / 1e6;
    finish(Sample::new(mb_per_second, "MB/s").with_latencies(&latencies), system, &payload, records)
}

fn open(arguments: &Arguments, durability: Durability) -> Result<Box<dyn System>> {
    systems::open(arguments.system, &arguments.dir, &arguments.backend, durability)
}

fn duration(arguments: &Arguments) -> Duration {
    Duration::from_secs_f64(arguments.seconds)
}

/// Adds what the system says of itself, then closes it, reads everything back and compares it.
fn finish(mut sample: Sample, system: Box<dyn System>, payload: &Payload, records: u64) -> Result<Sample> {
    for (fact, value) in system.facts()? {
        sample = sample.with(fact, value);
    }
    let mut found = 0;
    system.read_back(&mut |record| {
        ensure!(payload.is_record(found, record), "record {found} read back differs from what was written");
        found += 1;
        Ok(())
    })?;
    ensure!(found == records, "{records} records were acknowledged and {found} read back");
    Ok(sample.with("records_checked", found))
}

/// Touches memory once and gives it back. A virtual machine pays microseconds for each page that its host has not backed
/// yet: whoever ran first would be measured with that.
fn warm_memory(bytes: usize) {
    std::hint::black_box(vec![1_u8; bytes]);
}
