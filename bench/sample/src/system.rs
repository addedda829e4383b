//! What a storage engine must do to be measured.

use anyhow::Result;
use serde_json::Value;

/// What an append has promised when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The record survives a power cut.
    Each,
    /// Nothing; the engine never syncs on its own.
    Never,
}

/// An engine with some topics, numbered from 0, that are there since it was opened.
pub trait System {
    /// One writer for each topic, each for a thread of its own.
    ///
    /// # Errors
    /// The engine's.
    fn writers(&self) -> Result<Vec<Box<dyn Writer>>>;

    /// What the engine says of its work so far.
    ///
    /// # Errors
    /// The engine's.
    fn facts(&self) -> Result<Vec<(&'static str, Value)>> {
        Ok(Vec::new())
    }

    /// Closes the engine, opens it again and gives every record with its topic, those of a topic in order. The writers are
    /// gone by then.
    ///
    /// # Errors
    /// The engine's, and the first of `each`.
    fn read_back(self: Box<Self>, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()>;
}

/// Writes to one topic.
pub trait Writer: Send {
    /// One record, as durable on return as the engine was asked to make it.
    ///
    /// # Errors
    /// The engine's.
    fn append(&mut self, record: &[u8]) -> Result<()>;

    /// All of them or, after a crash, none.
    ///
    /// # Errors
    /// The engine's.
    fn append_batch(&mut self, records: &[&[u8]]) -> Result<()>;

    /// Waits until what the engine holds in memory of its own is written, where it has a way to say so.
    fn drain(&mut self) {}
}
