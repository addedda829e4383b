//! The engines that can be measured, behind what the cases need of them.

mod walrus;
#[cfg(feature = "peers")]
mod walrus_rust;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::Value;

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Name {
    Walrus,
    #[cfg(feature = "peers")]
    WalrusRust,
}

/// What an append has promised when it returns.
#[derive(Clone, Copy)]
pub(crate) enum Durability {
    /// The record survives a power cut.
    Each,
    /// Nothing; the engine never syncs on its own.
    Never,
}

/// One log of an engine, written by one caller.
pub(crate) trait System {
    fn append(&mut self, record: &[u8]) -> Result<()>;

    /// All of them or, after a crash, none.
    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()>;

    /// What the engine says of its work so far.
    fn facts(&self) -> Result<Vec<(&'static str, Value)>>;

    /// Closes the engine, opens it again and gives every record in order.
    fn read_back(self: Box<Self>, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

pub(crate) fn open(name: Name, dir: &Path, backend: &str, durability: Durability) -> Result<Box<dyn System>> {
    Ok(match name {
        Name::Walrus => Box::new(walrus::WalrusLog::open(dir, backend, durability)?),
        #[cfg(feature = "peers")]
        Name::WalrusRust => Box::new(walrus_rust::WalrusRust::open(dir, backend, durability)?),
    })
}
