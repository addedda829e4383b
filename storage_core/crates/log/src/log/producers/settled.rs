//! A producer table as it is encoded: what a footer, the journal and a message between brokers hold. It is used as it is: nothing
//! is made for each producer but its place.
//!
//! The number of producers (32 bits), then for each, in order of its id: the id (64 bits), the epoch (16), the number of its
//! batches (8), and of each the first sequence (32), the records (32), and the first offset (64). All are little-endian.

use std::collections::VecDeque;
use std::sync::Arc;

use super::producer::{BATCHES_KEPT, KeptBatch, Producer};
use crate::format::fields::{Fields, PutFields};

/// Bytes in front of a producer's batches.
const HEAD_BYTES: usize = 8 + 2 + 1;
const BATCH_BYTES: usize = 4 + 4 + 8;
/// Most bytes that a producer takes.
pub(super) const ENTRY_BYTES_MAX: usize = HEAD_BYTES + BATCHES_KEPT * BATCH_BYTES;

/// An encoded table that was checked. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled(Arc<Checked>);

#[derive(Debug, Default)]
struct Checked {
    bytes: Vec<u8>,
    /// Where each producer begins, and behind them the end.
    places: Vec<u32>,
}

/// Begins the bytes of a table of so many producers.
pub(super) fn begin(producers: usize, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + bytes);
    out.put_u32(producers as u32);
    out
}

/// Adds a producer, whose id is above all in front of it.
pub(super) fn put(out: &mut Vec<u8>, id: i64, producer: &Producer) {
    out.put_i64(id);
    out.put(&producer.epoch.to_le_bytes());
    out.put_u8(producer.batches.len() as u8);
    for kept in &producer.batches {
        out.put(&kept.base_sequence.to_le_bytes());
        out.put_u32(kept.records);
        out.put_u64(kept.base_offset);
    }
}

impl Settled {
    /// Checks bytes; `None` for what is no table.
    pub(super) fn parse(bytes: Vec<u8>) -> Option<Self> {
        u32::try_from(bytes.len()).ok()?;
        let mut fields = Fields(&bytes);
        let count = fields.u32()? as usize;
        let mut places = Vec::with_capacity(count.min(bytes.len() / (HEAD_BYTES + BATCH_BYTES)) + 1);
        let mut before = -1;
        for _ in 0..count {
            places.push((bytes.len() - fields.0.len()) as u32);
            let (id, _) = read(&mut fields, |_| {})?;
            if id <= before {
                return None;
            }
            before = id;
        }
        places.push((bytes.len() - fields.0.len()) as u32);
        let is_whole = fields.is_empty();
        is_whole.then(|| Self(Arc::new(Checked { bytes, places })))
    }

    pub(super) fn len(&self) -> usize {
        self.0.places.len().saturating_sub(1)
    }

    /// The encoded table; `None` if nothing was ever encoded.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        (!self.0.bytes.is_empty()).then_some(&self.0.bytes)
    }

    /// Bytes of all producers.
    pub(super) fn bytes_len(&self) -> usize {
        self.0.bytes.len().saturating_sub(4)
    }

    /// Ids and encoded producers, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (i64, &[u8])> {
        self.0.places.windows(2).map(|ends| {
            let entry = &self.0.bytes[ends[0] as usize..ends[1] as usize];
            (Fields(entry).i64().unwrap_or_default(), entry)
        })
    }

    /// The offset of each producer's newest batch, and its id.
    pub(super) fn last_offsets(&self) -> impl Iterator<Item = (u64, i64)> {
        self.entries().map(|(id, entry)| {
            let last = entry.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            (last, id)
        })
    }

    pub(super) fn find(&self, id: i64) -> Option<Producer> {
        let starts = self.0.places.get(..self.len())?;
        let id_at = |place: &u32| Fields(&self.0.bytes[*place as usize..]).i64().unwrap_or_default();
        let found = starts.binary_search_by_key(&id, id_at).ok()?;
        let mut fields = Fields(&self.0.bytes[starts[found] as usize..]);
        let mut batches = VecDeque::with_capacity(BATCHES_KEPT);
        let (_, epoch) = read(&mut fields, |kept| batches.push_back(kept))?;
        Some(Producer { epoch, batches })
    }

    /// The table of those producers only; the ids ascend.
    pub(super) fn only(&self, ids: &[i64]) -> Self {
        let mut out = begin(0, self.bytes_len());
        let (mut places, mut ids) = (Vec::with_capacity(ids.len() + 1), ids.iter().peekable());
        for (id, entry) in self.entries() {
            if ids.next_if(|wanted| **wanted == id).is_some() {
                places.push(out.len() as u32);
                out.extend_from_slice(entry);
            }
        }
        out[..4].copy_from_slice(&(places.len() as u32).to_le_bytes());
        places.push(out.len() as u32);
        Self(Arc::new(Checked { bytes: out, places }))
    }
}

/// Reads a producer: its id and epoch. Each of its batches goes to `batch`.
fn read(fields: &mut Fields<'_>, mut batch: impl FnMut(KeptBatch)) -> Option<(i64, i16)> {
    let (id, epoch, count) = (fields.i64()?, fields.i16()?, fields.u8()?);
    if id < 0 || epoch < 0 || count == 0 || usize::from(count) > BATCHES_KEPT {
        return None;
    }
    for _ in 0..count {
        let kept =
            KeptBatch { base_sequence: fields.i32()?, records: fields.u32()?, base_offset: fields.u64()? };
        kept.base_offset.checked_add(u64::from(kept.records))?;
        if kept.base_sequence < 0 {
            return None;
        }
        batch(kept);
    }
    Some((id, epoch))
}
