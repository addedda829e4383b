//! Opening: after a kill, and with many logs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use walrus_bench_sample::{Durability, Payload, Sample, Writer};
use walrus_log::{Log, Offset, Store};

use super::{BATCH_RECORDS, numbered, refuse_peers, side_by_side};
use crate::Arguments;
use crate::systems::walrus::{LogWriter, WalrusLog, create, options, read_from};

const TOPICS: usize = 8;
const CREATING_THREADS: usize = 8;
const LOGS: usize = 100_000;
const LOG_RECORDS: usize = 3;
const LOG_RECORD_BYTES: usize = 100;
const FILLED: &str = "filled";

/// A process fills a store durably and goes on appending until it is killed. What it had acknowledged must be there.
pub(super) fn after_kill(arguments: &Arguments) -> Result<Sample> {
    refuse_peers(arguments)?;
    let filler = Filler::start(arguments)?;
    let acknowledged = filler.kill_when_filled()?;

    let options = options(&arguments.backend, Durability::Each)?;
    let start = Instant::now();
    let store = Store::open(&arguments.dir, options)?;
    let logs = (0..TOPICS).map(|topic| create(&store, topic)).collect::<Result<Vec<Log>>>()?;
    for log in &logs {
        log.read(Offset(log.end_offset().0 - 1), 1)?;
    }
    let elapsed = start.elapsed();

    let payload = Payload::with_pool(arguments.record_bytes, BATCH_RECORDS);
    let mut bytes = 0;
    for (topic, log) in logs.iter().enumerate() {
        let mut next = Offset(0);
        read_from(log, &mut next, &mut |number, record| {
            ensure!(
                payload.is_record(numbered(topic, number), record),
                "record {number} of topic {topic} differs from what was written"
            );
            Ok(())
        })?;
        ensure!(
            next.0 >= acknowledged,
            "{acknowledged} records of topic {topic} were acknowledged and {} are there",
            next.0
        );
        bytes += log.size_bytes();
    }
    Ok(Sample::new(elapsed.as_secs_f64() * 1e3, "ms").with("stored_bytes", bytes))
}

/// The process that fills a store; killed when it is dropped.
struct Filler(Child);

impl Filler {
    fn start(arguments: &Arguments) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("fill")
            .args(["--backend", &arguments.backend])
            .arg("--dir")
            .arg(&arguments.dir)
            .args(["--bytes", &arguments.bytes.to_string()])
            .args(["--record-bytes", &arguments.record_bytes.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process that fills the store")?;
        Ok(Self(child))
    }

    /// How many records of each topic it had acknowledged by then.
    fn kill_when_filled(mut self) -> Result<u64> {
        let stdout = self.0.stdout.take().context("the filling process has no output")?;
        let mut said = String::new();
        BufReader::new(stdout).read_line(&mut said)?;
        let Some(records) = said.strip_prefix(FILLED) else {
            bail!("the filling process ended early: {said:?}")
        };
        self.0.kill()?;
        self.0.wait()?;
        records.trim().parse().context("the filling process said no number")
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Appends durable batches to each topic in turn; says so after `bytes`, and goes on for ever.
pub(super) fn fill(arguments: &Arguments) -> Result<()> {
    let Arguments { record_bytes, bytes, .. } = *arguments;
    let walrus = WalrusLog::open(&arguments.dir, &arguments.backend, Durability::Each, TOPICS)?;
    let mut writers = (0..TOPICS).map(|topic| walrus.writer(topic)).collect::<Result<Vec<LogWriter>>>()?;
    let mut payload = Payload::with_pool(record_bytes, BATCH_RECORDS);
    let rounds = bytes.div_ceil((TOPICS * BATCH_RECORDS * record_bytes) as u64);
    for round in 0.. {
        let first = round * BATCH_RECORDS as u64;
        if round == rounds {
            println!("{FILLED} {first}");
        }
        for (topic, writer) in writers.iter_mut().enumerate() {
            writer.append_batch(&payload.batch(numbered(topic, first)))?;
        }
    }
    Ok(())
}

/// Logs that hardly say anything: each is made and written durably, by threads that share the syncs.
pub(super) fn many_logs(arguments: &Arguments) -> Result<Sample> {
    refuse_peers(arguments)?;
    let logs = if arguments.quick { LOGS / 100 } else { LOGS };
    let walrus = Arc::new(WalrusLog::open(&arguments.dir, &arguments.backend, Durability::Each, 0)?);
    let make = &|thread: usize| -> Result<()> {
        let mut payload = Payload::with_pool(LOG_RECORD_BYTES, LOG_RECORDS);
        for topic in (thread..logs).step_by(CREATING_THREADS) {
            walrus.writer(topic)?.append_batch(&payload.batch(numbered(topic, 0)))?;
        }
        Ok(())
    };
    side_by_side((0..CREATING_THREADS).map(|thread| move || make(thread)))?;
    walrus.store().close()?;
    drop(walrus);

    let disk_bytes = allocated_bytes(&arguments.dir)?;
    let options = options(&arguments.backend, Durability::Each)?;
    let start = Instant::now();
    let store = Store::open(&arguments.dir, options)?;
    let elapsed = start.elapsed();

    let payload = Payload::with_pool(LOG_RECORD_BYTES, LOG_RECORDS);
    for topic in 0..logs {
        let log = create(&store, topic)?;
        let mut next = Offset(0);
        read_from(&log, &mut next, &mut |number, record| {
            ensure!(
                payload.is_record(numbered(topic, number), record),
                "log {topic} differs from what was written"
            );
            Ok(())
        })?;
        ensure!(
            next == Offset(LOG_RECORDS as u64),
            "log {topic} has {} of its {LOG_RECORDS} records",
            next.0
        );
    }
    Ok(Sample::new(elapsed.as_secs_f64(), "s").with("logs", logs).with("disk_bytes", disk_bytes))
}

fn allocated_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let sizes = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.blocks() * 512));
    sizes.sum()
}
