//! The cases: how a system is driven, and what of it is the figure.

mod appends;
mod opening;
mod reads;
mod space;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use walrus_bench_sample::{Durability, Payload, Sample, System};

use crate::Arguments;
use crate::systems;

/// Records of a batch, where a case appends batches.
const BATCH_RECORDS: usize = 2000;

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Case {
    /// One caller that waits until each record is durable: records/s.
    #[value(name = "durable_1_caller")]
    Durable1Caller,
    /// Eight threads, each with a topic of its own, that wait until each record is durable: records/s.
    #[value(name = "durable_8_topics")]
    Durable8Topics,
    /// One caller for each of --logs, eight at most, who go round their logs; each waits until its record of --record-bytes is
    /// durable: records/s.
    DurableLogs,
    /// One caller that waits until each batch of 2,000 records is durable: MB/s.
    #[value(name = "durable_batch_2000")]
    DurableBatch2000,
    /// One caller, nothing is synced, a burst of seconds x 300,000 records: ns/record.
    #[value(name = "nosync_1_caller")]
    NoSync1Caller,
    /// One caller, nothing is synced, --bytes in batches through a log that keeps its last 2 GB: MB/s.
    #[value(name = "nosync_sustained")]
    NoSyncSustained,
    /// Sealed logs of --bytes are read from end to end, checksums verified: MB/s.
    SealedRead,
    /// One reader of a cursor whose every step is durable before the record is given: records/s.
    StrictCursorRead,
    /// Eight of them, each on a topic of its own: records/s.
    #[value(name = "strict_cursor_read_8")]
    StrictCursorRead8,
    /// What 100 bytes take on the disk in batches of 100 records, headers and footers of blocks counted: B/record.
    #[value(name = "bytes_per_100b")]
    BytesPer100B,
    /// From the start of a store of --bytes, whose process was killed while it appended, to its first read: ms.
    #[value(name = "recovery_10gb")]
    Recovery10Gb,
    /// The start of a store of 100,000 logs of three records each (fewer with --quick): s.
    #[value(name = "open_100k_logs")]
    Open100kLogs,
    /// Fills a store with --bytes and goes on for ever: the process that `recovery_10gb` kills. No figure.
    Fill,
}

impl Case {
    /// The sample of a case that has one.
    pub(crate) fn measure(self, arguments: &Arguments) -> Result<Option<Sample>> {
        let sample = match self {
            Case::Durable1Caller => appends::durable_callers(arguments, 1),
            Case::Durable8Topics => appends::durable_callers(arguments, 8),
            Case::DurableLogs => appends::durable_logs(arguments),
            Case::DurableBatch2000 => appends::durable_batches(arguments),
            Case::NoSync1Caller => appends::nosync_burst(arguments),
            Case::NoSyncSustained => appends::nosync_sustained(arguments),
            Case::SealedRead => reads::sealed(arguments),
            Case::StrictCursorRead => reads::strict_cursors(arguments, 1),
            Case::StrictCursorRead8 => reads::strict_cursors(arguments, 8),
            Case::BytesPer100B => space::bytes_per_record(arguments),
            Case::Recovery10Gb => opening::after_kill(arguments),
            Case::Open100kLogs => opening::many_logs(arguments),
            Case::Fill => return opening::fill(arguments).map(|()| None),
        };
        sample.map(Some)
    }
}

fn open(arguments: &Arguments, durability: Durability, topics: usize) -> Result<Box<dyn System>> {
    systems::open(arguments.system, &arguments.dir, &arguments.backend, durability, topics)
}

/// For what only our engine is asked.
fn refuse_peers(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.system == systems::Name::Walrus, "this case measures walrus only");
    Ok(())
}

fn duration(arguments: &Arguments) -> Duration {
    Duration::from_secs_f64(arguments.seconds)
}

/// What each thread answered; they run at once.
fn side_by_side<T: Send>(
    threads: impl IntoIterator<Item = impl FnOnce() -> Result<T> + Send>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let started: Vec<_> = threads.into_iter().map(|work| scope.spawn(work)).collect();
        started.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?).collect()
    })
}

/// More than a topic is given; a multiple of what any payload holds, so that each topic's batches begin where it does.
const TOPIC_NUMBERS: u64 = (BATCH_RECORDS as u64 * 3) << 30;

/// The number of a topic's record, so that no two records of a run are equal.
fn numbered(topic: usize, record: u64) -> u64 {
    topic as u64 * TOPIC_NUMBERS + record
}

/// Adds what the system says of itself, then closes it, reads everything back and compares it.
/// `records` are those of each topic, acknowledged by so many `calls`.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn finish(
    mut sample: Sample,
    system: Box<dyn System>,
    payload: &Payload,
    records: &[u64],
    calls: u64,
) -> Result<Sample> {
    let mut syncs = None;
    for (fact, value) in system.facts()? {
        if let (true, Some(count)) = (fact.ends_with("_syncs"), value.as_u64()) {
            *syncs.get_or_insert(0) += count;
        }
        sample = sample.with(fact, value);
    }
    if let Some(syncs) = syncs {
        sample = sample.with("syncs_per_ack", syncs as f64 / calls.max(1) as f64);
    }
    let mut found = vec![0_u64; records.len()];
    system.read_back(&mut |topic, record| {
        let number = found.get_mut(topic).context("a record of no topic that was written")?;
        ensure!(
            payload.is_record(numbered(topic, *number), record),
            "record {number} of topic {topic} read back differs from what was written"
        );
        *number += 1;
        Ok(())
    })?;
    ensure!(found == records, "{records:?} records were acknowledged and {found:?} read back");
    Ok(sample.with("records_checked", found.iter().sum::<u64>()))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
fn mb_per_second(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 / 1e6 / elapsed.as_secs_f64()
}
