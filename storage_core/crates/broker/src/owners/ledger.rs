//! What each of Walrus's own topics brings beside its ledger in memory: its records, and what owners ask each other.

use bytes::Bytes;
use walrus_log::batch::{BatchBuilder, Record};
use walrus_owners::{Entry, Late};

use crate::node::error::{Error, Result};
use crate::peer::Request;

/// A record that this node must not pass over, as one of a later version: it takes no partition over that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) String);

/// A ledger whose records and questions have bytes.
pub(crate) trait Ledger:
    walrus_owners::Ledger<Replayed: Default + Send, Handed: Send, Lot: Send + Sync> + Default + Send + 'static
{
    /// How it is called in log lines.
    const WHAT: &'static str;
    /// What records of a replaced owner mean.
    const LATE: Late;

    /// A record that says nothing.
    fn nothing() -> Entry;

    /// The question to another node to serve segments below a number no more.
    fn hand_over_request(partition: u32, number: u64, metadata_version: u64) -> Request;

    /// What the answer to that question tells.
    fn handed_over(answer: Bytes) -> Result<Vec<Self::Handed>>;

    /// Takes in the next record.
    fn replay(known: &mut Self::Replayed, record: &Record<'_>) -> std::result::Result<(), Unreadable>;
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
