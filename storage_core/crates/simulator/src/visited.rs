//! The states that a search has seen, by numbers that stand for them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// For each state the one before it, and the place of the event that led from that one to it.
pub(crate) type Visited = HashMap<u64, (u64, u32), BuildHasherDefault<Plain>>;

/// A hasher of keys that are hashes already.
#[derive(Default)]
pub(crate) struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only u64 keys");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
