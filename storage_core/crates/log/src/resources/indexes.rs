//! The indexes of closed blocks that were read or closed last.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::format::footer::IndexEntry;
use crate::sync::Mutex;

/// Cache of the indexes that are in footers, by block sequence; limited in bytes, however many blocks there
/// are.
#[derive(Default)]
pub(crate) struct IndexCache {
    kept: Mutex<KeptIndexes>,
}

#[derive(Default)]
struct KeptIndexes {
    indexes: VecDeque<(u64, Arc<Vec<IndexEntry>>)>,
    bytes: usize,
}

const INDEX_BYTES_MAX: usize = 512 << 10;

impl IndexCache {
    /// Gives the index of the block of a sequence; `load`s it if the cache does not have it.
    pub(crate) fn get(
        &self,
        sequence: u64,
        load: impl FnOnce() -> io::Result<Arc<Vec<IndexEntry>>>,
    ) -> io::Result<Arc<Vec<IndexEntry>>> {
        if let Some(entries) = self.kept.lock().find(sequence) {
            return Ok(Arc::clone(entries));
        }
        let entries = load()?;
        self.keep(sequence, Arc::clone(&entries));
        Ok(entries)
    }

    /// Whether the cache has the index of the block of a sequence.
    pub(crate) fn has(&self, sequence: u64) -> bool {
        self.kept.lock().find(sequence).is_some()
    }

    /// Takes the index of a block that was just closed.
    pub(crate) fn keep(&self, sequence: u64, entries: Arc<Vec<IndexEntry>>) {
        self.kept.lock().keep(sequence, entries);
    }
}

impl KeptIndexes {
    fn find(&self, sequence: u64) -> Option<&Arc<Vec<IndexEntry>>> {
        self.indexes.iter().find(|(kept, _)| *kept == sequence).map(|(_, entries)| entries)
    }

    fn keep(&mut self, sequence: u64, entries: Arc<Vec<IndexEntry>>) {
        let size = |entries: &Vec<IndexEntry>| size_of_val(entries.as_slice());
        if let Some(at) = self.indexes.iter().position(|(kept, _)| *kept == sequence)
            && let Some((_, former)) = self.indexes.remove(at)
        {
            self.bytes -= size(&former); // the block was cut, or two readers came at once
        }
        self.bytes += size(&entries);
        self.indexes.push_back((sequence, entries));
        while self.bytes > INDEX_BYTES_MAX
            && self.indexes.len() > 1
            && let Some((_, oldest)) = self.indexes.pop_front()
        {
            self.bytes -= size(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: usize) -> Arc<Vec<IndexEntry>> {
        Arc::new(vec![IndexEntry { offset: 0, max_timestamp: 0, position: 0 }; entries])
    }

    #[test]
    fn a_billion_small_records_need_less_than_a_megabyte_of_index() {
        // The log has 1e9 records of 100 bytes in batches of 100, in blocks of 10 MiB: one entry for each batch.
        let batch_bytes = 61 + 100 * 108;
        let batches_of_block = (10 << 20) / batch_bytes;
        let blocks = 10_000_000 / batches_of_block;
        let mut kept = KeptIndexes::default();
        (0..blocks as u64).for_each(|sequence| kept.keep(sequence, index(batches_of_block)));
        assert!(kept.bytes <= INDEX_BYTES_MAX && kept.bytes > INDEX_BYTES_MAX / 2);
        let growing = batches_of_block * size_of::<IndexEntry>();
        let times = blocks * size_of::<i64>();
        assert!(kept.bytes + growing + times < 1_000_000, "{}", kept.bytes + growing + times);
    }

    #[test]
    fn the_index_of_a_block_that_was_cut_takes_the_place_of_the_former_one() {
        let mut kept = KeptIndexes::default();
        kept.keep(1, index(10));
        kept.keep(1, index(4));
        assert_eq!(kept.find(1).map(|entries| entries.len()), Some(4));
        assert_eq!((kept.indexes.len(), kept.bytes), (1, 4 * size_of::<IndexEntry>()));
    }

    #[test]
    fn an_index_larger_than_all_others_together_is_kept_alone() {
        let mut kept = KeptIndexes::default();
        kept.keep(1, index(10));
        kept.keep(2, index(1 << 20));
        assert_eq!(kept.indexes.len(), 1);
        kept.keep(3, index(10));
        assert_eq!(kept.bytes, 10 * size_of::<IndexEntry>());
    }
}
