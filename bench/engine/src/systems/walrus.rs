//! Our engine through its log API: a batch is built, appended, and its commit waited for by the caller itself.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use uuid::Uuid;
use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Epoch, FsyncSchedule, Log, LogId, LogSpec, Offset, Options, ProducerTable, Store};

use super::{Durability, System};

const LOG: LogId = LogId(Uuid::from_u128(1));
const READ_BYTES: usize = 4 << 20;

pub(crate) struct WalrusLog {
    dir: PathBuf,
    options: Options,
    store: Store,
    log: Log,
    builder: BatchBuilder,
    batch: Vec<u8>,
    timestamp_ms: i64,
    waits: bool,
}

impl WalrusLog {
    pub(crate) fn open(dir: &Path, backend: &str, durability: Durability) -> Result<Self> {
        let options = Options {
            backend: backend.parse()?,
            fsync: match durability {
                Durability::Each => FsyncSchedule::SyncEach,
                Durability::Never => FsyncSchedule::NoFsync,
            },
            ..Options::default()
        };
        let store = Store::open(dir, options.clone())?;
        let log = store.create_log(LogSpec {
            id: LOG,
            name: "bench".into(),
            base_offset: Offset(0),
            epoch: Epoch(0),
            producers: ProducerTable::new(),
            fsync: None,
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Ok(Self {
            dir: dir.to_owned(),
            options,
            store,
            log,
            builder: BatchBuilder::new(),
            batch: Vec::new(),
            timestamp_ms: i64::try_from(now.as_millis())?,
            waits: matches!(durability, Durability::Each),
        })
    }
}

impl System for WalrusLog {
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

    fn facts(&self) -> Result<Vec<(&'static str, Value)>> {
        let stats = self.store.stats();
        Ok(vec![
            ("backend_in_use", self.store.backend().name.into()),
            ("appended", self.log.end_offset().0.into()),
            ("data_syncs", stats.data_syncs.into()),
            ("journal_syncs", stats.journal_syncs.into()),
            ("bytes_written", stats.bytes_written.into()),
        ])
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Self { dir, options, store, log, .. } = *self;
        drop(log);
        store.close()?;
        let store = Store::open(dir, options)?;
        let log = store.log(LOG).context("the log is gone after reopening")?;
        let mut offset = Offset(0);
        while offset < log.end_offset() {
            let slices = log.read(offset, READ_BYTES)?;
            ensure!(slices.next_offset > offset, "a read at {} gave nothing", offset.0);
            for bytes in &slices.batches {
                let (batch, _) = Batch::parse(bytes)?;
                for record in batch.records() {
                    each(record?.value.context("a record without a value")?)?;
                }
            }
            offset = slices.next_offset;
        }
        Ok(())
    }
}
