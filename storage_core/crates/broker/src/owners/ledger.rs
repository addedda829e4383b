//! The ledger of an owner: what it keeps in memory. It does no I/O.

use std::collections::HashSet;

use bytes::Bytes;
use walrus_log::batch::{BatchBuilder, Record};
use walrus_model::TopicId;

use crate::node::error::{Error, Result};
use crate::peer::Request;

/// What a record means that an owner appends after another one has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Nothing: records that contradict each other are never written, so the owner goes on until all of its own are stored.
    Harmless,
    /// It would undo what the next owner has answered. The owner appends to no other segment than the one under which it serves.
    /// What it cannot store it must not have answered: the owner ends then, and takes over again from what is stored.
    Wrong,
}

/// A record as it is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    /// None takes the key out.
    pub(crate) value: Option<Vec<u8>>,
    /// Milliseconds since the epoch.
    pub(crate) timestamp_ms: i64,
}

/// A record that this node must not pass over, as one of a later version: it takes no partition over that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) String);

/// What an owner keeps in memory of one partition, and what of it is to be recorded.
pub(crate) trait Ledger: Default + Send + 'static {
    /// How it is called in log lines.
    const WHAT: &'static str;
    /// What records of a replaced owner mean.
    const LATE: Late;
    /// What the records of a partition say together.
    type Replayed: Default + Send;
    /// What an owner tells the next one beyond the records.
    type Handed: Send;
    /// What one append holds.
    type Lot: Send + Sync;

    /// A record that says nothing.
    fn nothing() -> Entry;

    /// The question to another node to serve segments below a number no more.
    fn hand_over_request(partition: u32, number: u64, metadata_version: u64) -> Request;

    /// What the answer to that question tells.
    fn handed_over(answer: Bytes) -> Result<Vec<Self::Handed>>;

    /// Takes in the next record.
    fn replay(known: &mut Self::Replayed, record: &Record<'_>) -> std::result::Result<(), Unreadable>;

    /// Begins with what the records say, and what others handed over.
    fn begin(&mut self, known: Self::Replayed, handed: Vec<Self::Handed>);

    /// Ends; whoever waits is told. Answers what the next owner cannot know from the records.
    fn end(&mut self) -> Vec<Self::Handed>;

    /// Whether anything is to be recorded.
    fn has_lot(&self) -> bool;

    /// What the next append holds, one at least, if anything is to be recorded.
    fn next_lot(&mut self) -> Option<(Self::Lot, Vec<Entry>)>;

    /// The entries of a lot are on a write quorum of disks, one after the other from an offset on.
    fn recorded(&mut self, lot: Self::Lot, base_offset: u64);

    /// Number of records that are needed to know what the ledger has.
    fn entries(&self) -> u64;

    /// Drops what is of topics that are not `live`, as far as it was recorded below `base`.
    fn drop_dead(&mut self, live: &HashSet<TopicId>, base: u64);

    /// Has everything that was recorded below `base` recorded again.
    fn record_again(&mut self, base: u64);

    /// Whether something has yet to be recorded again.
    fn records_again(&self) -> bool;
}

/// Entries as one batch.
pub(super) fn batch_of(entries: &[Entry]) -> Result<Bytes> {
    let mut builder = BatchBuilder::new();
    for Entry { key, value, timestamp_ms } in entries {
        builder.push(Some(key), value.as_deref(), *timestamp_ms, &[]);
    }
    let mut batch = Vec::new();
    builder.build(&mut batch).map_err(|problem| Error::Internal { message: problem.to_string() })?;
    Ok(batch.into())
}
