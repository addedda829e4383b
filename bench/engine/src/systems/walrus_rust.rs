//! The ancestor, crate `walrus-rust`. Its data directory comes from an environment variable or is a fixed name in the
//! current directory, so this process moves into the directory of the run. Set `WALRUS_QUIET`, or it prints with every
//! append.

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::Value;
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

use super::{Durability, System};

const TOPIC: &str = "bench";

pub(crate) struct WalrusRust {
    walrus: Walrus,
    schedule: FsyncSchedule,
}

impl WalrusRust {
    pub(crate) fn open(dir: &Path, backend: &str, durability: Durability) -> Result<Self> {
        match backend {
            "auto" | "fd" => walrus_rust::enable_fd_backend(),
            "mmap" => walrus_rust::disable_fd_backend(),
            _ => bail!("walrus-rust has no backend {backend:?}, but fd and mmap"),
        }
        let schedule = match durability {
            Durability::Each => FsyncSchedule::SyncEach,
            Durability::Never => FsyncSchedule::NoFsync,
        };
        std::fs::create_dir_all(dir)?;
        std::env::set_current_dir(dir)?;
        Ok(Self { walrus: start(schedule)?, schedule })
    }
}

fn start(schedule: FsyncSchedule) -> Result<Walrus> {
    // reading back is not measured: cursors need not be durable
    let consistency = ReadConsistency::AtLeastOnce { persist_every: 100_000 };
    Ok(Walrus::with_consistency_and_schedule(consistency, schedule)?)
}

impl System for WalrusRust {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        Ok(self.walrus.append_for_topic(TOPIC, record)?)
    }

    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()> {
        Ok(self.walrus.batch_append_for_topic(TOPIC, records)?)
    }

    fn facts(&self) -> Result<Vec<(&'static str, Value)>> {
        Ok(Vec::new())
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Self { walrus, schedule } = *self;
        drop(walrus);
        let walrus = start(schedule)?;
        // one by one: its batch reads skip the rest of the last sealed block
        while let Some(entry) = walrus.read_next(TOPIC, true)? {
            each(&entry.data)?;
        }
        Ok(())
    }
}
