//! RocksDB's write-ahead log: a column family for each topic, keys are numbers, nothing is compacted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rocksdb::{DB, IteratorMode, Options, WriteBatch, WriteOptions};
use walrus_bench_sample::{Durability, System, Writer};

/// So much that the memtable is never flushed: the log is what is measured.
const WRITE_BUFFER_BYTES: usize = 2 << 30;
/// Logs are used again, else each sync also writes metadata.
const RECYCLED_LOGS: usize = 4;

/// A database with a column family for each topic.
pub struct RocksDb {
    dir: PathBuf,
    db: Arc<DB>,
    syncs: bool,
    topics: usize,
}

impl RocksDb {
    /// Each durable append syncs the log.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(dir: &Path, durability: Durability, topics: usize) -> Result<Self> {
        let db = Arc::new(start(dir, topics)?);
        Ok(Self { dir: dir.to_owned(), db, syncs: durability == Durability::Each, topics })
    }
}

fn start(dir: &Path, topics: usize) -> Result<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_recycle_log_file_num(RECYCLED_LOGS);
    options.set_enable_pipelined_write(true);
    options.set_disable_auto_compactions(true);
    Ok(DB::open_cf(&options, dir, (0..topics).map(family_name))?)
}

fn family_name(topic: usize) -> String {
    format!("topic-{topic}")
}

struct FamilyWriter {
    db: Arc<DB>,
    family: String,
    next: u64,
    options: WriteOptions,
}

impl Writer for FamilyWriter {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.append_batch(&[record])
    }

    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()> {
        let family = self.db.cf_handle(&self.family).context("made at open")?;
        let mut batch = WriteBatch::default();
        for record in records {
            batch.put_cf(family, self.next.to_be_bytes(), record);
            self.next += 1;
        }
        Ok(self.db.write_opt(batch, &self.options)?)
    }
}

impl System for RocksDb {
    fn writers(&self) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |topic| {
            let mut options = WriteOptions::default();
            options.set_sync(self.syncs);
            FamilyWriter { db: Arc::clone(&self.db), family: family_name(topic), next: 0, options }
        };
        Ok((0..self.topics).map(|topic| Box::new(writer(topic)) as Box<dyn Writer>).collect())
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Self { dir, db, topics, .. } = *self;
        drop(db);
        let db = start(&dir, topics)?;
        for topic in 0..topics {
            let family = db.cf_handle(&family_name(topic)).context("made at open")?;
            for item in db.iterator_cf(family, IteratorMode::Start) {
                each(topic, &item?.1)?;
            }
        }
        Ok(())
    }
}
