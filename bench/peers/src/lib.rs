//! The storage engines that Walrus is measured beside, set as their makers advise for a log: no compression, no compaction
//! of what was just written, one data sync for each durable append.

mod fjall;
mod raft_engine;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod walrus_rust;

pub use crate::fjall::Fjall;
pub use crate::raft_engine::RaftEngine;
#[cfg(feature = "rocksdb")]
pub use crate::rocksdb::RocksDb;
pub use crate::walrus_rust::WalrusRust;
