//! Reads: whole logs, and strict cursors.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use walrus_bench_sample::{Durability, Latencies, Payload, Sample, Writer, closed_loop};
use walrus_log::{FsyncSchedule, Offset, ReadConsistency, Store, Walrus, WalrusBuilder};

use super::{BATCH_RECORDS, duration, mb_per_second, refuse_peers, side_by_side};
use crate::Arguments;
use crate::systems::walrus::{READ_BYTES, WalrusLog, create, options, read_from};

/// A log is filled, sealed, and read by a store that was opened anew: once to compare it, then again and again.
pub(super) fn sealed(arguments: &Arguments) -> Result<Sample> {
    refuse_peers(arguments)?;
    let mut payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
    let records = {
        let walrus = WalrusLog::open(&arguments.dir, &arguments.backend, Durability::Never, 1)?;
        let mut writer = walrus.writer(0)?;
        let batches = arguments.bytes.div_ceil((BATCH_RECORDS * arguments.record_bytes) as u64);
        for batch in 0..batches {
            writer.append_batch(&payload.batch(batch * BATCH_RECORDS as u64))?;
        }
        writer.log.seal(b"")?;
        walrus.store().close()?;
        batches * BATCH_RECORDS as u64
    };

    let store = Store::open(&arguments.dir, options(&arguments.backend, Durability::Never)?)?;
    let log = create(&store, 0)?;
    let mut next = log.start_offset();
    read_from(&log, &mut next, &mut |number, record| {
        ensure!(payload.is_record(number, record), "record {number} read back differs from what was written");
        Ok(())
    })?;
    ensure!(next == Offset(records), "{records} records were acknowledged and {} read back", next.0);

    let (start, mut bytes, mut passes) = (Instant::now(), 0, 0_u64);
    while start.elapsed() < duration(arguments) {
        let mut offset = log.start_offset();
        while offset < log.end_offset() {
            let slices = log.read(offset, READ_BYTES)?;
            bytes += slices.batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
            offset = slices.next_offset;
        }
        passes += 1;
    }
    Ok(Sample::new(mb_per_second(bytes, start.elapsed()), "MB/s")
        .with("passes", passes)
        .with("backend_in_use", store.backend().name)
        .with("records_checked", records))
}

/// What a disk does late of what was written to set a case up: it answers durable writes with pauses meanwhile.
const REST: Duration = Duration::from_secs(1);

/// As many readers as topics; the place of each is durable before it is given the record.
pub(super) fn strict_cursors(arguments: &Arguments, readers: usize) -> Result<Sample> {
    const RECORDS_PER_SECOND: f64 = 30_000.0; // more than a disk lets a reader have

    refuse_peers(arguments)?;
    let walrus = WalrusBuilder::default()
        .directory(&arguments.dir)
        .backend(arguments.backend.parse()?)
        .fsync_schedule(FsyncSchedule::SyncEach)
        .consistency(ReadConsistency::StrictlyAtOnce)
        .build()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds were checked")]
    let batches = (arguments.seconds * RECORDS_PER_SECOND) as u64 / BATCH_RECORDS as u64 + 1;
    for reader in 0..readers {
        let mut payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
        for batch in 0..batches {
            let entries = payload.batch(batch * BATCH_RECORDS as u64);
            walrus.batch_append_for_topic(&topic(reader), &entries)?;
        }
    }

    walrus.store().drain();
    thread::sleep(REST);
    let start = Barrier::new(readers);
    let syncs_before = walrus.store().stats();
    let one = &|reader| {
        start.wait();
        read_strictly(&walrus, reader, arguments)
    };
    let latencies = side_by_side((0..readers).map(|reader| move || one(reader)))?;
    let stats = walrus.store().stats();
    let latencies = Latencies::of_all(latencies);
    Ok(Sample::new(latencies.per_second(), "records/s")
        .with_latencies(&latencies)
        .with("records_checked", latencies.count())
        .with("journal_syncs", stats.journal_syncs - syncs_before.journal_syncs)
        .with("data_syncs", stats.data_syncs - syncs_before.data_syncs)
        .with("backend_in_use", walrus.store().backend().name))
}

fn read_strictly(walrus: &Walrus, reader: usize, arguments: &Arguments) -> Result<Latencies> {
    let payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
    let topic = topic(reader);
    closed_loop(duration(arguments), |number| {
        let entry =
            walrus.read_next(&topic, true)?.context("everything was read before the time was over")?;
        ensure!(
            entry.offset == Offset(number) && payload.is_record(number, &entry.data),
            "record {number} of {topic} came as {}, or differs from what was written",
            entry.offset.0
        );
        Ok(())
    })
}

fn topic(reader: usize) -> String {
    format!("topic-{reader}")
}
