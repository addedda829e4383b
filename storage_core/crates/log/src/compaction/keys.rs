//! The last offset of each key of a stretch of records, in memory that does not grow.

use std::hash::Hasher;
use std::io;

use memmap2::MmapMut;
use siphasher::sip128::{Hasher128, SipHasher13};
use uuid::Uuid;

use crate::batch::{Batch, each_key};
use crate::types::Offset;

/// Memory of one key: 96 bits of its hash, never all zero, above the 32 bits of its last offset from the map's base on. An entry of
/// zeros is free.
const ENTRY_BYTES: usize = size_of::<u128>();
/// An entry that no key has.
const FREE: u128 = 0;
/// How full the map gets: a search then looks at about four entries, or at twenty where the key is not there.
const FULL_PERCENT: usize = 85;

/// A map from each key of a stretch of records to the offset of its last record. Its memory is taken once, 16 bytes a
/// key, and given back to the system when it is dropped; it holds no keys but 96 bits of their hashes: two of ten million keys are taken for one with a probability of
/// 2^-50. The hash (SipHash-1-3 of 128 bits) has a random key of its own for each stretch, so nobody can make two keys
/// meet on purpose.
pub struct KeyMap {
    /// The entries. They are pages of their own: an allocator that once had so much would keep it, in pieces.
    pages: MmapMut,
    hasher: SipHasher13,
    /// Offset from which the offsets of the entries count.
    base: u64,
    /// Number of entries that are taken; never more than `capacity`, which is less than there are entries.
    keys: usize,
    capacity: usize,
}

/// Result of [`KeyMap::note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Noted {
    /// All keys of the batch are in the map.
    Taken,
    /// The map may have no room for all keys of the batch, and has taken none of them: the stretch ends in front of it. A
    /// batch of more records than [`KeyMap::capacity`] is never taken.
    Full,
    /// The records of the batch cannot be read to their end. The map has taken none of them: the batch stays as it is, and
    /// makes no other record old.
    Unreadable,
    /// The batch does not lie in the 2^32 offsets from the map's base on. The map has taken none of its keys: the stretch
    /// ends in front of it.
    OutOfReach,
}

impl KeyMap {
    /// An empty map of about this much memory, at least 32 bytes, for a stretch that begins at offset 0. 48 MiB hold 2.67
    /// million keys. Fails where the system has no memory.
    pub fn with_memory(bytes: usize) -> io::Result<Self> {
        let entries = (bytes / ENTRY_BYTES).max(2);
        let pages = MmapMut::map_anon(entries * ENTRY_BYTES)?;
        Ok(Self { pages, hasher: fresh_hasher(), base: 0, keys: 0, capacity: entries * FULL_PERCENT / 100 })
    }

    /// Makes the map empty for another stretch, whose offsets are those from `base` on. The memory stays, the key of the
    /// hash is a fresh one.
    pub fn clear(&mut self, base: Offset) {
        self.pages.fill(0);
        (self.hasher, self.base, self.keys) = (fresh_hasher(), base.0, 0);
    }

    /// Most keys that the map holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of keys in the map.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// Whether the map has no key.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Notes the offset of each record of a batch that has a key, all of them or none. A compressed batch is opened, which
    /// takes at most [`OPENED_BYTES_MAX`](crate::batch::OPENED_BYTES_MAX); nothing else allocates. Every record of the batch
    /// counts as a new key when the room for it is looked at.
    pub fn note(&mut self, batch: &Batch<'_>) -> Noted {
        let records = batch.header().records_left() as usize;
        if records == 0 {
            return Noted::Taken;
        }
        let Some(first) = batch.base_offset().checked_sub(self.base) else { return Noted::OutOfReach };
        if first + u64::from(batch.last_offset_delta()) > u64::from(u32::MAX) {
            return Noted::OutOfReach;
        }
        if records > self.capacity - self.keys {
            return Noted::Full;
        }
        match each_key(batch, |key, offset| self.put(key, (offset - self.base) as u32)) {
            Ok(()) => Noted::Taken,
            Err(_) => Noted::Unreadable,
        }
    }

    /// The offset of the last record of a key; `None` if the map does not know the key.
    #[inline]
    pub fn last_of(&self, key: &[u8]) -> Option<Offset> {
        let entry = self.entry(self.place_of(self.print_of(key)));
        (entry != FREE).then(|| Offset(self.base + u64::from(entry as u32)))
    }

    fn put(&mut self, key: &[u8], offset: u32) {
        let print = self.print_of(key);
        let place = self.place_of(print);
        let before = self.entry(place);
        self.keys += usize::from(before == FREE);
        let entry = print << u32::BITS | u128::from(offset.max(before as u32));
        self.pages.as_chunks_mut().0[place] = entry.to_ne_bytes();
    }

    /// What the map knows a key by: 96 bits of its hash, never all zero.
    fn print_of(&self, key: &[u8]) -> u128 {
        let mut hasher = self.hasher;
        hasher.write(key);
        (hasher.finish128().as_u128() >> u32::BITS).max(1)
    }

    fn entry(&self, place: usize) -> u128 {
        u128::from_ne_bytes(self.pages.as_chunks().0[place])
    }

    /// The place of a key's entry, or the free one where it belongs. There always is a free one.
    fn place_of(&self, print: u128) -> usize {
        let count = self.pages.len() / ENTRY_BYTES;
        let mut place = (((print >> u32::BITS) * count as u128) >> u64::BITS) as usize;
        loop {
            let entry = self.entry(place);
            if entry == FREE || entry >> u32::BITS == print {
                return place;
            }
            place = if place + 1 == count { 0 } else { place + 1 };
        }
    }
}

impl std::fmt::Debug for KeyMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { base, keys, capacity, .. } = self;
        f.debug_struct("KeyMap")
            .field("base", base)
            .field("keys", keys)
            .field("capacity", capacity)
            .finish_non_exhaustive()
    }
}

/// A hash with a random key of 122 bits.
fn fresh_hasher() -> SipHasher13 {
    SipHasher13::new_with_key(Uuid::new_v4().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, write_gap, write_offsets};

    fn batch_at(base: u64, keys: &[Option<&[u8]>]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for key in keys {
            builder.push(*key, Some(b"value"), 1, &[]);
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        write_offsets(&mut bytes, base, 0);
        bytes
    }

    fn note(map: &mut KeyMap, bytes: &[u8]) -> Noted {
        map.note(&Batch::parse(bytes).unwrap().0)
    }

    #[test]
    fn the_map_knows_the_last_offset_of_each_key_until_it_is_cleared() {
        let mut map = KeyMap::with_memory(1 << 10).unwrap();
        map.clear(Offset(100));
        let batch = batch_at(100, &[Some(b"a"), None, Some(b"b"), Some(b"a"), Some(b"")]);
        assert_eq!(note(&mut map, &batch), Noted::Taken);
        assert_eq!(note(&mut map, &batch_at(200, &[Some(b"b")])), Noted::Taken);
        let last = |map: &KeyMap, key: &[u8]| map.last_of(key).map(|offset| offset.0);
        assert_eq!([last(&map, b"a"), last(&map, b"b"), last(&map, b"")], [Some(103), Some(200), Some(104)]);
        assert_eq!((last(&map, b"c"), map.len()), (None, 3));
        map.clear(Offset(200));
        assert_eq!((last(&map, b"a"), map.is_empty()), (None, true));
    }

    #[test]
    fn the_memory_of_a_map_says_how_many_keys_it_holds() {
        assert!(KeyMap::with_memory(48 << 20).unwrap().capacity() >= 2_500_000);
        for bytes in [0, 15, 32, 100, 10_000] {
            let mut map = KeyMap::with_memory(bytes).unwrap();
            let capacity = map.capacity();
            assert!(capacity >= 1 && capacity < map.pages.len() / ENTRY_BYTES);
            for number in 0..capacity as u64 {
                let key = number.to_le_bytes();
                assert_eq!(note(&mut map, &batch_at(number, &[Some(&key)])), Noted::Taken);
            }
            let more = batch_at(capacity as u64, &[Some(b"one more")]);
            assert_eq!(note(&mut map, &more), Noted::Full, "{bytes} bytes");
            for number in 0..capacity as u64 {
                assert_eq!(map.last_of(&number.to_le_bytes()), Some(Offset(number)));
            }
            assert_eq!(map.last_of(b"one more"), None);
        }
    }

    #[test]
    fn nothing_counts_of_a_batch_that_is_not_taken() {
        let mut map = KeyMap::with_memory(64).unwrap(); // room for 3 keys
        map.clear(Offset(10));
        let near = batch_at(10, &[Some(b"a"), Some(b"b")]);
        assert_eq!(note(&mut map, &near), Noted::Taken);
        assert_eq!(note(&mut map, &batch_at(12, &[Some(b"b"), Some(b"c")])), Noted::Full);
        assert_eq!(note(&mut map, &batch_at(9, &[Some(b"c")])), Noted::OutOfReach);
        let reach = u64::from(u32::MAX) + 10;
        assert_eq!(note(&mut map, &batch_at(reach + 1, &[Some(b"c")])), Noted::OutOfReach);
        let mut damaged = batch_at(12, &[Some(b"c")]);
        let last = damaged.len() - 1;
        damaged[last] = 0x7f; // more headers than there are bytes
        let crc = crc_fast::crc32_iscsi(&damaged[21..]);
        damaged[17..21].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(note(&mut map, &damaged), Noted::Unreadable);
        assert_eq!((map.last_of(b"c"), map.last_of(b"b"), map.len()), (None, Some(Offset(11)), 2));
        assert_eq!(note(&mut map, &batch_at(reach, &[Some(b"c")])), Noted::Taken);
        assert_eq!(map.last_of(b"c"), Some(Offset(reach)));
        // A gap has no keys, wherever it lies.
        let mut gap = Vec::new();
        write_gap(reach..reach + 5, &mut gap);
        assert_eq!(note(&mut map, &gap), Noted::Taken);
    }
}
