//! The difference between two producer tables: what a footer, the journal and a message between brokers hold of a table. It costs
//! what has changed, whatever the size of the tables; a whole table is its difference from the empty one.
//!
//! The number of producers that are new or have changed (32 bits), then for each, in order of its id, the id (64) and the
//! producer; then the number of those that were forgotten (32) and the id of each, in order. All is little-endian.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::ProducerTable;
use super::producer::{ENCODED_BYTES_MAX, Producer};
use crate::format::fields::{Fields, PutFields};

/// A table, and the earlier one that its changes are told from. To keep both costs little, since they share most of what they
/// have; whoever needs the bytes makes them where nobody waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducerChanges {
    pub(crate) since: ProducerTable,
    pub(crate) now: ProducerTable,
}

impl ProducerChanges {
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.now.changes_since(&self.since)
    }
}

impl ProducerTable {
    /// Encodes how the table differs from an earlier one. The time goes with what differs if this one was made from the earlier
    /// one, and with their size otherwise.
    pub fn changes_since(&self, earlier: &Self) -> Vec<u8> {
        let (mut out, mut changed) = (Vec::new(), 0_u32);
        let mut forgotten = Vec::new();
        out.put_u32(0);
        for change in earlier.known.diff(&self.known) {
            match change {
                DiffItem::Add(id, producer) | DiffItem::Update { new: (id, producer), .. } => {
                    changed += 1;
                    out.reserve(8 + ENCODED_BYTES_MAX);
                    out.put_i64(*id);
                    producer.put(&mut out);
                }
                DiffItem::Remove(id, _) => forgotten.push(*id),
            }
        }
        out[..4].copy_from_slice(&changed.to_le_bytes());
        out.put_u32(forgotten.len() as u32);
        forgotten.into_iter().for_each(|id| out.put_i64(id));
        out
    }

    /// The table that differs from this one as [`ProducerTable::changes_since`] has encoded it; `None` for anything else. What
    /// both have in common is shared.
    pub fn with_changes(&self, bytes: &[u8]) -> Option<Self> {
        let (mut table, mut fields) = (self.clone(), Fields(bytes));
        let mut before = -1;
        for _ in 0..fields.u32()? {
            let id = next_id(&mut fields, &mut before)?;
            let producer = Arc::new(Producer::read(&mut fields)?);
            table.forget(id);
            table.remember(id, producer);
        }
        let mut before = -1;
        for _ in 0..fields.u32()? {
            table.forget(next_id(&mut fields, &mut before)?)?;
        }
        fields.is_empty().then_some(table)
    }

    /// The same table, made from another one: a table that came as bytes shares its memory with those that are there then. The
    /// time goes with the size of both.
    #[must_use]
    pub fn sharing_with(self, other: &Self) -> Self {
        other.with_changes(&self.changes_since(other)).unwrap_or(self)
    }
}

/// Reads an id; `None` unless it is above the one before.
fn next_id(fields: &mut Fields<'_>, before: &mut i64) -> Option<i64> {
    let id = fields.i64()?;
    (id > std::mem::replace(before, id)).then_some(id)
}
