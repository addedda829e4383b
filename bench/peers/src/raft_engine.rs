//! TiKV's raft-engine: one shared stream of log files for all regions, group commit with a leader. A topic is a region.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt};
use walrus_bench_sample::{Durability, System, Writer};

/// An entry is a message whose first 8 bytes are its index.
struct Entry;

const INDEX_BYTES: usize = 8;

impl MessageExt for Entry {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        entry.value.first_chunk::<INDEX_BYTES>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The engine with its regions.
pub struct RaftEngine {
    dir: PathBuf,
    engine: Arc<Engine>,
    syncs: bool,
    topics: usize,
}

impl RaftEngine {
    /// Without compression, with recycled and pre-filled log files.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(dir: &Path, durability: Durability, topics: usize) -> Result<Self> {
        let engine = Arc::new(start(dir)?);
        Ok(Self { dir: dir.to_owned(), engine, syncs: durability == Durability::Each, topics })
    }
}

fn start(dir: &Path) -> Result<Engine> {
    let dir = dir.to_string_lossy().into_owned();
    let bytes = |n: u64| raft_engine::ReadableSize(n);
    Ok(Engine::open(Config {
        dir,
        batch_compression_threshold: bytes(0),
        enable_log_recycle: true,
        prefill_for_recycle: true,
        recovery_threads: 2,
        // Nothing is purged unless it is asked for; so much is written ahead when it opens.
        purge_threshold: bytes(1 << 30),
        ..Config::default()
    })?)
}

struct RegionWriter {
    engine: Arc<Engine>,
    region: u64,
    next: u64,
    syncs: bool,
    batch: LogBatch,
}

impl Writer for RegionWriter {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.append_batch(&[record])
    }

    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()> {
        let entries: Vec<BytesValue> = (self.next..)
            .zip(records)
            .map(|(index, record)| {
                let mut entry = BytesValue::new();
                entry.value = [&index.to_le_bytes(), *record].concat();
                entry
            })
            .collect();
        self.next += records.len() as u64;
        self.batch.add_entries::<Entry>(self.region, &entries)?;
        self.engine.write(&mut self.batch, self.syncs)?;
        Ok(())
    }
}

impl System for RaftEngine {
    fn writers(&self) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |topic: usize| RegionWriter {
            engine: Arc::clone(&self.engine),
            region: topic as u64 + 1,
            next: 1,
            syncs: self.syncs,
            batch: LogBatch::default(),
        };
        Ok((0..self.topics).map(|topic| Box::new(writer(topic)) as Box<dyn Writer>).collect())
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Self { dir, engine, topics, .. } = *self;
        drop(engine);
        let engine = start(&dir)?;
        for topic in 0..topics {
            let region = topic as u64 + 1;
            let (Some(first), Some(last)) = (engine.first_index(region), engine.last_index(region)) else {
                continue;
            };
            let mut entries = Vec::new();
            for begin in (first..=last).step_by(1000) {
                entries.clear();
                engine.fetch_entries_to::<Entry>(
                    region,
                    begin,
                    (begin + 1000).min(last + 1),
                    None,
                    &mut entries,
                )?;
                for entry in &entries {
                    each(topic, &entry.value[INDEX_BYTES..])?;
                }
            }
        }
        Ok(())
    }
}
