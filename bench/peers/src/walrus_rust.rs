//! The ancestor, crate `walrus-rust`. Its data directory comes from an environment variable or is a fixed name in the
//! current directory, so this process moves into the directory of the run. Set `WALRUS_QUIET`, or it prints with every
//! append.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use walrus_bench_sample::{Durability, System, Writer};
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

/// The ancestor with its topics.
pub struct WalrusRust {
    walrus: Arc<Walrus>,
    schedule: FsyncSchedule,
    topics: usize,
}

impl WalrusRust {
    /// Backends `fd` (or `auto`) and `mmap`; what is chosen, and the schedule, holds for the process.
    ///
    /// # Errors
    /// An unknown backend, and the engine's.
    pub fn open(dir: &Path, backend: &str, durability: Durability, topics: usize) -> Result<Self> {
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
        Ok(Self { walrus: Arc::new(start(schedule)?), schedule, topics })
    }
}

fn start(schedule: FsyncSchedule) -> Result<Walrus> {
    // reading back is not measured: cursors need not be durable
    let consistency = ReadConsistency::AtLeastOnce { persist_every: 100_000 };
    Ok(Walrus::with_consistency_and_schedule(consistency, schedule)?)
}

fn topic_name(topic: usize) -> String {
    format!("topic-{topic}")
}

struct TopicWriter {
    walrus: Arc<Walrus>,
    topic: String,
}

impl Writer for TopicWriter {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        Ok(self.walrus.append_for_topic(&self.topic, record)?)
    }

    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()> {
        Ok(self.walrus.batch_append_for_topic(&self.topic, records)?)
    }
}

impl System for WalrusRust {
    fn writers(&self) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |topic| TopicWriter { walrus: Arc::clone(&self.walrus), topic: topic_name(topic) };
        Ok((0..self.topics).map(|topic| Box::new(writer(topic)) as Box<dyn Writer>).collect())
    }

    fn read_back(self: Box<Self>, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Self { walrus, schedule, topics } = *self;
        drop(walrus);
        let walrus = start(schedule)?;
        for topic in 0..topics {
            // one by one: its batch reads skip the rest of the last sealed block
            while let Some(entry) = walrus.read_next(&topic_name(topic), true)? {
                each(topic, &entry.data)?;
            }
        }
        Ok(())
    }
}
