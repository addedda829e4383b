//! The engines that can be measured.

pub(crate) mod walrus;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use walrus_bench_sample::{Durability, System};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Name {
    Walrus,
    #[cfg(feature = "peers")]
    WalrusRust,
    #[cfg(feature = "peers")]
    RaftEngine,
    #[cfg(feature = "peers")]
    Fjall,
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

pub(crate) fn open(
    name: Name,
    dir: &Path,
    backend: &str,
    durability: Durability,
    topics: usize,
) -> Result<Box<dyn System>> {
    Ok(match name {
        Name::Walrus => Box::new(walrus::WalrusLog::open(dir, backend, durability, topics)?),
        #[cfg(feature = "peers")]
        Name::WalrusRust => Box::new(walrus_bench_peers::WalrusRust::open(dir, backend, durability, topics)?),
        #[cfg(feature = "peers")]
        Name::RaftEngine => Box::new(walrus_bench_peers::RaftEngine::open(dir, durability, topics)?),
        #[cfg(feature = "peers")]
        Name::Fjall => Box::new(walrus_bench_peers::Fjall::open(dir, durability, topics)?),
        #[cfg(feature = "rocksdb")]
        Name::Rocksdb => Box::new(walrus_bench_peers::RocksDb::open(dir, durability, topics)?),
    })
}
