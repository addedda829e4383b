//! A reader that reads the same bytes over and over, as fast as they come.

use std::time::Instant;

use anyhow::{Context, Result};
use walrus_bench_sample::Sample;

use crate::Arguments;
use crate::checking;
use crate::producer;
use crate::reader::{Reader, end_of};
use crate::topic;

/// Reads the same bytes over and over, once before it counts.
pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    let leader = topic::create(arguments, 1)?;
    let batch_bytes = arguments.batch_records * arguments.record_bytes;
    let run = producer::fill(arguments, leader, (arguments.bytes / batch_bytes).max(1) as u64)?;
    checking::check(arguments, leader, &run)?;
    let end: i64 = run.sent.iter().map(|(_, batches)| *batches).sum::<u64>().try_into()?;
    let end = end * i64::try_from(arguments.batch_records)?;

    let mut reader = Reader::connect(&arguments.topic, leader, arguments.fetch_bytes)?;
    let began = Instant::now();
    let (mut bytes, mut fetches) = (0_usize, 0_u64);
    while began.elapsed() < arguments.duration() {
        let records = reader.fetch()?;
        (bytes, fetches) = (bytes + records.len(), fetches + 1);
        reader.next = end_of(records)?.context("a fetch before the end found nothing")?;
        if reader.next == end {
            reader.next = 0;
        }
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    topic::delete(arguments)?;
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    let (bytes, mean) = (bytes as f64, bytes as f64 / fetches.max(1) as f64);
    Ok(Sample::new(bytes / elapsed_s / 1e6, "MB/s")
        .with("answer_bytes", mean)
        .with("fetch_bytes", arguments.fetch_bytes))
}
