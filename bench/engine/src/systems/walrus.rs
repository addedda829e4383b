//! Our engine through its log API: a batch is built, appended, and its commit waited for by the caller itself.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use uuid::Uuid;
use walrus_bench_sample::{Durability, System, Writer};
use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Epoch, FsyncSchedule, Log, LogId, LogSpec, Offset, Options, ProducerTable, Store};

/// What one read asks for: a few blocks' worth of batches.
pub(crate) const READ_BYTES: usize = 4 << 20;

pub(crate) struct WalrusLog {
    dir: PathBuf,
    options: Options,
    topics: usize,
    store: Store,
}

impl WalrusLog {
    pub(crate) fn open(dir: &Path, backend: &str, durability: Durability, topics: usize) -> Result<Self> {
        let options = options(backend, durability)?;
        let store = Store::open(dir, options.clone())?;
        for topic in 0..topics {
            create(&store, topic)?;
        }
        Ok(Self { dir: dir.to_owned(), options, topics, store })
    }

    /// With so many topics, which are made by who asks for their writers.
    pub(crate) fn of_topics(self, topics: usize) -> Self {
        Self { topics, ..self }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn writer(&self, topic: usize) -> Result<LogWriter> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Ok(LogWriter {
            log: create(&self.store, topic)?,
            store: self.store.clone(),
            builder: BatchBuilder::new(),
            batch: Vec::new(),
            timestamp_ms: i64::try_from(now.as_millis())?,
            waits: self.options.fsync == FsyncSchedule::SyncEach,
        })
    }
}

pub(crate) fn options(backend: &str, durability: Durability) -> Result<Options> {
    let fsync = match durability {
        Durability::Each => FsyncSchedule::SyncEach,
        Durability::Never => FsyncSchedule::NoFsync,
    };
    Ok(Options { backend: backend.parse()?, fsync, ..Options::default() })
}

/// The log of a topic, made now if it is not there.
pub(crate) fn create(store: &Store, topic: usize) -> Result<Log> {
    Ok(store.create_log(LogSpec {
        id: LogId(Uuid::from_u128(topic as u128 + 1)),
        name: format!("topic-{topic}"),
        base_offset: Offset(0),
        epoch: Epoch(0),
        producers: ProducerTable::new(),
        after: None,
        fsync: None,
    })?)
}

/// Gives every record of a log with its offset, from `next` on, and moves `next` behind the last.
pub(crate) fn read_from(
    log: &Log,
    next: &mut Offset,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    while *next < log.end_offset() {
        let slices = log.read(*next, READ_BYTES)?;
        ensure!(slices.next_offset > *next, "a read at {} gave nothing", next.0);
        for stored in &slices.batches {
            let (batch, _) = Batch::parse(stored)?;
            for (number, record) in (batch.header().base_offset..).zip(batch.records()) {
                each(number, record?.value.context("a record without a value")?)?;
            }
        }
        *next = slices.next_offset;
    }
    Ok(())
}

pub(crate) struct LogWriter {
    pub(crate) log: Log,
    store: Store,
    builder: BatchBuilder,
    batch: Vec<u8>,
    timestamp_ms: i64,
    waits: bool,
}

impl Writer for LogWriter {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.append_batch(&[record])
    }

    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()> {
        for record in records {
            self.builder.push(None, Some(record), self.timestamp_ms, &[]);
        }
        let batch = self.builder.build_in(&mut self.batch)?;
        let appended = self.log.append(&batch)?;
        if self.waits {
            appended.commit.wait()?;
        }
        Ok(())
    }

    fn drain(&mut self) {
        self.store.drain();
    }
}

impl System for WalrusLog {
    fn writers(&self) -> Result<Vec<Box<dyn Writer>>> {
        (0..self.topics).map(|topic| Ok(Box::new(self.writer(topic)?) as Box<dyn Writer>)).collect()
    }

    fn facts(&self) -> Result<Vec<(&'static str, Value)>> {
        let stats = self.store.stats();
        let ends = self.store.logs().iter().map(|log| log.end_offset().0).sum::<u64>();
        Ok(vec![
            ("backend_in_use", self.store.backend().name.into()),
            ("appended", ends.into()),
            ("data_syncs", stats.data_syncs.into()),
            ("journal_syncs", stats.journal_syncs.into()),
            ("bytes_written", stats.bytes_written.into()),
        ])
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Self { dir, options, topics, store } = *self;
        store.close()?;
        drop(store);
        let store = Store::open(dir, options)?;
        for topic in 0..topics {
            read_from(&create(&store, topic)?, &mut Offset(0), &mut |_, record| each(topic, record))?;
        }
        Ok(())
    }
}
